"""Restore a backup to empty places, and delete again what was deleted after it was made.

Nothing is written before the backup is verified and every target is known to be empty. The vault comes last and gets
its name only when the tombstones are replayed in it, so that an interrupted restore cannot be read. Then every record
with a tombstone is removed from the restored tables as by the daily sweep.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.process import private_home, silent
from pipelines.operate.backup import backup
from pipelines.operate.backup.backup import AIRFLOW, BUNDLE, MLFLOW_FILES, VAULT
from pipelines.operate.backup.pool import BackupManifest, Pool
from pipelines.operate.services import mlflow_app
from pipelines.store.vault.engine import database_file
from pipelines.store.vault.vault import Tombstone, Vault
from pipelines.takedown import takedown
from pipelines.takedown.receipts import TOMBSTONES, read_tombstones
from pipelines.takedown.takedown import Say
from pipelines.workspace import dag_graph
from pipelines.workspace.clone import BRANCH, workspace
from pipelines.workspace.git import branches, git, local_path, shown
from pipelines.workspace.objects import TREE

# What may be in the new home: the secret is never in a backup.
SECRET_FILE = "secret"  # noqa: S105


def run(
    folder: Path, *, name: str | None, settings: Settings, tombstones: Collection[Path], now: datetime,
    say: Say = silent,
) -> dict[str, Any]:  # fmt: skip
    """Restore a backup (``None``: the newest) to the places of ``settings``, and return counts.

    ``tombstones`` are further files of tombstones besides the one in the folder of the backups.
    """
    pool = Pool(folder, secret=settings.secret())
    manifest = pool.read(name)
    deleted: dict[str, Tombstone] = {}
    for file in (*tombstones, *folder.glob(TOMBSTONES)):
        deleted |= read_tombstones(file)
    addresses = backup.addresses(settings).items()
    urls = {database: url for database, url in addresses if database in manifest.databases and database != AIRFLOW}
    _require_empty(settings, urls=urls)
    pool.require(manifest)
    say("verified")
    private_home(settings.home)
    with tempfile.TemporaryDirectory(dir=settings.home) as scratch:
        mirror = Path(scratch) / "corpus.git"
        git("clone", "--quiet", "--mirror", str(pool.path(manifest.files[BUNDLE][1])), str(mirror))
        _restore_objects(pool, manifest, settings=settings, mirror=mirror, scratch=Path(scratch))
        say("objects")
        if path := local_path(settings.repo):
            git("init", "--quiet", "--bare", "-b", BRANCH, str(path))
            git("--git-dir", str(path), "config", "receive.denyNonFastForwards", "true")
        git("--git-dir", str(mirror), "push", "--quiet", "--mirror", settings.repo)
        say("repository")
        _restore_files(pool, manifest, settings=settings)
        say("files")
        for database, url in urls.items():
            if database != VAULT:
                _load(database, url, pool=pool, manifest=manifest)
                say(database)
    replayed = _restore_vault(urls[VAULT], pool=pool, manifest=manifest, secret=settings.secret(), deleted=deleted)
    say(VAULT)
    with Vault.existing(settings) as vault, workspace(settings) as clone:
        terms = load(clone.path, parts=False).takedown
        done = takedown.Deletion(settings=settings, vault=vault, terms=terms, now=now).revisit()
    dag_graph.follow(settings)
    summary = {"backup": manifest.made, "commit": manifest.commit, "objects": len(manifest.objects)}
    return summary | {"databases": sorted(urls), "replayed": replayed, "takedowns": [r.request for r in done]}


def _require_empty(settings: Settings, *, urls: Mapping[str, str]) -> None:
    places = {str(path): path for path in (settings.home, settings.cache)}
    places |= {settings.remote: Path(settings.remote)} if "://" not in settings.remote else {}
    for shown_as, path in places.items():
        if path.exists() and {entry.name for entry in path.iterdir()} - {SECRET_FILE}:
            raise ConfigError("NotEmpty", place=shown_as)
    if branches(settings.repo):
        raise ConfigError("NotEmpty", place=shown(settings.repo))
    for name, url in urls.items():
        if backup.exists(url):
            raise ConfigError("NotEmpty", place=f"the database {name}")


def _restore_objects(pool: Pool, manifest: BackupManifest, *, settings: Settings, mirror: Path, scratch: Path) -> None:
    """Copy the objects of a backup to the DVC remote, the lists of folders last."""
    from dvc_objects.fs.local import localfs

    if "://" not in settings.remote:
        Path(settings.remote).mkdir(parents=True, exist_ok=True)
    place = settings.model_copy(update={"repo": str(mirror), "home": scratch / "home", "cache": scratch / "cache"})
    with workspace(place) as clone:
        remote = clone.objects.remote
        with suppress(FileNotFoundError):
            if next(iter(remote.all()), None) is not None:
                raise ConfigError("NotEmpty", place=settings.remote)
        for lists in (False, True):
            group = [digest for digest in manifest.objects if digest.endswith(TREE) is lists]
            remote.add([str(pool.path(digest)) for digest in group], localfs, group, check_exists=False)
        if lost := len(manifest.objects.keys() - set(remote.all())):
            raise DataError("BackupDamaged", detail=f"{lost} objects were not stored on the DVC remote")


def _restore_files(pool: Pool, manifest: BackupManifest, *, settings: Settings) -> None:
    for name, (_, digest) in manifest.files.items():
        # that of Airflow is for a new one, before its first start
        if name == BUNDLE or name in {file for of, file in manifest.databases.items() if of != AIRFLOW}:
            continue
        top, _, rest = name.partition("/")
        path = mlflow_app.artifacts(settings.home) / rest if top == MLFLOW_FILES else settings.home.joinpath(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pool.path(digest), path)


def _load(name: str, url: str, *, pool: Pool, manifest: BackupManifest) -> None:
    file = manifest.databases[name]
    backup.load(name, pool.path(manifest.files[file][1]), url, file_name=file)


def _restore_vault(
    url: str, *, pool: Pool, manifest: BackupManifest, secret: bytes, deleted: Mapping[str, Tombstone]
) -> int:
    """Restore the vault, and destroy the keys of the records that were deleted since; return their number."""
    file = database_file(url)
    half = file.with_name(f"{file.name}.restoring") if file else None
    address = f"sqlite:///{half}" if half else url
    _load(VAULT, address, pool=pool, manifest=manifest)
    with Vault.open(address, secret=secret, create=False) as vault:
        replayed = vault.replay(deleted)
    if half and file:
        half.replace(file)
    return replayed
