"""Remove what grows without a limit beside the corpus: logs, rows of Airflow, runs and traces of MLflow.

Nothing of a corpus and no evidence is touched: vault, tombstones, receipts of takedowns, journal, releases, results,
answers, and the runs to which these refer. A removal that was interrupted is continued by repeating it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.core.components import running
from pipelines.core.config.operate import Housekeeping
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.process import silent
from pipelines.operate.housekeeping import airflow_rows, mlflow_runs
from pipelines.operate.services import postgres
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
    old = airflow_rows.due(url, before=now - timedelta(days=limits.airflow_days), python=python)
    summary = {"before": old.before.isoformat(timespec="seconds"), "unfinished_runs": old.open}
    rows = sum(old.tables.values())

    def remove() -> dict[str, Any]:
        tables = airflow_rows.remove(old, url=url)
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
