"""Write a consistent backup of everything that a corpus cannot make again, without the project secret.

What refers to something is copied before it: git before the objects that its commits name, MLflow's database before the
files that it names, and last the vault, which has the keys of everything. If the corpus branch has moved meanwhile, git
and objects are copied again, because a takedown removes objects that an earlier commit names. Databases are copied
consistently while they are in use: SQLite by its backup interface, PostgreSQL by ``pg_dump``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crisis_corpus.journal import KEY_FILE
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.core.process import silent, write_private
from pipelines.operate.backup.pool import BackupManifest, Pool, each
from pipelines.operate.services import mlflow_app, postgres
from pipelines.store.vault.engine import database_file
from pipelines.store.vault.vault import Vault
from pipelines.takedown.receipts import FOLDER, TOMBSTONES, tombstone_text
from pipelines.takedown.takedown import Say
from pipelines.workspace.clone import BRANCH, Workspace, workspace
from pipelines.workspace.git import branches, git

AIRFLOW, MLFLOW, VAULT = "airflow", "mlflow", "vault"
DUMP = ".dump"


def addresses(settings: Settings) -> dict[str, str]:
    """Return the address of each database of the project, of MLflow and of Airflow, if it is known here."""
    urls = {
        "answers": settings.answers_url,
        "refresh": settings.refresh_url,
        "journal": settings.journal_url,
        MLFLOW: mlflow_app.store(settings.home),
        AIRFLOW: postgres.airflow_url() or "",
        # last: it then has the key of everything that was copied before
        VAULT: settings.vault_url,
    }
    return {name: url for name, url in urls.items() if url}


def exists(url: str) -> bool:
    """Return whether a database has a file, or has any table."""
    if file := database_file(url):
        return file.exists()
    try:
        with sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool).connect() as connection:
            return bool(sa.inspect(connection).get_table_names())
    except sa.exc.SQLAlchemyError as error:
        raise DataError("DatabaseNotCopied", name=sa.make_url(url).database, detail=type(error).__name__) from None


def size(url: str) -> int:
    """Return the size of an SQLite file in bytes; 0 for PostgreSQL, whose dump is compressed."""
    file = database_file(url)
    return file.stat().st_size if file else 0


def dump(name: str, url: str, folder: Path) -> Path:
    """Write a consistent copy of a database to a folder; return its path, ``<name>.sqlite`` or ``<name>.dump``."""
    if file := database_file(url):
        made = folder / f"{name}.sqlite"
        _copy(file, made, name=name)
        return made
    made = folder / f"{name}{DUMP}"
    _run(["pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={made}"], url, name=name)
    return made


def load(name: str, path: Path, url: str, *, file_name: str) -> None:
    """Write the copy of a database, which had ``file_name``, to the empty database at an address."""
    file = database_file(url)
    if (file is None) != file_name.endswith(DUMP):
        raise ConfigError("AnotherDatabase", name=name)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        _copy(path, file, name=name)
        return
    database = sa.make_url(url).database
    _run(["pg_restore", "--no-owner", "--exit-on-error", f"--dbname={database}", str(path)], url, name=name)


def _copy(path: Path, to: Path, *, name: str) -> None:
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT, 0o600))
    try:
        # read-only, so that a wrong path creates no database
        source = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        with closing(source), closing(sqlite3.connect(to)) as target:
            source.backup(target)
            # a copy in write-ahead mode could not be read from a folder that is read-only
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise DataError("DatabaseNotCopied", name=name, detail=type(error).__name__) from None


def _run(command: list[str], url: str, *, name: str) -> None:
    """Run a program of PostgreSQL; the password is not in its arguments, which other users see."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise BadParams(where=name, detail="is neither sqlite nor postgresql")
    options = {**parsed.translate_connect_args(username="user"), **parsed.query}
    variables = {f"PG{key.upper()}": str(value) for key, value in options.items() if value is not None}
    program = shutil.which(command[0]) or command[0]
    with suppress(FileNotFoundError):
        # pg_dump refuses a server that is newer than itself
        program = postgres.program(command[0])
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    try:
        done = subprocess.run([program, *command[1:]], env=os.environ | variables, check=False, **streams)
        failed = f"ended with exit status {done.returncode}" if done.returncode else ""
    except OSError as error:
        failed = f"cannot be run ({type(error).__name__})"
    if failed:
        raise DataError("DatabaseNotCopied", name=name, detail=f"{command[0]} {failed}")


BUNDLE = "corpus.bundle"
MLFLOW_FILES = "mlflow"
# Prefix of the folder for copies of databases before they are in the pool.
HALF = ".half-"
# Ours: attempts when commits come faster than the new objects are copied.
ATTEMPTS = 5


