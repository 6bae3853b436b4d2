"""A takedown of a corpus whose vault, answers and journal are on PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from tests.postgres import database
from tests.privacy import used_corpus as used

ABOUT = "SELECT count(*) FROM answers WHERE record_id = %s"


@pytest.mark.faults
def test_a_takedown_reaches_all_databases(postgres: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"takedown_{part}" for part in ("vault", "answers", "journal")]
    for name in names:
        monkeypatch.setenv(f"CORPUS_{name.rpartition('_')[2].upper()}_URL", database(postgres, name))
    settings = used.begin(tmp_path / "home")
    assert not list(settings.home.glob("*.sqlite"))
    with used.opened(settings) as house:
        vault, who = house.vault, {"posts": (0,)}
        [record_id] = house.ids(who)
        assert rows("takedown_answers", ABOUT, record_id, home=postgres) > 0
        house.take_down(house.posts(who))
        assert vault.tombstoned([record_id]) == {record_id} and not vault.keys([record_id])
    assert rows("takedown_answers", ABOUT, record_id, home=postgres) == 0
    assert rows("takedown_answers", "SELECT count(*) FROM answers", home=postgres) > 0
    with closing(psycopg2.connect(host=str(postgres), user="postgres", dbname="takedown_answers")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")
            cursor.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
            [(oid,)] = cursor.fetchall()
    files = [path for path in (postgres / "data" / "base" / str(oid)).rglob("*") if path.is_file()]
    assert not any(record_id.encode() in path.read_bytes() for path in files)


def rows(name: str, query: str, *given: str, home: Path) -> int:
    """Return the number that a query asks for."""
    with (
        closing(psycopg2.connect(host=str(home), user="postgres", dbname=name)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(query, given)
        [(found,)] = cursor.fetchall()
    return int(found)
