"""Backups of a used corpus: what they hold, what resumes, what is refused, and what a restored corpus lacks."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.operate.backup import backup, restore
from pipelines.operate.backup.pool import Pool
from pipelines.store.vault.vault import Vault
from pipelines.takedown import takedown
from pipelines.takedown.selection import Selection
from pipelines.workspace.git import git
from tests.commands import answered
from tests.privacy import used_corpus as used
from tests.privacy.place_search import counted
from tests.privacy.used_corpus import NOW, SECRET, fullname, word
from tests.refusals import refused


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_SECRET", SECRET)
    monkeypatch.delenv("CORPUS_VAULT_BACKUP", raising=False)
    found = used.copy_with_params(tmp_path / "home")
    (found.home / "releases").mkdir()
    (found.home / "releases" / "key").write_text("of a release")
    (found.home / "mlflow" / "1").mkdir(parents=True)
    (found.home / "mlflow" / "1" / "model.bin").write_bytes(b"weights")
    with closing(sqlite3.connect(found.home / "mlflow.sqlite")) as connection:
        connection.execute("CREATE TABLE runs (name TEXT)")
        connection.commit()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "backups"


def made(folder: Path, settings: Settings, *, days: int = 0, **more: object) -> dict[str, object]:
    return backup.run(folder, settings=settings, now=NOW + timedelta(days=days), **more)


def restored(folder: Path, home: Path, **more: object) -> Settings:
    settings = used.settings_of(home)
    given = {"name": None, "tombstones": [], "now": NOW + timedelta(days=2)} | more
    restore.run(folder, settings=settings, **given)
    return settings


def take_down(settings: Settings, *names: str) -> set[str]:
    with used.vault_of(settings) as vault:
        ids = {vault.record_id(name) for name in names}
        selection = Selection("0" * 32, frozenset(ids), {"records": len(ids)})
        given = {"settings": settings, "vault": vault, "terms": Takedown(withdraw_share=1), "now": NOW}
        takedown.Deletion(**given).run(selection, reason="request-7", who="a person")
    return ids


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_a_restored_corpus_has_the_data_of_the_original(settings: Settings, folder: Path, tmp_path: Path) -> None:
    told = made(folder, settings)
    assert told["databases"] == ["answers", "mlflow", "vault"] and told["copied"] == told["objects"] > 0
    new = restored(folder, tmp_path / "new")
    assert used.live(new) == used.live(settings)
    tips = [git("--git-dir", s.repo, "for-each-ref") for s in (settings, new)]
    assert tips[0] == tips[1]
    with used.vault_of(settings) as vault, used.vault_of(new) as other:
        ids = [vault.record_id(fullname("posts", n)) for n in range(4)]
        assert vault.keys(ids) == other.keys(ids) and len(vault.keys(ids)) == 4
    answers = "SELECT record_id FROM answers ORDER BY record_id"
    assert rows(settings.home / "answers.sqlite", answers) == rows(new.home / "answers.sqlite", answers)
    for name in ("releases/key", "mlflow/1/model.bin"):
        assert (new.home / name).read_bytes() == (settings.home / name).read_bytes()


def test_a_backup_has_neither_the_secret_nor_plain_content(settings: Settings, folder: Path, tmp_path: Path) -> None:
    (settings.home / "secret").write_text(SECRET)
    made(folder, settings)
    held = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert SECRET.encode() not in held and bytes.fromhex(SECRET) not in held
    assert word("posts", 0).encode() not in held and fullname("posts", 0).encode() not in held
    assert {path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")] if path.name != "lock"} == {0}
    with refused("BadArgument"):
        backup.write_secret(folder / "secret", folder=folder, settings=settings)
    backup.write_secret(tmp_path / "apart" / "secret", folder=folder, settings=settings)
    assert (tmp_path / "apart" / "secret").read_text() == SECRET


def test_the_next_backup_copies_what_is_new(settings: Settings, folder: Path) -> None:
    before = backup.sizes(folder, settings=settings)
    assert before["new"] == before["objects"] > 0 and before["vault"] > 0 and not folder.exists()
    first = made(folder, settings)
    assert backup.sizes(folder, settings=settings)["new"] == 0
    take_down(settings, fullname("posts", 0))
    assert 0 < made(folder, settings, days=1)["copied"] < first["copied"]


def test_an_interrupted_backup_resumes(settings: Settings, folder: Path, tmp_path: Path) -> None:
    def killed(part: str) -> None:
        if part == "vault":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(folder, settings, say=killed)
    assert Pool(folder, secret=bytes.fromhex(SECRET)).names() == []
    # as a process leaves it that is killed
    (left := folder / ".half-killed").mkdir()
    (left / "vault.sqlite").write_bytes(b"keys")
    next(folder.glob("pool/*/*")).with_name(".half.1").write_bytes(b"half")
    assert made(folder, settings)["copied"] == 0 and not left.exists()
    assert used.live(restored(folder, tmp_path / "new")) == used.live(settings)


def test_records_taken_down_after_the_backup_do_not_come_back(settings: Settings, folder: Path, tmp_path: Path) -> None:
    made(folder, settings)
    gone = take_down(settings, fullname("posts", 0), fullname("memes", 3))
    new = restored(folder, tmp_path / "new", tombstones=[settings.home / "takedowns" / "tombstones.json"])
    assert used.naming(new, gone) == []
    with used.vault_of(new) as vault:
        assert vault.tombstoned(gone) == gone and vault.keys(gone) == {}
    left = counted(new, *[i.encode() for i in gone], word("posts", 0).encode(), fullname("posts", 0).encode())
    # as after the takedown itself: lines that an early import left in git's history, and the tombstones
    assert {name for name, n in left.items() if n} == {"vault", "takedowns", "repository"}
    assert used.live(new) == used.live(settings)


def test_a_takedown_updates_the_tombstones_beside_the_backups(settings: Settings, folder: Path, tmp_path: Path) -> None:
    made(folder, settings)
    gone = take_down(settings.model_copy(update={"vault_backup": folder}), fullname("posts", 0))
    assert set(json.loads((folder / "tombstones.json").read_text())["records"]) == gone
    assert used.naming(restored(folder, tmp_path / "new"), gone) == []


@pytest.mark.parametrize("place", ["home", "cache", "remote", "repo", "vault"])
def test_a_restore_writes_to_no_place_in_use(place: str, settings: Settings, folder: Path, tmp_path: Path) -> None:
    made(folder, settings)
    new = used.settings_of(tmp_path / "new")
    taken = {"home": settings.home, "cache": settings.cache, "remote": settings.remote, "repo": settings.repo}
    update = {"vault_url": settings.vault_url} if place == "vault" else {place: taken[place]}
    before = sorted(path.stat().st_mtime_ns for path in settings.home.rglob("*"))
    with refused("NotEmpty"):
        restore.run(folder, name=None, settings=new.model_copy(update=update), tombstones=[], now=NOW)
    assert sorted(path.stat().st_mtime_ns for path in settings.home.rglob("*")) == before
    assert not new.home.exists()


def one_file(folder: Path, settings: Settings) -> Path:
    manifest = Pool(folder, secret=settings.secret()).read(None)
    return Pool(folder, secret=settings.secret()).path(next(iter(manifest.objects)))


@pytest.mark.parametrize("damage", ["missing", "altered", "shortened", "manifest", "other secret"])
def test_a_damaged_backup_is_refused_before_anything_is_written(
    damage: str, settings: Settings, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(folder, settings)
    path = one_file(folder, settings)
    if damage == "missing":
        path.unlink()
    elif damage in ("altered", "shortened"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "altered" else b""))
    elif damage == "manifest":
        [manifest] = [p for p in folder.glob("*.json") if p.name != "tombstones.json"]
        body = json.loads(manifest.read_text())
        body["objects"].popitem()
        manifest.write_text(json.dumps(body))
    else:
        monkeypatch.setenv("CORPUS_SECRET", "77" * 64)
    with refused("BackupDamaged"):
        restored(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_verify_removes_a_damaged_file_that_is_copied_again(settings: Settings, folder: Path, tmp_path: Path) -> None:
    made(folder, settings)
    one_file(folder, settings).write_bytes(b"rot")
    assert made(folder, settings, days=1)["copied"] == 0
    told = made(folder, settings, days=2, verify=True)
    assert (told["damaged"], told["copied"]) == (1, 1)
    assert used.live(restored(folder, tmp_path / "new")) == used.live(settings)


def test_an_interrupted_restore_has_no_vault(settings: Settings, folder: Path, tmp_path: Path) -> None:
    made(folder, settings)

    def killed(part: str) -> None:
        if part == "answers":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restored(folder, tmp_path / "new", say=killed)
    with refused("NoVault"):
        Vault.existing(used.settings_of(tmp_path / "new"))


def test_old_backups_are_deleted_with_the_keys_that_only_they_have(settings: Settings, folder: Path) -> None:
    for day in (0, 10):
        made(folder, settings, days=day)
    pool = Pool(folder, secret=settings.secret())
    first = pool.read(pool.names()[0])
    take_down(settings, fullname("posts", 0))
    assert made(folder, settings, days=20, keep_days=15)["pruned"] == 1 and len(pool.names()) == 2
    assert made(folder, settings, days=40, keep_days=15)["pruned"] == 2
    [last] = pool.names()
    assert set(pool.held()) == set(pool.read(last).sizes)
    assert not pool.path(first.files["vault.sqlite"][1]).exists()


def test_two_backups_do_not_write_to_one_folder_at_once(settings: Settings, folder: Path) -> None:
    def second(part: str) -> None:
        if part == "objects":
            with refused("BackupRunning"):
                made(folder, settings)
            raise SystemExit

    with pytest.raises(SystemExit):
        made(folder, settings, say=second)


def test_a_takedown_during_a_backup_leaves_a_whole_one(settings: Settings, folder: Path, tmp_path: Path) -> None:
    done: list[set[str]] = []

    def overtake(part: str) -> None:
        if part == "objects" and not done:
            done.append(take_down(settings, fullname("posts", 0)))

    made(folder, settings, say=overtake)
    new = restored(folder, tmp_path / "new")
    assert used.live(new) == used.live(settings) and used.naming(new, done[0]) == []


def test_the_copy_of_a_database_is_consistent_while_it_is_written(settings: Settings, folder: Path) -> None:
    with closing(sqlite3.connect(settings.home / "mlflow.sqlite")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO runs VALUES ('committed')")
        writer.commit()
        writer.execute("INSERT INTO runs VALUES ('open')")
        made(folder, settings)
        writer.rollback()
    pool = Pool(folder, secret=settings.secret())
    copy = shutil.copy(pool.path(pool.read(None).files["mlflow.sqlite"][1]), folder / "copy.sqlite")
    assert rows(Path(copy), "SELECT name FROM runs") == [("committed",)]


def test_the_commands_restore(
    settings: Settings, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(settings.home))
    monkeypatch.setenv("CORPUS_VAULT_BACKUP", str(folder))
    secret = tmp_path / "secret"

    assert answered("backup", "--dry-run")["vault"] and not folder.exists()
    name = answered("backup", "--secret-to", str(secret), "--keep-days", "7")["backup"]
    gone = take_down(settings, fullname("posts", 0))
    monkeypatch.setenv("CORPUS_SECRET", secret.read_text())
    listed = str(settings.home / "takedowns" / "tombstones.json")
    places = ("--from", str(folder), "--to", str(tmp_path / "new"))
    told = answered("restore", *places, "--at", str(name), "--tombstones", listed)
    assert told["replayed"] == len(gone) and used.naming(used.settings_of(tmp_path / "new"), gone) == []


def test_no_backup_is_found_in_another_folder(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refused("BadArgument"):
        restored(tmp_path / "empty", tmp_path / "new")
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_dag_backs_up_to_the_folder_of_the_variable_and_skips_without_it(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from dvc_airflow import settings as of_airflow
    from dvc_airflow import tasks

    monkeypatch.setattr(of_airflow, "HOME", settings.home)
    monkeypatch.setattr(of_airflow, "BACKUP", "")
    with pytest.raises(AirflowSkipException):
        tasks.backup().operator.python_callable()
    monkeypatch.setattr(of_airflow, "BACKUP", str(folder))
    monkeypatch.setenv("CORPUS_VAULT_BACKUP", str(folder))
    told = tasks.backup().operator.python_callable()
    assert [path.stem for path in folder.glob("*Z.json")] == [told["backup"]] and told["objects"] > 0
    # the result is stored in Airflow's database
    names = {key for key, value in told.items() if not isinstance(value, int)}
    assert names == {"backup", "commit", "databases"} and str(folder) not in json.dumps(told)
