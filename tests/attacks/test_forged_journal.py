"""A person who can write to the journal's database, but lacks the secret, forges no decision about a model."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus import client
from crisis_corpus import journal as reading
from crisis_corpus.journal import KEY_FILE, JournalBroken, JournalUnsigned, canonical, opened, sealed
from crisis_corpus.trusted import JournalExpired, StaleJournal
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.registry import transitions
from pipelines.registry.journal import CannotSign, Journal
from pipelines.store.vault.keyring import Signer
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.small_corpus import begin, code_of

NAME = "crisis-posts"
SAID: dict[str, Any] = {"who": "ada", "why": "a reason"}
COLUMNS = [column.name for column in reading.journal.columns]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


@pytest.fixture
def journal(settings: Settings) -> Iterator[Journal]:
    with Journal.of(settings) as journal:
        for event in ("registered", "gated", "intended", "promoted"):
            journal.append(NAME, event=event, to_version=1, **SAID)  # type: ignore[arg-type]
        yield journal


def database(settings: Settings) -> sqlite3.Connection:
    """Connect as another program does."""
    return sqlite3.connect(settings.journal_url.removeprefix("sqlite:///"), isolation_level=None)


def rows_of(settings: Settings) -> list[dict[str, Any]]:
    with closing(database(settings)) as connection:
        found = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM journal ORDER BY number").fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def put(settings: Settings, rows: list[dict[str, Any]], *, how: str = "INSERT") -> None:
    """Write rows with the digests that belong to them."""
    previous = reading.BEGINNING
    with closing(database(settings)) as connection:
        for row in rows:
            row["previous"] = previous
            row["digest"] = previous = sealed({key: row[key] for key in COLUMNS if key not in ("digest", "signature")})
            marks = ", ".join("?" * len(COLUMNS))
            connection.execute(f"{how} INTO journal ({', '.join(COLUMNS)}) VALUES ({marks})", [*row.values()])


def forge(settings: Settings, rows: list[dict[str, Any]]) -> None:
    """Replace all rows, as the owner of the database can."""
    with closing(database(settings)) as connection:
        for trigger in ("UPDATE", "DELETE", "INSERT"):
            connection.execute(f"DROP TRIGGER journal_{trigger}")
        connection.execute("DELETE FROM journal")
    put(settings, rows)


@pytest.mark.parametrize("how", ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"])
def test_a_row_is_not_replaced(settings: Settings, journal: Journal, how: str) -> None:
    forged = [row | {"who": "mallory"} for row in rows_of(settings)]
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        put(settings, forged, how=how)
    assert journal.verify() == 4


def test_neither_is_one_of_a_journal_that_an_earlier_version_created(settings: Settings, journal: Journal) -> None:
    with closing(database(settings)) as connection:
        connection.execute("DROP TRIGGER journal_INSERT")
    with Journal.of(settings), pytest.raises(sqlite3.IntegrityError, match="append-only"):
        put(settings, rows_of(settings), how="REPLACE")


@pytest.mark.parametrize("signatures", ["kept", "removed", "another key", "of another row"])
def test_forged_rows_are_refused_by_writer_and_consumer(
    settings: Settings, journal: Journal, signatures: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(settings)
    rows[3] |= {"who": "mallory", "to_version": 2}
    if signatures == "removed":
        rows = [row | {"signature": None} for row in rows]
    if signatures == "of another row":
        rows[3]["signature"] = rows[2]["signature"]
    if signatures == "another key":
        with Journal.open("sqlite://", secret=b"7" * 64) as elsewhere:
            for row in rows:
                given = {key: row[key] for key in ("event", "who", "why", "to_version")}
                made = elsewhere.append(NAME, **given)
                row |= {"at": made.at, "signature": made.signature}
    forge(settings, rows)
    refused = JournalUnsigned if signatures != "removed" else JournalBroken
    with pytest.raises(refused):
        journal.verify()
    with opened(settings.journal_url) as reader, pytest.raises(refused):
        reader.verify(NAME)
    # a consumer without the home knows the key by its setting
    (settings.home / KEY_FILE).unlink()
    monkeypatch.setenv("CORPUS_JOURNAL_KEY", Signer(settings.secret(), purpose="journal").public.hex())
    with opened(settings.journal_url) as reader, pytest.raises(refused):
        reader.verify(NAME)


def test_no_row_is_written_after_one_that_is_not_signed(settings: Settings, journal: Journal) -> None:
    last = rows_of(settings)[-1]
    added = last | {"number": 5, "who": "mallory", "previous": last["digest"], "signature": None}
    added["digest"] = sealed({key: added[key] for key in COLUMNS if key not in ("digest", "signature")})
    with closing(database(settings)) as connection:
        connection.execute(f"INSERT INTO journal VALUES ({', '.join('?' * len(COLUMNS))})", [*added.values()])
    with pytest.raises(JournalUnsigned, match="row 5"):
        journal.append(NAME, event="gated", to_version=1, **SAID)
    with pytest.raises(JournalUnsigned, match="row 5"):
        journal.verify()


def test_without_the_secret_nothing_is_written(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUS_SECRET")
    with Journal.of(settings) as journal:
        with pytest.raises(CannotSign):
            journal.append(NAME, event="registered", to_version=1, **SAID)
        assert journal.rows() == []


def test_a_key_that_is_none_is_refused(journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_JOURNAL_KEY", "5e5e")
    with pytest.raises(BadParams, match="CORPUS_JOURNAL_KEY"), opened(settings.journal_url):
        pass


def test_a_journal_without_a_corpus_repository_has_no_tags(settings: Settings, journal: Journal) -> None:
    assert transitions.published_anchors(settings) == {}


@pytest.fixture
def anchored(settings: Settings, journal: Journal, tmp_path: Path) -> Journal:
    """The journal of a corpus whose last decision has its tag."""
    begin(settings, code=code_of(tmp_path / "code", {"params.yaml": "{}\n"}))
    transitions.anchor(NAME, journal=journal, settings=settings)
    transitions.check_anchors(journal, settings=settings, cwd=Path(settings.repo))
    return journal


@pytest.mark.parametrize("left", [0, 2, 3])
def test_a_tag_in_the_corpus_repository_reveals_a_cut_journal(settings: Settings, anchored: Journal, left: int) -> None:
    rows = rows_of(settings)[:left]
    cut(settings, rows=4 - left)
    # an operator's process makes a new head where the table is missing
    with closing(database(settings)) as connection:
        connection.execute("DROP TABLE journal_head")
    with Journal.of(settings) as again:
        assert again.verify() == len(rows)
    with pytest.raises(JournalBroken, match="missing"):
        transitions.check_anchors(anchored, settings=settings, cwd=Path(settings.repo))


def test_a_journal_whose_signatures_were_removed_is_refused(settings: Settings, anchored: Journal) -> None:
    rows = [row | {"signature": None} for row in rows_of(settings)]
    rows[3]["who"] = "mallory"
    forge(settings, rows)
    with pytest.raises(JournalBroken):
        transitions.check_anchors(anchored, settings=settings, cwd=Path(settings.repo))


def test_without_the_secret_no_tag_counts(
    settings: Settings, anchored: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert transitions.published_anchors(settings).keys() == {NAME}
    monkeypatch.delenv("CORPUS_SECRET")
    assert transitions.published_anchors(settings) == {}


def test_a_text_has_one_signature_or_none() -> None:
    signer = Signer(b"5" * 64, purpose="journal-tag")
    once = signer.sign_text("a text")
    assert signer.signed_text(once) == "a text"
    for other in ("a text", once.replace("a text", "a tent"), signer.sign_text(once), f"{once}{once}"):
        assert signer.signed_text(other) is None
    assert Signer(b"5" * 64, purpose="journal").signed_text(once) is None


def test_a_forged_tag_hides_nothing(settings: Settings, anchored: Journal) -> None:
    repo = Path(settings.repo)
    git("tag", "--annotate", f"journal/{NAME}/9", "-m", "0" * 64, "corpus", cwd=repo)
    git("tag", "journal/x/y", "corpus", cwd=repo)
    assert transitions.anchored(settings, cwd=repo) == {NAME: rows_of(settings)[3]["digest"]}


def test_a_branch_of_the_same_name_hides_no_tag(settings: Settings, anchored: Journal) -> None:
    git("branch", f"journal/{NAME}/4", "corpus", cwd=Path(settings.repo))
    forge(settings, [])
    with workspace(settings) as clone, pytest.raises(JournalBroken, match="missing"):
        transitions.check_anchors(anchored, settings=settings, cwd=clone.path)
    assert transitions.published_anchors(settings).keys() == {NAME}


def test_a_decision_is_anchored_once_and_none_needs_no_tag(settings: Settings, anchored: Journal) -> None:
    before = git("--git-dir", settings.repo, "show-ref", "--tags")
    transitions.anchor(NAME, journal=anchored, settings=settings)
    transitions.anchor("meme-severity", journal=anchored, settings=settings)
    assert git("--git-dir", settings.repo, "show-ref", "--tags") == before


def test_metrics_are_covered(settings: Settings, journal: Journal) -> None:
    rows = rows_of(settings)
    rows[1]["metrics"] = canonical({"macro_f1": 1.0})
    forge(settings, rows)
    with pytest.raises(JournalUnsigned, match="row 2"):
        journal.verify()


def cut(settings: Settings, *, rows: int) -> None:
    """Remove the last rows, and restore the triggers."""
    with closing(database(settings)) as connection:
        triggers = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.execute("DROP TRIGGER journal_DELETE")
        connection.execute("DELETE FROM journal WHERE number > (SELECT max(number) FROM journal) - ?", [rows])
        for (sql,) in triggers:
            connection.execute(sql.replace("CREATE TRIGGER", "CREATE TRIGGER IF NOT EXISTS"))


def head_of(settings: Settings) -> tuple[Any, ...]:
    with closing(database(settings)) as connection:
        return connection.execute("SELECT at, until, last, signature FROM journal_head").fetchone()


def put_head(settings: Settings, head: tuple[Any, ...] | None) -> None:
    with closing(database(settings)) as connection:
        connection.execute("DELETE FROM journal_head")
        if head is not None:
            connection.execute("INSERT INTO journal_head (at, until, last, signature) VALUES (?, ?, ?, ?)", head)


@pytest.mark.parametrize("head", ["kept", "removed", "altered"])
def test_rows_cut_at_the_end_are_refused_by_the_signed_head(settings: Settings, journal: Journal, head: str) -> None:
    journal.append(NAME, event="withdrawn", from_version=1, **SAID)
    known = head_of(settings)
    cut(settings, rows=1)
    if head != "kept":
        put_head(settings, None if head == "removed" else (known[0], known[1], "{}", known[3]))
    with opened(settings.journal_url) as reader, pytest.raises(JournalBroken):
        reader.verify(NAME)
    with pytest.raises(JournalBroken):
        client.token(NAME, journal_url=settings.journal_url)
    # the next decision, also about another model, must not make the cut good
    with pytest.raises(JournalBroken):
        journal.append(NAME, event="gated", to_version=2, **SAID)
    with suppress(JournalBroken):
        journal.append("another-model", event="registered", to_version=1, **SAID)
    with pytest.raises(JournalBroken):
        journal.confirm()
    with opened(settings.journal_url) as reader, pytest.raises(JournalBroken):
        reader.verify(NAME)


def test_a_consumer_that_saw_a_row_refuses_an_older_journal_with_its_own_head(
    settings: Settings, journal: Journal
) -> None:
    older = head_of(settings)
    journal.append(NAME, event="withdrawn", from_version=1, **SAID)
    client.token(NAME, journal_url=settings.journal_url)
    cut(settings, rows=1)
    put_head(settings, older)
    with pytest.raises(JournalBroken, match="seen here before"):
        client.token(NAME, journal_url=settings.journal_url)
    with pytest.raises(JournalBroken):
        journal.verify(known={NAME: "f" * 64})


@pytest.mark.parametrize(("days", "outcome"), [(13, None), (20, StaleJournal), (29, JournalExpired)])
def test_a_head_that_nobody_confirms_is_a_warning_and_then_a_refusal(
    settings: Settings, journal: Journal, days: int, outcome: type[Exception] | None
) -> None:
    with Journal.of(settings, clock=lambda: datetime.now(UTC) - timedelta(days=days)) as older:
        older.confirm()
    expected = pytest.warns(StaleJournal) if outcome is StaleJournal else nullcontext()
    with pytest.raises(JournalExpired) if outcome is JournalExpired else expected, warnings.catch_warnings():
        if outcome is None:
            warnings.simplefilter("error")
        client.token(NAME, journal_url=settings.journal_url)
    # a later row keeps the head dated
    journal.append(NAME, event="gated", to_version=2, **SAID)
    assert head_of(settings)[1] is not None
    client.token(NAME, journal_url=settings.journal_url)


def test_a_journal_without_housekeeping_does_not_age(settings: Settings) -> None:
    with Journal.of(settings, clock=lambda: datetime(2023, 1, 2, tzinfo=UTC)) as journal:
        journal.append(NAME, event="registered", to_version=1, **SAID)
    client.token(NAME, journal_url=settings.journal_url)


def test_a_journal_of_the_first_release_gets_a_head_when_it_is_opened(settings: Settings, journal: Journal) -> None:
    with closing(database(settings)) as connection:
        connection.execute("DROP TABLE journal_head")
    with opened(settings.journal_url) as reader, pytest.raises(JournalBroken, match="signed head"):
        reader.verify(NAME)
    # by a process without the secret it gets none
    with Journal.open(settings.journal_url) as unsigned:
        assert unsigned.verify() == 4
    with Journal.of(settings) as again:
        assert again.verify() == 4
        again.append(NAME, event="gated", to_version=2, **SAID)
        assert again.verify() == 5
