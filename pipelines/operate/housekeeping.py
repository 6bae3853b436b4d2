"""Remove what grows without a limit beside the corpus: logs, rows of Airflow, runs and traces of MLflow.

Nothing of a corpus and no evidence is touched: vault, tombstones, receipts of takedowns, journal, releases, results,
answers, and the runs to which these refer. A removal that was interrupted is continued by repeating it.

Rows of Airflow's database (runs, XCom, events) are removed with Airflow's own ``airflow db clean``. It takes any old
row, also of a run that has not ended, such as an open round of annotation, whose later tasks read its XCom. Therefore
nothing is removed that is younger than the oldest unfinished run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pipelines.core.components import running
from pipelines.core.config.operate import Housekeeping
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.core.process import silent
from pipelines.operate import mlflow_runs
from pipelines.operate.services import postgres
from pipelines.operate.services.airflow_api import prefix
from pipelines.operate.services.postgres import OPTION
from pipelines.registry.versions import Registry
from pipelines.takedown.takedown import Say
from pipelines.workspace.clone import workspace

FOLDER, HOME = "AIRFLOW__LOGGING__BASE_LOG_FOLDER", "AIRFLOW_HOME"
MB = 1_000_000


@dataclass(frozen=True)
class OldLogs:
    """The files of logs that are to be removed, and those that are to be cut, with the bytes to keep of each.

    Folders below ``below`` that are empty then are removed, too.
    """

    files: tuple[Path, ...]
    large: tuple[Path, ...] = ()
    keep: int = 0
    below: Path | None = None

    def counts(self) -> dict[str, int]:
        """Return how many files are removed and cut, and the bytes that this sets free."""
        size = sum(map(_size, self.files)) + sum(max(_size(path) - self.keep, 0) for path in self.large)
        return {"files": len(self.files), "cut": len(self.large), "bytes": size}

    def remove(self) -> dict[str, int]:
        """Remove and cut the files; return how many, and the bytes."""
        counts = self.counts()
        for path in self.files:
            path.unlink(missing_ok=True)
        for path in self.large:
            _cut(path, keep=self.keep)
        if self.below is not None:
            _remove_empty({path.parent for path in self.files}, below=self.below)
        return counts


def of_components(home: Path, *, before: datetime, most_mb: int) -> OldLogs:
    """Return the old logs of components that do not run, and the logs that are larger than ``most_mb``."""
    logs, most = list(_files(home / "logs")), most_mb * MB
    old = [log for log in _old(logs, before=before) if running(home / "run" / f"{log.stem}.pid") is None]
    return OldLogs(tuple(old), tuple(log for log in logs if log not in old and _size(log) > most), most // 2)


def _files(folder: Path) -> Iterator[Path]:
    # a link may lead out of the folder
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _old(files: Iterable[Path], *, before: datetime) -> Iterator[Path]:
    return (path for path in files if path.stat().st_mtime < before.timestamp())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cut(path: Path, *, keep: int) -> None:
    """Keep the last bytes of a log, from the start of a line; lines that are written in this moment may be lost."""
    with path.open("r+b") as file:
        file.seek(-keep, os.SEEK_END)
        tail = file.read().partition(b"\n")[2]
        # in place, because its writers hold it open, and append
        file.seek(0)
        file.truncate()
        file.write(tail)


def _remove_empty(folders: Iterable[Path], *, below: Path) -> None:
    """Remove the folders of removed files, and those above them, that have nothing more."""
    for path in sorted(folders, reverse=True):
        with suppress(OSError):
            for folder in (path, *path.parents):
                if folder == below:
                    break
                folder.rmdir()


NO_DATABASE = f"the address of Airflow's database is not known here; set {postgres.AIRFLOW_URL}"
NO_LOGS = f"the logs of Airflow's tasks are not on this host; set {FOLDER}"
NO_MLFLOW = "MLFLOW_TRACKING_URI is not set"
NO_STORE = "MLflow's database is elsewhere: run `mlflow gc` there"


@dataclass(frozen=True)
class DuePart:
    """One kind of things to remove: counts and bytes, or why it was not examined (``skipped``), and how."""

    found: dict[str, Any]
    count: int = 0
    remove: Callable[[], dict[str, Any]] = dict


def due(settings: Settings, *, now: datetime, airflow: str | None = None) -> dict[str, DuePart]:
    """Return by name what is to be removed; nothing is changed.

    ``airflow``: the interpreter that has Airflow, if it is another one than this.
    """
    with workspace(settings) as clone:
        params = load(clone.path, parts=False)
    limits = params.housekeeping
    before, home = now - timedelta(days=limits.logs_days), os.environ.get(HOME)
    logs = os.environ.get(FOLDER) or (f"{home}/logs" if home else "")
    tasks = DuePart({"skipped": NO_LOGS})
    if logs and (place := Path(logs)).is_dir():
        tasks = _logs(OldLogs(tuple(_old(_files(place), before=before)), below=place))
    return {
        "task_logs": tasks,
        "component_logs": _logs(of_components(settings.home, before=before, most_mb=limits.log_mb)),
        "airflow": _airflow(limits, now=now, python=airflow),
        "mlflow": _mlflow(settings, params=params, now=now),
    }


def run(parts: dict[str, DuePart], *, say: Say = silent) -> dict[str, Any]:
    """Remove what :func:`due` found; return counts and bytes by name, or why a part was skipped.

    ``say`` is called with the name of each part that is done.
    """
    done = {}
    for name, part in parts.items():
        done[name] = part.remove() if part.count else part.found
        say(name)
    return done


def _logs(logs: OldLogs) -> DuePart:
    return DuePart(logs.counts(), len(logs.files) + len(logs.large), logs.remove)


def _airflow(limits: Housekeeping, *, now: datetime, python: str | None) -> DuePart:
    url = postgres.airflow_url()
    if url is None:
        return DuePart({"skipped": NO_DATABASE})
    old = old_rows(url, before=now - timedelta(days=limits.airflow_days), python=python)
    summary = {"before": old.before.isoformat(timespec="seconds"), "unfinished_runs": old.open}
    rows = sum(old.tables.values())

    def remove() -> dict[str, Any]:
        tables = remove_rows(old, url=url)
        return summary | {"rows": sum(tables.values()), "tables": tables}

    return DuePart(summary | {"rows": rows, "tables": dict(old.tables)}, rows, remove)


def _mlflow(settings: Settings, *, params: Params, now: datetime) -> DuePart:
    if not settings.mlflow_tracking_uri:
        return DuePart({"skipped": NO_MLFLOW})
    registry = Registry.open(settings)
    old = mlflow_runs.due(settings, registry=registry, params=params, now=now)
    counts, missing = old.counts(), {"not_collected": NO_STORE} if old.collect is None else {}
    more = {"kept_on_record": old.kept, **missing}
    count = counts["deleted"] + counts["collected"] + counts["traces"]
    return DuePart(counts | more, count, lambda: mlflow_runs.remove(old, settings=settings, registry=registry) | more)


# States of a run that has not ended.
OPEN = ("queued", "running")
# Rows of one transaction, so that a large first cleaning locks nothing for long; ours.
BATCH = 10_000
# In an Airflow with other projects, the tables whose rows name their Dag: of the others, Airflow would take the rows of
# all projects.
OF_DAGS = ("dag_run", "job", "log", "task_instance", "task_instance_history", "xcom")
# Airflow 3.3 takes this one with `dag_run`, but fails if Dags are named: its rows have no name of a Dag. They go with
# their run, by their foreign key.
WITH_RUNS = {"deadline"}
COUNTED = re.compile(r"^Checking table (\w+)\n+Found (\d+) rows", re.MULTILINE)
FAILED = re.compile(r"Encountered error when attempting to clean table '(\w+)'")
# What Airflow sets in the process of a task: the command is none.
OF_TASKS = ("_AIRFLOW_PROCESS_CONTEXT", "AIRFLOW__CORE__SQL_ALCHEMY_CONN")


@dataclass(frozen=True)
class OldRows:
    """The rows of Airflow's database that are to be removed.

    ``open``: the number of runs that have not ended; ``dags``: those whose rows are removed (``None``: all, because
    Airflow has no other projects); ``python`` has Airflow (``None``: this interpreter, or that of ``airflow``).
    """

    before: datetime
    open: int
    dags: tuple[str, ...] | None
    tables: Mapping[str, int]
    python: str | None = None


def old_rows(url: str, *, before: datetime, python: str | None = None) -> OldRows:
    """Return the rows that are older than ``before`` and than every unfinished run; nothing is changed.

    With ``CORPUS_AIRFLOW_PREFIX``, an Airflow with other projects too, only the rows of Dags with the prefix count.
    """
    oldest, unfinished, dags = _read(url)
    # SQLite compares times as texts, by which a row of this very moment would be older
    at = min(before, oldest - timedelta(seconds=1)) if oldest else before
    rows = OldRows(at, unfinished, dags, {}, python)
    return rows if dags == () else replace(rows, tables=_clean("--dry-run", url=url, found=rows))


def remove_rows(rows: OldRows, *, url: str) -> dict[str, int]:
    """Remove the rows that :func:`old_rows` found; return the number of removed rows by table.

    Rows that refer to a removed row go with it, so that a later table may have fewer rows than were counted.
    """
    if not rows.tables:
        return {}
    # without --skip-archive, the rows stay in the database in other tables
    argv = ("--skip-archive", "--yes", "--batch-size", str(BATCH))
    return _clean(*argv, url=url, found=rows)


def _read(url: str) -> tuple[datetime | None, int, tuple[str, ...] | None]:
    """Return the time of the oldest unfinished run, the number of unfinished runs, and the Dags with the prefix."""
    times = [sa.column(name, sa.DateTime(timezone=True)) for name in ("run_after", "queued_at", "start_date")]
    names: tuple[sa.ColumnClause[Any], ...] = (sa.column("dag_id"), sa.column("state"), *times)
    runs = sa.table("dag_run", *names)
    ours = runs.c.dag_id.startswith(prefix(), autoescape=True)
    try:
        # without a pool, the connection is closed with its block
        with sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool).connect() as connection:
            rows = connection.execute(sa.select(*times).where(runs.c.state.in_(OPEN), ours)).all()
            dag = sa.table("dag", sa.column("dag_id"))
            mine = sa.select(dag.c.dag_id).where(dag.c.dag_id.startswith(prefix(), autoescape=True))
            dags = tuple(connection.scalars(mine.order_by(dag.c.dag_id))) if prefix() else None
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        raise DataError("AirflowNotCleaned", detail=f"it cannot be read ({type(error).__name__})") from None
    # SQLite has no time zones
    known = [at.replace(tzinfo=at.tzinfo or UTC) for row in rows for at in row if at is not None]
    return min(known, default=None), len(rows), dags


def _clean(*argv: str, url: str, found: OldRows) -> dict[str, int]:
    """Run ``airflow db clean`` and return the number of rows that it found, by table."""
    only = ("--dag-ids", ",".join(found.dags), "--tables", ",".join(OF_DAGS)) if found.dags else ()
    before = ("--clean-before-timestamp", found.before.isoformat())
    command = [*_program(found.python), "db", "clean", *before, *only, *argv]
    variables = {name: value for name, value in os.environ.items() if name not in OF_TASKS}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, env=variables | {OPTION: url}, check=False, **streams)
    except OSError as error:
        raise DataError("AirflowNotCleaned", detail=f"`airflow` cannot be run ({type(error).__name__})") from None
    # its other messages may have the address with the password
    failed = set(FAILED.findall(done.stdout + done.stderr)) - (WITH_RUNS if found.dags else set())
    if done.returncode or failed:
        what = f"failed for {', '.join(sorted(failed))}" if failed else f"ended with exit status {done.returncode}"
        raise DataError("AirflowNotCleaned", detail=f"`airflow db clean` {what}")
    return {table: int(rows) for table, rows in COUNTED.findall(done.stdout) if int(rows)}


def _program(python: str | None) -> list[str]:
    if python or find_spec("airflow"):
        return [python or sys.executable, "-m", "airflow"]
    if program := shutil.which("airflow"):
        return [program]
    raise DataError("AirflowNotCleaned", detail="the program `airflow` is not installed in this environment")
