"""Remove what grows without a limit beside the corpus: logs, rows of Airflow, runs and traces of MLflow.

Nothing of a corpus and no evidence is touched: vault, tombstones, receipts of takedowns, journal, releases, results,
answers, and the runs to which these refer. A removal that was interrupted is continued by repeating it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.config.operate import Housekeeping
from pipelines.config.params import Params, load
from pipelines.config.settings import Settings
from pipelines.deployment import airflow_database
from pipelines.housekeeping import airflow_rows, mlflow_runs, old_logs, on_record
from pipelines.progress import silent
from pipelines.registry.versions import Registry
from pipelines.takedown.takedown import Say
from pipelines.workspace.clone import workspace

NO_DATABASE = f"the address of Airflow's database is not known here; set {airflow_database.OURS}"
NO_LOGS = f"the logs of Airflow's tasks are not on this host; set {old_logs.FOLDER}"
NO_MLFLOW = "MLFLOW_TRACKING_URI is not set"
NO_STORE = "MLflow's database is elsewhere: run `mlflow gc` there"


@dataclass(frozen=True)
class DuePart:
    """One kind of things to remove.

    Args:
        found: what there is to remove, as counts and bytes, or why it was not examined (``skipped``).
        count: the number of things to remove.
        remove: removes them and returns counts and bytes.
    """

    found: dict[str, Any]
    count: int = 0
    remove: Callable[[], dict[str, Any]] = dict


def due(settings: Settings, *, now: datetime, airflow: str | None = None) -> dict[str, DuePart]:
    """Return by name what is to be removed; nothing is changed.

    ``airflow``: the interpreter that has Airflow, if it is another one than this.

    Raises:
        AirflowNotCleaned: Airflow's database does not answer, or Airflow is not installed here.
        RegistryUnavailable: MLflow does not answer.
    """
    with workspace(settings) as clone:
        params = load(clone.path)
    limits = params.housekeeping
    logs = now - timedelta(days=limits.logs_days)
    tasks, place = old_logs.of_tasks(before=logs), old_logs.tasks_folder()
    own = old_logs.of_components(settings.home, before=logs, most_mb=limits.log_mb)
    return {
        "task_logs": DuePart({"skipped": NO_LOGS}) if tasks is None else _logs(tasks, below=place),
        "component_logs": _logs(own),
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


def _logs(found: old_logs.OldLogs, *, below: Path | None = None) -> DuePart:
    counts = {"files": len(found.files), "cut": len(found.large), "bytes": found.size}
    return DuePart(counts, len(found.files) + len(found.large), lambda: old_logs.remove(found, below=below))


def _airflow(limits: Housekeeping, *, now: datetime, python: str | None) -> DuePart:
    url = airflow_database.address()
    if url is None:
        return DuePart({"skipped": NO_DATABASE})
    found = airflow_rows.due(url, before=now - timedelta(days=limits.airflow_days), python=python)
    told = {"before": found.before.isoformat(timespec="seconds"), "unfinished_runs": found.open}
    rows = sum(found.tables.values())

    def remove() -> dict[str, Any]:
        tables = airflow_rows.remove(found, url=url)
        return told | {"rows": sum(tables.values()), "tables": tables}

    return DuePart(told | {"rows": rows, "tables": dict(found.tables)}, rows, remove)


def _mlflow(settings: Settings, *, params: Params, now: datetime) -> DuePart:
    if not settings.mlflow_tracking_uri:
        return DuePart({"skipped": NO_MLFLOW})
    registry = Registry.open(settings)
    found = mlflow_runs.due(
        settings=settings, registry=registry, params=params, limits=params.housekeeping, now=now,
        on_record=on_record.collect(settings, registry=registry),
    )  # fmt: skip
    kept = {"kept_on_record": found.kept} | ({"not_collected": NO_STORE} if found.collect is None else {})
    collect = len(found.collect or ())
    told = {"deleted": len(found.delete), "collected": collect, "bytes": found.size, "traces": found.traces}
    return DuePart(
        told | kept,
        len(found.delete) + collect + found.traces,
        lambda: mlflow_runs.remove(found, settings=settings, registry=registry) | kept,
    )
