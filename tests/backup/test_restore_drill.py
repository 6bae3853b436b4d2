"""Everything is lost but the backups: a restored corpus goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.operate.backup import backup
from pipelines.store import tables
from pipelines.workspace.clone import workspace
from tests import stress
from tests.commands import process
from tests.postgres import database, postgres
from tests.privacy import used_corpus as used
from tests.refusals import refused

__all__ = ["postgres"]
STAGES = ("dedupe", "sample", "gold", "split", "quality")
FIRST, SECOND = stress.MONTHS


@pytest.fixture
def environment() -> Iterator[None]:
    """Give the variables back that a world sets."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def run(world: stress.World, months: Sequence[str], *, dataset: bool = True) -> None:
    """Collect months of posts, and make the dataset of all months so far."""
    tasks = [task for month in months for task in stress._month("posts", month, items="texts")]
    if dataset:
        stages, after = [f"{stage}@posts" for stage in STAGES], [f"posts {month} publish" for month in months]
        tasks += world.snapshot("posts", "dataset", stages, after=after)
    stress.Scheduler(tasks, chaos=stress.Chaos(None), hopeless=world.hopeless).run()


def corpus(world: stress.World, *argv: str) -> dict[str, object]:
    done = process(*argv, cwd=world.checkout, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def begin(home: Path, vault: Path | None, **given: object) -> stress.World:
    from pipelines.workspace import repository

    world = stress.World(home, **given)
    home.mkdir()
    if vault:
        shutil.copy(vault, home / "vault.sqlite")
    repository.init(Settings.from_env(), checkout=world.checkout, profile="sandbox")
    return world


def a_record(settings: Settings) -> str:
    with workspace(settings) as clone:
        clone.checkout_months("posts", "records.parquet")
        rows = tables.read(clone.path / "data" / "posts" / FIRST / "records.parquet", name="records")
        return str(rows["record_id"][0].as_py())


@pytest.mark.faults  # three graphs
def test_a_restored_corpus_backfills_to_the_data_of_one_that_was_never_lost(tmp_path: Path, environment: None) -> None:
    with stress._machinery(stress._code()) as (checkout, sandbox, port):
        given = {"checkout": checkout, "sandbox": sandbox, "port": port}
        # keys are random: sealed tables are equal only if both corpora have them from the same vault
        run(begin(tmp_path / "keys", None, **given), stress.MONTHS, dataset=False)
        keys = tmp_path / "vault.sqlite"
        backup.dump("vault", Settings.from_env().vault_url, tmp_path)

        never_lost = begin(tmp_path / "never-lost", keys, **given)
        run(never_lost, [FIRST])
        record = a_record(Settings.from_env())
        request = ("takedown", "--post", record, "--reason", "request-7", "--yes")
        corpus(never_lost, *request)
        run(never_lost, [SECOND])
        wanted = stress.digests()

        lost = begin(tmp_path / "lost", keys, **given)
        run(lost, [FIRST])
        corpus(lost, "backup", "--to", str(tmp_path / "backups"))
        corpus(lost, *request)
        shutil.copy(lost.home / "takedowns" / "tombstones.json", tmp_path)
        shutil.rmtree(lost.home)

        restored = stress.World(tmp_path / "restored", **given)
        more = ("--tombstones", str(tmp_path / "tombstones.json"))
        told = corpus(restored, "restore", "--from", str(tmp_path / "backups"), "--to", str(restored.home), *more)
        assert told["replayed"] == 1 and len(told["takedowns"]) == 1
        run(restored, [SECOND])
        assert stress.digests() == wanted
        assert used.naming(Settings.from_env(), {record}) == []


@pytest.mark.faults  # PostgreSQL
def test_a_database_in_postgresql_is_dumped_and_restored(postgres: Path, tmp_path: Path) -> None:
    from pipelines.store.vault.vault import Vault

    url, new = database(postgres, "vault_old"), database(postgres, "vault_new")
    with Vault.open(url, secret=bytes(range(64))) as vault:
        ids = [vault.record_id(str(n)) for n in range(3)]
        vault.admit([(i, "t3_x") for i in ids], corpus="memes", month="2022-12", now=used.NOW)
        keys = vault.keys(ids)
    assert backup.exists(url) and not backup.exists(new)
    copy = backup.dump("vault", url, tmp_path)
    assert copy.name == "vault.dump"
    with refused("AnotherDatabase"):
        backup.load("vault", copy, f"sqlite:///{tmp_path}/vault.sqlite", file_name=copy.name)
    backup.load("vault", copy, new, file_name=copy.name)
    with Vault.open(new, secret=bytes(range(64)), create=False) as vault:
        assert vault.keys(ids) == keys
    with refused("DatabaseNotCopied"):
        backup.load("vault", copy, new, file_name=copy.name)
