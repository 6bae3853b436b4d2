"""The vault as its users see it, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.schema import CreateTable

from pipelines.core.errors import BadParams, SealBroken, VaultUnavailable
from pipelines.store.vault import checks, engine, removals
from pipelines.store.vault.database import metadata, records
from pipelines.store.vault.keyring import Keyring
from pipelines.store.vault.vault import Tombstone, Vault
from tests.refusals import refused

SECRET = bytes(range(32))
NOW = datetime(2023, 1, 5, 12, 30, tzinfo=UTC)
LATER = NOW + timedelta(days=3)
MONTH = {"corpus": "memes", "month": "2022-12"}


def admit(vault: Vault, *, count: int, start: int = 0, now: datetime = NOW) -> list[str]:
    """Let in records named by numbers; give their ids in order."""
    items = [(vault.record_id(f"t3_{n:x}"), f"t3_{n:x}") for n in range(start, start + count)]
    vault.admit(items, **MONTH, now=now)
    return [record_id for record_id, _ in items]


def raw(url: str, query: str, **values: str) -> list[tuple]:
    """Ask the database past the vault."""
    with closing(sa.create_engine(url, poolclass=sa.NullPool).connect()) as connection, connection.begin():
        result = connection.execute(sa.text(query), values)
        return [tuple(row) for row in result] if result.returns_rows else []


@given(st.text(min_size=1, max_size=20))
def test_ids_are_stable_hex_and_differ_between_domains(text: str) -> None:
    keyring = Keyring(SECRET)
    ids = {domain: keyring.name(text, domain=domain) for domain in ("post", "author", "release/1", "release/2")}
    assert len(set(ids.values())) == 4
    assert all(len(i) == 32 and set(i) <= set("0123456789abcdef") for i in ids.values())
    assert ids == {domain: Keyring(SECRET).name(text, domain=domain) for domain in ids}
    assert Keyring(SECRET[::-1]).name(text, domain="post") != ids["post"]


def test_names_and_check_values_are_pinned() -> None:
    # every vault, and every record of it, has the ones of its secret
    keyring = Keyring(SECRET)
    assert keyring.identity_check.hex() == "c84ca4973e2d7da72fa05c5081b88be5"
    assert keyring.wrapping_check.hex() == "2f7307d58e754839ee7f368a0da90086"
    assert keyring.name("t3_0", domain="post") == "5eef5b753cf6b4f1960fc78224287ac1"


def test_the_tables_are_pinned() -> None:
    # a vault of an earlier release keeps its tables: another digest needs a way to upgrade it
    made = "".join(str(CreateTable(table)) for table in metadata.sorted_tables)
    found = hashlib.sha256(made.encode()).hexdigest()
    assert found == "754731a7a5b335d2ccfd4c1749da3ad2337385a62824a43a91531fbb5a282efd"


def test_a_post_and_an_author_of_equal_text_have_different_ids(vault: Vault) -> None:
    assert vault.record_id("same") != vault.author_id("same")
    assert vault.author_id("Same") == vault.author_id("same") == Keyring(SECRET).name("same", domain="author")


def test_a_vault_that_is_missing_is_created_only_if_that_is_wanted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/vault.sqlite"
    with refused("NoVault"):
        Vault.open(url, secret=SECRET, create=False)
    assert not list(tmp_path.iterdir())
    for place in (url, f"sqlite:///{tmp_path}/new/folder/vault.sqlite"):
        Vault.open(place, secret=SECRET).close()
        Vault.open(place, secret=SECRET, create=False).close()


def test_admitted_records_have_keys_of_their_own_that_stay(url: str) -> None:
    with Vault.open(url, secret=SECRET) as vault:
        ids = admit(vault, count=50)
        keys = vault.keys(ids)
        assert set(keys) == set(ids)
        assert len(set(keys.values())) == 50
        assert {len(key) for key in keys.values()} == {64}
        assert vault.fullnames(ids[:2]) == {ids[0]: "t3_0", ids[1]: "t3_1"}
    with Vault.open(url, secret=SECRET) as vault:
        admit(vault, count=60, now=LATER)
        assert vault.keys(ids) == keys
        assert vault.counts() == {"records": 60, "tombstones": 0}


def test_seeing_a_record_again_moves_last_seen_forward_only(url: str) -> None:
    with Vault.open(url, secret=SECRET) as vault:
        for now in (LATER, NOW):
            admit(vault, count=1, now=now)
        admit(vault, count=1, start=1, now=NOW)
    seen = raw(url, "SELECT CAST(first_seen AS VARCHAR(10)), CAST(last_seen AS VARCHAR(10)) FROM records ORDER BY 1")
    assert [tuple(str(value)[:10] for value in row) for row in seen] == [
        ("2023-01-05", "2023-01-05"),
        ("2023-01-08", "2023-01-08"),
    ]


def test_neither_keys_nor_fullnames_are_stored_in_plain(url: str) -> None:
    with Vault.open(url, secret=SECRET) as vault:
        ids = admit(vault, count=1)
        key = vault.keys([ids[0]])[ids[0]]
    [(stored_key, stored_name)] = raw(url, 'SELECT "key", fullname FROM records')
    assert key not in bytes(stored_key)
    assert b"t3_0" not in bytes(stored_name)


def test_a_destroyed_record_leaves_a_tombstone_and_nothing_else(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")  # PostgreSQL returns times in the zone of the session
    with Vault.open(url, secret=SECRET) as vault:
        ids = admit(vault, count=10)
        assert vault.destroy(ids[:3], reason="takedown", now=LATER) == 3
        assert vault.destroy(ids[:4], reason="again", now=LATER) == 1
        assert set(vault.keys(ids)) == set(ids[4:])
        assert set(vault.fullnames(ids)) == set(ids[4:])
        assert vault.tombstoned(ids) == set(ids[:4])
        assert vault.counts() == {"records": 6, "tombstones": 4}
        with refused("UnknownRecord"):
            vault.require_known(["f" * 32])
        assert vault.tombstones()[ids[0]] == Tombstone(LATER, "takedown")
    nulls = raw(url, 'SELECT COUNT(*) FROM records WHERE deleted_at IS NOT NULL AND "key" IS NULL AND fullname IS NULL')
    assert nulls == [(4,)]


def test_more_records_than_fit_into_a_statement(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK", 500)
    ids = admit(vault, count=600)
    assert vault.keys(ids).keys() == vault.months(ids).keys() == {*ids}
    strangers = [f"{n:032x}" for n in range(600)]
    assert vault.destroy([*ids, *strangers], reason="takedown", now=LATER) == 1200
    assert vault.tombstoned([*ids, *strangers]) == {*ids, *strangers}
    assert vault.counts() == {"records": 0, "tombstones": 1200}


def test_a_tombstoned_record_cannot_come_back(vault: Vault) -> None:
    ids = admit(vault, count=3)
    stranger = vault.record_id("t3_99")
    vault.destroy([ids[0], stranger], reason="takedown", now=NOW)
    items = [(record_id, "t3_x") for record_id in [*ids, stranger]]
    assert vault.admit(items, **MONTH, now=LATER) == set(ids[1:])
    assert vault.tombstoned([*ids, stranger]) == {ids[0], stranger}


def test_tombstones_replayed_on_a_restored_backup_take_the_same_records_out(tmp_path: Path) -> None:
    file, backup = tmp_path / "vault.sqlite", tmp_path / "backup.sqlite"
    with Vault.open(f"sqlite:///{file}", secret=SECRET) as vault:
        ids = admit(vault, count=5)
    backup.write_bytes(file.read_bytes())
    with Vault.open(f"sqlite:///{file}", secret=SECRET) as vault:
        newer = admit(vault, count=2, start=5)
        vault.destroy([ids[0], newer[0]], reason="takedown", now=LATER)
        kept_apart = vault.tombstones()
    with Vault.open(f"sqlite:///{backup}", secret=SECRET) as restored:
        assert restored.keys(ids[:1])
        assert restored.replay(kept_apart) == 2
        assert restored.tombstones() == kept_apart
        assert restored.tombstoned([*ids, *newer]) == {ids[0], newer[0]}


def test_rotation_makes_old_backups_worthless_and_keeps_ids_and_keys(tmp_path: Path) -> None:
    file, backup = tmp_path / "vault.sqlite", tmp_path / "backup.sqlite"
    rotated = SECRET + b"r" * 32
    with Vault.open(f"sqlite:///{file}", secret=SECRET) as vault:
        ids = admit(vault, count=30)
        keys = vault.keys(ids)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        vault.destroy(ids[:1], reason="takedown", now=NOW)
        with Vault.open(f"sqlite:///{file}", secret=SECRET) as other:
            assert vault.rotate(secret=rotated) == 29
            with refused("VaultMismatch"):
                admit(other, count=1)
        assert vault.keys(ids) == {i: keys[i] for i in ids[1:]}
        assert [vault.record_id(f"t3_{n:x}") for n in range(30)] == ids
    for path, secret in ((file, SECRET), (backup, rotated)):
        with refused("VaultMismatch"):
            Vault.open(f"sqlite:///{path}", secret=secret)
    with Vault.open(f"sqlite:///{file}", secret=rotated) as vault:
        assert vault.fullnames(ids[1:2]) == {ids[1]: "t3_1"}
        with refused("VaultMismatch"):
            vault.rotate(secret=b"x" * 64)


def test_rotation_works_on_each_database(vault: Vault) -> None:
    ids = admit(vault, count=5)
    keys = vault.keys(ids)
    assert vault.rotate(secret=SECRET + b"r") == 5
    assert vault.keys(ids) == keys


def test_a_vault_is_refused_under_another_secret(url: str) -> None:
    Vault.open(url, secret=SECRET).close()
    with refused("VaultMismatch"):
        Vault.open(url, secret=SECRET[::-1])


def test_an_altered_or_swapped_key_is_noticed(url: str) -> None:
    with Vault.open(url, secret=SECRET) as vault:
        ids = admit(vault, count=2)
        other = '(SELECT "key" FROM records WHERE record_id = :other)'
        raw(url, f'UPDATE records SET "key" = {other} WHERE record_id = :id', id=ids[0], other=ids[1])
        assert set(vault.keys(ids[1:])) == {ids[1]}
        with pytest.raises(SealBroken):
            vault.keys(ids)


@pytest.mark.parametrize(
    "url", ["mysql://x", "nonsense", "postgresql+nothing://x/y"], ids=["other database", "no address", "no driver"]
)
def test_a_wrong_address_says_so(url: str) -> None:
    with pytest.raises(BadParams, match="CORPUS_VAULT_URL"):
        Vault.open(url, secret=SECRET)


def test_a_file_that_is_no_database_says_so_with_the_driver_s_code(tmp_path: Path) -> None:
    (tmp_path / "vault.sqlite").write_bytes(b"a text" * 1000)
    with pytest.raises(VaultUnavailable, match=r"DatabaseError \(SQLITE_NOTADB\)"):
        Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=SECRET)


def test_wrong_arguments_are_refused(url: str) -> None:
    with pytest.raises(BadParams, match="CORPUS_SECRET"):
        Vault.open(url, secret=b"short")
    with Vault.open(url, secret=SECRET) as vault:
        with pytest.raises(BadParams, match="now"):
            admit(vault, count=1, now=datetime(2023, 1, 1))
        for reason in ("x" * 65, ""):
            with pytest.raises(BadParams, match="reason"):
                vault.destroy(["a" * 32], reason=reason, now=NOW)
        assert vault.counts() == {"records": 0, "tombstones": 0}
        assert vault.destroy(["a" * 32], reason="x" * 64, now=NOW) == 1


def test_assignments_are_remembered_and_only_added_to(vault: Vault) -> None:
    first = {("a" * 32, 0): "train", ("a" * 32, 1): "test"}
    more = {("b" * 32, 0): "validation"}
    vault.assign("memes", version=1, rows=first, now=NOW)
    vault.assign("memes", version=1, rows=first | more, now=LATER)
    assert vault.assignments("memes", version=1) == first | more
    assert vault.assignments("memes", version=2) == vault.assignments("posts", version=1) == {}
    with refused("SplitConflict", match="1 items have another split already"):
        vault.assign("memes", version=1, rows={("a" * 32, 1): "train", ("c" * 32, 0): "train"}, now=LATER)
    assert vault.assignments("memes", version=1) == first | more
    vault.assign("memes", version=2, rows={("a" * 32, 1): "train"}, now=LATER)
    vault.assign("memes", version=3, rows={}, now=LATER)


@pytest.mark.parametrize("statement", ["UPDATE assignments SET split = 'test'", "DELETE FROM assignments"])
def test_the_database_itself_refuses_to_move_a_split(url: str, statement: str) -> None:
    with Vault.open(url, secret=SECRET) as vault:
        vault.assign("memes", version=1, rows={("a" * 32, 0): "train"}, now=NOW)
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            raw(url, statement)
        assert vault.assignments("memes", version=1) == {("a" * 32, 0): "train"}


def test_the_last_successful_sweep_is_remembered_beyond_failures(vault: Vault) -> None:
    with vault.database.writing() as connection:
        assert checks.last_success(connection, corpus="memes") is None
        checks.begin(connection, corpus="memes", now=NOW)
        checks.succeed(connection, corpus="memes", now=NOW)
        checks.begin(connection, corpus="memes", now=LATER)
        checks.end(connection, corpus="memes", now=LATER)
        assert checks.last_success(connection, corpus="memes") == NOW
        assert checks.last_success(connection, corpus="posts") is None


def test_a_sweep_that_is_taken_back_has_ended(vault: Vault) -> None:
    with vault.database.writing() as connection:
        checks.begin(connection, corpus="memes", now=NOW)
        assert checks.begin(connection, corpus="memes", now=LATER)[0] == NOW
        checks.take_back(connection, corpus="memes", since=NOW, now=NOW)
        assert checks.begin(connection, corpus="memes", now=LATER) == (LATER, checks.SweepTally())


def test_a_sweep_that_is_taken_back_leaves_the_misses_of_earlier_ones(vault: Vault) -> None:
    ids = admit(vault, count=1)
    with vault.database.writing() as connection:
        for now in (NOW, LATER, LATER + timedelta(days=3)):
            checks.end(connection, corpus="memes", now=now)
            checks.begin(connection, corpus="memes", now=now)
            answers = dict.fromkeys(checks.known(connection, corpus="memes"), checks.MISSING)
            checks.note(connection, answers, corpus="memes", now=now)
        assert checks.take_back(connection, corpus="memes", since=now, now=now) == 1
        assert checks.gone(connection, corpus="memes") == {ids[0]: checks.MISSING}


def test_only_sqlite_keeps_a_file() -> None:
    assert engine.database_file("sqlite:////home/a.sqlite") == Path("/home/a.sqlite")
    for url in ("sqlite://", "postgresql+psycopg2://a@/b", "nonsense"):
        assert engine.database_file(url) is None


def test_the_oldest_live_record_says_since_when_a_corpus_is_stored(vault: Vault) -> None:
    [newer] = admit(vault, count=1, now=LATER)
    [older] = admit(vault, count=1, start=1, now=NOW)
    seen = []
    for record_id in (older, newer, None):
        with vault.database.reading() as connection:
            seen.append(checks.first_seen(connection, corpus="memes"))
        if record_id:
            vault.destroy([record_id], reason="takedown", now=LATER)
    assert seen == [NOW, LATER, None]


def test_a_time_that_is_not_known_stays_unknown(vault: Vault) -> None:
    with vault.database.writing() as connection:
        connection.execute(sa.insert(records).values(record_id="a" * 32, first_seen=None, last_seen=NOW, missed=0))
        assert connection.execute(sa.select(records.c.first_seen, records.c.last_seen)).one() == (None, NOW)


def test_removals_of_several_takedowns_add_up(vault: Vault) -> None:
    a, b, c = (hashlib.sha256(name).hexdigest() for name in (b"6 ids", b"5 ids", b"3 ids"))
    rows = [removals.Removal(b, c, 2, LATER), removals.Removal(a, b, 1, NOW), removals.Removal(a, c, 3, LATER)]
    for found in ([], rows[:1], rows):
        removals.record(vault, found)
    assert sorted(removals.every(vault), key=rows.index) == rows
    assert removals.every(vault)[0].at == NOW
    assert removals.begun(vault) == {a: NOW, b: LATER}
    assert removals.removed(vault, before=a, after=c) == 3
    assert removals.removed(vault, before=c, after=c) == 0
    assert removals.removed(vault, before=c, after=a) is None


def test_what_a_killed_sweep_counted_is_added() -> None:
    assert checks.SweepTally(1, 2, 3) + checks.SweepTally(10, 20, 30) == checks.SweepTally(11, 22, 33)


ADMIT = """
import hashlib, sys
from datetime import UTC, datetime
from pipelines.store.vault.vault import Vault
with Vault.open(sys.argv[1], secret=bytes(range(32))) as vault:
    for start in range(0, 600, 100):
        items = [(vault.record_id(f"t3_{n:x}"), f"t3_{n:x}") for n in range(start, start + 150)]
        vault.admit(items, corpus="memes", month="2022-12", now=datetime(2023, 1, int(sys.argv[2]) + 1, tzinfo=UTC))
    keys = vault.keys([vault.record_id(f"t3_{n:x}") for n in range(650)])
    print(len(keys), hashlib.sha256(repr(sorted(keys.items())).encode()).hexdigest())
