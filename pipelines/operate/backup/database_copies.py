"""Copy databases consistently while they are in use: SQLite by its backup interface, PostgreSQL by ``pg_dump``."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.operate.services import mlflow_app, postgres
from pipelines.store.vault.engine import database_file

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
