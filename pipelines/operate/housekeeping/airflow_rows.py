"""Remove old rows of Airflow's database (runs, XCom, events) with Airflow's own ``airflow db clean``.

Airflow takes any old row, also of a run that has not ended, such as an open round of annotation, whose later tasks read
its XCom. Therefore nothing is removed that is younger than the oldest unfinished run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

import sqlalchemy as sa

from pipelines.core.errors import DataError
from pipelines.operate.services.airflow_api import prefix
from pipelines.operate.services.postgres import OPTION

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


def due(url: str, *, before: datetime, python: str | None = None) -> OldRows:
    """Return the rows that are older than ``before`` and than every unfinished run; nothing is changed.

    With ``CORPUS_AIRFLOW_PREFIX``, an Airflow with other projects too, only the rows of Dags with the prefix count.
    """
    oldest, unfinished, dags = _read(url)
    # SQLite compares times as texts, by which a row of this very moment would be older
    at = min(before, oldest - timedelta(seconds=1)) if oldest else before
    rows = OldRows(at, unfinished, dags, {}, python)
    return rows if dags == () else replace(rows, tables=_clean("--dry-run", url=url, found=rows))


def remove(rows: OldRows, *, url: str) -> dict[str, int]:
    """Remove the rows that :func:`due` found; return the number of removed rows by table.

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