"""
ASSIGN = """
import sys
from datetime import UTC, datetime
from pipelines.core.errors import DataError
from pipelines.store.vault.vault import Vault
with Vault.open(sys.argv[1], secret=bytes(range(32))) as vault:
    rows = {(f"{n:032x}", 0): f"split{sys.argv[2]}" for n in range(500)} | {(sys.argv[2] * 32, 0): "own"}
    try:
        vault.assign("memes", version=1, rows=rows, now=datetime(2023, 1, 1, tzinfo=UTC))
        print("won", sys.argv[2])
    except DataError:
        print("lost")
"""


def together(script: str, *, url: str, count: int) -> list[str]:
    """Run the script in real processes at the same time; give what each printed."""
    command = [sys.executable, "-c", script, url]
    children = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(1, count + 1)]
    output = [child.communicate(timeout=120)[0].strip() for child in children]
    assert [child.returncode for child in children] == [0] * count
    return output


def test_processes_that_make_a_vault_and_admit_the_same_records_end_with_the_same_keys(url: str) -> None:
    [answer] = set(together(ADMIT, url=url, count=4))
    assert answer.startswith("650 ")
    with Vault.open(url, secret=SECRET) as vault:
        assert vault.counts() == {"records": 650, "tombstones": 0}


def test_of_processes_that_assign_different_splits_one_wins_and_the_others_write_nothing(url: str) -> None:
    output = together(ASSIGN, url=url, count=3)
    [winner] = [line.split()[1] for line in output if line.startswith("won")]
    assert output.count("lost") == 2
    with Vault.open(url, secret=SECRET) as vault:
        rows = vault.assignments("memes", version=1)
    assert len(rows) == 501
    assert set(rows.values()) == {f"split{winner}", "own"}


def test_a_vault_that_cannot_be_reached_says_so_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(VaultUnavailable) as caught:
        Vault.open(f"postgresql+psycopg2://someone:hush@/none?host={tmp_path}", secret=SECRET)
    assert "hush" not in str(caught.value)
