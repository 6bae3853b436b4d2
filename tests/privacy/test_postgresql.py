"""A takedown of a corpus whose vault, answers and journal are on PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import load
from pipelines.takedown import takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.selection import Criteria, select
from pipelines.workspace.clone import workspace
from tests.postgres import database
from tests.privacy import used_corpus as used

ROOT = Path(__file__).resolve().parents[2]
ABOUT = "SELECT count(*) FROM answers WHERE record_id = %s"


@pytest.mark.faults
def test_a_takedown_reaches_all_databases(postgres: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"takedown_{part}" for part in ("vault", "answers", "journal")]
    for name in names:
        monkeypatch.setenv(f"CORPUS_{name.rpartition('_')[2].upper()}_URL", database(postgres, name))
    settings = used.begin(tmp_path / "home")
    assert not list(settings.home.glob("*.sqlite"))
    with used.vault_of(settings) as vault:
        record_id = vault.record_id(used.fullname("posts", 0))
        assert rows("takedown_answers", ABOUT, record_id, home=postgres) > 0
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            asked = Criteria(posts=[used.fullname("posts", 0)])
            selection = select(asked, vault=vault, objects=objects, params=load(ROOT))
        given = {"settings": settings, "vault": vault, "now": used.NOW, "terms": Takedown(withdraw_share=0.01)}
        takedown.run(selection, reason="request-7", who="a person", **given)
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