def run(
    folder: Path, *, settings: Settings, now: datetime, keep_days: int | None = None, verify: bool = False,
    say: Say = silent,
) -> dict[str, Any]:  # fmt: skip
    """Write a backup to a folder, and return its name and counts; an interrupted one resumes.

    ``verify`` first compares every file of earlier backups with its digest, and removes the damaged ones;
    ``keep_days`` then deletes older backups, and the files that only they need.
    """
    pool = Pool(folder, secret=settings.secret())
    files: dict[str, tuple[int, str]] = {}
    databases: dict[str, str] = {}
    with _alone(folder), tempfile.TemporaryDirectory(prefix=HALF, dir=folder) as half:
        counts = Counter(damaged=pool.verify() if verify else 0)
        commit, objects = _corpus(pool, Path(half), files=files, counts=counts, settings=settings, say=say)
        for name, url in _databases(settings).items():
            if name == VAULT:
                for file, path in _files(settings).items():
                    # a file that is removed or replaced meanwhile belongs to the next backup
                    with suppress(FileNotFoundError):
                        files[file] = pool.put(path)
                say("files")
            made = dump(name, url, Path(half))
            databases[name], files[made.name] = made.name, pool.put(made)
            made.unlink()
            say(name)
        with Vault.existing(settings) as vault:
            write_private(folder / TOMBSTONES, tombstone_text(vault))
        manifest = BackupManifest(now.isoformat(timespec="seconds"), commit, databases, files, objects)
        name = pool.write(manifest)
        pruned = 0 if keep_days is None else pool.prune(days=keep_days, now=now)
    summary = {"backup": name, "commit": commit, "databases": sorted(databases), "bytes": sum(manifest.sizes.values())}
    return summary | {"files": len(files), "objects": len(objects), "pruned": pruned, **counts}


def sizes(folder: Path, *, settings: Settings) -> dict[str, int]:
    """Return the bytes of each part that a backup would hold, and of ``new`` objects; write nothing."""
    pool = Pool(folder, secret=settings.secret())
    with workspace(settings) as clone:
        remote = clone.objects.remote
        held = list(remote.all())
        with each(lambda digest: int(remote.fs.size(remote.oid_to_path(digest))), held) as object_sizes:
            objects = dict(zip(held, object_sizes, strict=True))
    return {
        "objects": sum(objects.values()),
        "new": sum(size for digest, size in objects.items() if not pool.path(digest).exists()),
        "files": sum(path.stat().st_size for path in _files(settings).values()),
        **{name: size(url) for name, url in _databases(settings).items()},
    }


def write_secret(path: Path, *, folder: Path, settings: Settings) -> None:
    """Write the project secret to a file of mode 600, apart from the backups."""
    if path.resolve().is_relative_to(folder.resolve()):
        detail = "is in the folder of the backups, which must not open them"
        raise BadParams("BadArgument", where="--secret-to", detail=detail)
    text = settings.secret().hex()
    if path.exists() and path.read_text().strip() != text:
        raise BadParams("BadArgument", where="--secret-to", detail="exists, and does not have the present secret")
    write_private(path, text)


def _corpus(
    pool: Pool, half: Path, *, files: dict[str, tuple[int, str]], counts: Counter[str], settings: Settings, say: Say
) -> tuple[str, dict[str, int]]:
    for _ in range(ATTEMPTS):
        with workspace(settings) as clone:
            commit, bundle = clone.head, half / BUNDLE
            with tempfile.TemporaryDirectory(dir=half) as mirror:
                git("clone", "--quiet", "--mirror", settings.repo, mirror)
                git("--git-dir", mirror, "bundle", "create", "--quiet", str(bundle), "--all")
            objects = _objects(pool, clone, counts=counts)
            say("objects")
            if (branches(settings.repo) or {}).get(BRANCH) == commit:
                files[BUNDLE] = pool.put(bundle)
                return commit, objects
    raise DataError("BackupOvertaken", attempts=ATTEMPTS)


def _objects(pool: Pool, clone: Workspace, *, counts: Counter[str]) -> dict[str, int]:
    """Copy the objects of the DVC remote that the pool lacks; return the sizes of all."""
    remote = clone.objects.remote

    def copy(digest: str) -> tuple[str, bool | None]:
        try:
            place = remote.oid_to_path(digest)
            return digest, pool.add(digest, lambda half: remote.fs.get_file(place, str(half)))
        except FileNotFoundError:
            # removed by a takedown since it was listed
            return digest, None

    # DVC also lists half-written files
    with each(copy, [digest for digest in remote.all() if len(digest.removesuffix(".dir")) == 32]) as done:
        copied = {digest: fresh for digest, fresh in done if fresh is not None}
    counts["copied"] += sum(map(bool, copied.values()))
    return {digest: pool.path(digest).stat().st_size for digest in sorted(copied)}


def _databases(settings: Settings) -> dict[str, str]:
    return {name: url for name, url in addresses(settings).items() if exists(url)}


def _files(settings: Settings) -> dict[str, Path]:
    """Return the files of the home that belong to a backup, by their path in it."""
    home = settings.home
    exported = [*(home / "releases").rglob("*"), *(home / "answer_bundles").rglob("*")]
    paths = [home / KEY_FILE, *exported, *(home / FOLDER).glob("*.json")]
    named = {path.relative_to(home).as_posix(): path for path in paths}
    root = mlflow_app.artifacts(settings.home)
    named |= {f"{MLFLOW_FILES}/{path.relative_to(root).as_posix()}": path for path in root.rglob("*")}
    # tombstones are kept once, in the newest state: an old list would say less
    left_out = (f"{FOLDER}/{TOMBSTONES}", "releases/.lock")
    return {name: path for name, path in sorted(named.items()) if path.is_file() and name not in left_out}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError("BackupRunning", folder=folder) from None
        for left in folder.glob(f"{HALF}*"):
            shutil.rmtree(left)
        yield
