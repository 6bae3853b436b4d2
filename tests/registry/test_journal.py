"""The journal takes each number once, alters nothing, and shows what was altered behind its back."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.schema import CreateTable

from crisis_corpus.journal import (
    BEGINNING,
    JournalBroken,
    JournalReader,
    JournalRow,
    JournalUnavailable,
    Standing,
    canonical,
    of_rows,
)
from crisis_corpus.journal import journal as rows_of_all
from pipelines.core.errors import BadParams
from pipelines.registry.journal import Journal, JournalMoved
from tests.registry.small_registry import altered

NAME = "crisis-posts"
SAID: dict[str, Any] = {"who": "tester", "why": "a reason"}
SECRET = b"5" * 64


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    times = iter(datetime(2023, 1, 2, tzinfo=UTC) + timedelta(seconds=i) for i in range(10_000))
    with Journal.open(url, clock=lambda: next(times), secret=SECRET) as journal:
        yield journal


def write(journal: Journal, *events: str, name: str = NAME) -> list[JournalRow]:
    return [journal.append(name, event=event, to_version=1, **SAID) for event in events]  # type: ignore[arg-type]


def test_rows_are_numbered_by_model_and_chained(journal: Journal, url: str) -> None:
    first, second = write(journal, "registered", "gated")
    (other,) = write(journal, "registered", name="meme-severity")
    assert (first.number, second.number, other.number) == (1, 2, 1)
    assert (first.previous, second.previous, other.previous) == (BEGINNING, first.digest, BEGINNING)
    assert BEGINNING == "0" * 64, "every journal contains it"
    assert first.at == "2023-01-02T00:00:00.000000+00:00"
    assert journal.rows() == [first, second, other]
    assert journal.last(NAME) == second and journal.last("none") is None
    assert journal.verify() == 3
    with Journal.open(url, secret=SECRET) as again:
        assert again.rows(NAME) == [first, second]


def test_the_columns_are_pinned() -> None:
    # a journal of an earlier release keeps its columns: another digest needs a way to upgrade it
    found = hashlib.sha256(str(CreateTable(rows_of_all)).encode()).hexdigest()
    assert found == "5c2cf440b3a26ffbfcec2dea2d2a6647f163ebeaee81ab643bbc93f893c8afa8"


def test_of_two_writers_with_the_same_state_one_is_refused(journal: Journal) -> None:
    write(journal, "registered")
    journal.append(NAME, event="intended", to_version=2, after=1, who="ada", why="first")
    with pytest.raises(JournalMoved, match="after row 1, ada wrote row 2, 'intended'"):
        journal.append(NAME, event="intended", to_version=3, after=1, **SAID)
    assert len(journal.rows(NAME)) == 2


def test_many_at_once_lose_none_and_repeat_none(journal: Journal) -> None:
    def one(number: int) -> int:
        won = 0
        for after in range(12):
            with suppress(JournalMoved, JournalBroken):
                journal.append(NAME, event="gated", to_version=number, after=after, **SAID)
                won += 1
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(one, range(4)))
    rows = journal.rows(NAME)
    assert [row.number for row in rows] == list(range(1, won + 1)) and won >= 1
    assert journal.verify() == won


@pytest.mark.parametrize("field", ["who", "why"])
@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * 501])
def test_an_empty_person_or_reason_is_refused(journal: Journal, field: str, text: str) -> None:
    with pytest.raises(BadParams, match=field):
        journal.append(NAME, event="promoted", to_version=1, **SAID | {field: text})
    assert journal.rows() == []


def test_only_known_events_and_json(journal: Journal) -> None:
    with pytest.raises(BadParams):
        journal.append(NAME, event="decided", **SAID)  # type: ignore[arg-type]
    for wrong in ({"a": float("nan")}, {"a": {1, 2}}):
        with pytest.raises(BadParams):
            journal.append(NAME, event="gated", metrics=wrong, **SAID)
    row = journal.append(NAME, event="gated", metrics={"b": {10: 0.1, 9: None}, "a": [True, "x"]}, **SAID)
    assert journal.rows(NAME) == [row] and journal.verify() == 1


@pytest.mark.parametrize("statement", ["UPDATE journal SET who = 'other'", "DELETE FROM journal"])
def test_the_database_refuses_to_alter(journal: Journal, statement: str) -> None:
    write(journal, "registered")
    with pytest.raises(JournalUnavailable), journal.engine.writing() as connection:
        connection.exec_driver_sql(statement)
    assert journal.verify() == 1


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("UPDATE journal SET who = 'other' WHERE number = 2", 2),
        ("UPDATE journal SET to_version = 7 WHERE number = 1", 1),
        ("UPDATE journal SET metrics = '{\"a\":1}' WHERE number = 3", 3),
        ("UPDATE journal SET metrics = 'no json' WHERE number = 3", 3),
        ("UPDATE journal SET files = 'f' WHERE number = 3", 3),
        ("DELETE FROM journal WHERE number = 2", 2),
        ("DELETE FROM journal WHERE number = 1", 1),
    ],
)
def test_what_was_altered_is_named(journal: Journal, statement: str, row: int) -> None:
    write(journal, "registered", "gated", "intended")
    altered(journal, statement)
    with pytest.raises(JournalBroken) as caught:
        journal.verify(NAME)
    assert caught.value.fields["number"] == row


def test_a_journal_that_was_cut_is_noticed_by_who_knows_a_row(journal: Journal) -> None:
    rows = write(journal, "registered", "gated", "intended")
    altered(journal, "DELETE FROM journal WHERE number = 3")
    with pytest.raises(JournalBroken, match="row 3"):
        journal.verify()
    # a consumer without the key knows no head
    without = JournalReader(journal.engine, key=None)
    assert without.verify() == 2
    assert without.verify(known={NAME: rows[1].digest}) == 2
    with pytest.raises(JournalBroken, match="row 3"):
        without.verify(known={NAME: rows[2].digest})
    altered(journal, "DELETE FROM journal")
    with pytest.raises(JournalBroken):
        journal.append(NAME, event="gated", after=2, **SAID)


def test_a_row_that_was_forged_whole_breaks_the_next(journal: Journal) -> None:
    rows = write(journal, "registered", "gated")
    with Journal.open("sqlite://", secret=SECRET) as elsewhere:
        forged = elsewhere.append(NAME, event="registered", to_version=1, who="tester", why="another reason")
    values = f"why = 'another reason', at = '{forged.at}', digest = '{forged.digest}'"
    altered(journal, f"UPDATE journal SET {values} WHERE number = 1")
    assert rows[1].previous != forged.digest
    with pytest.raises(JournalBroken, match="row 2"):
        journal.verify()


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite", secret=SECRET) as journal:
        write(journal, "registered")
    assert (tmp_path / "journal.sqlite").stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as found:
        assert found.execute("SELECT count(*) FROM journal").fetchone() == (1,)


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(BadParams, match="CORPUS_JOURNAL_URL"):
        Journal.open("mysql://nowhere/journal")


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.floats(allow_nan=False), st.none(), st.text())))
def test_canonical_json_survives_its_own_reading(values: dict[str, Any]) -> None:
    try:
        once = canonical(values)
    except BadParams:
        assert any(v in (float("inf"), float("-inf")) for v in values.values())
        return
    assert canonical(json.loads(once)) == once


def row(number: int, event: str, *, leaves: int | None, comes: int | None) -> JournalRow:
    return JournalRow(NAME, number, "", event, leaves, comes, "a", "b", {}, None, "", "")  # type: ignore[arg-type]


def test_the_state_of_a_model_follows_from_its_rows() -> None:
    rows = [
        row(1, "promoted", leaves=None, comes=1),
        row(2, "promoted", leaves=1, comes=2),
        row(3, "promoted", leaves=2, comes=3),
        row(4, "refused", leaves=3, comes=4),
    ]
    assert of_rows(NAME, rows) == Standing(NAME, 4, 3, (1, 2))
    back = row(5, "rolled_back", leaves=3, comes=2)
    assert of_rows(NAME, [*rows, back]) == Standing(NAME, 5, 2, (1,))
    gone = row(6, "withdrawn", leaves=1, comes=2)
    assert of_rows(NAME, [*rows, back, gone]) == Standing(NAME, 6, 2, (), withdrawn=frozenset({1}))
    other = row(7, "withdrawn", leaves=2, comes=None)
    assert of_rows(NAME, [*rows, back, gone, other]) == Standing(NAME, 7, None, (), withdrawn=frozenset({1, 2}))
    begun = row(5, "intended", leaves=3, comes=4)
    assert of_rows(NAME, [*rows, begun]) == Standing(NAME, 5, 3, (1, 2), begun)
    given_up = row(6, "abandoned", leaves=4, comes=3)
    assert of_rows(NAME, [*rows, begun, given_up]) == Standing(NAME, 6, 3, (1, 2))
    none = row(5, "withdrawn", leaves=3, comes=None)
    assert of_rows(NAME, [*rows, none]) == Standing(NAME, 5, None, (1, 2), withdrawn=frozenset({3}))
    stale = [replace(row(5, "stale", leaves=2, comes=None), metrics={"until": day}) for day in ("2023-03", "2023-02")]
    for order in (stale, stale[::-1]):
        assert of_rows(NAME, [*rows, *order]).stale == {2: "2023-02"}
    restored = row(6, "rolled_back", leaves=None, comes=2)
    assert of_rows(NAME, [*rows, none, restored]) == Standing(NAME, 6, 2, (1,), withdrawn=frozenset({3}))
