"""Remove old files of logs: of Airflow's tasks, and of the embedded components.

Logs that Airflow writes to a bucket (``remote_logging``) are not touched: the bucket has a rule for their age.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.deployment.components import running

FOLDER, HOME = "AIRFLOW__LOGGING__BASE_LOG_FOLDER", "AIRFLOW_HOME"
MB = 1_000_000


@dataclass(frozen=True)
class OldLogs:
    """The files of logs that are to be removed, and those that are to be cut, with the bytes to keep of each."""

    files: tuple[Path, ...]
    large: tuple[Path, ...]
    keep: int

    @property
    def size(self) -> int:
        """The bytes that their removal sets free."""
        return sum(map(_size, self.files)) + sum(max(_size(path) - self.keep, 0) for path in self.large)


def of_tasks(*, before: datetime) -> OldLogs | None:
    """Return the logs of Airflow's tasks to which nothing was written since; ``None`` if their folder is not here."""
    place = tasks_folder()
    if place is None:
        return None
    return OldLogs(tuple(path for path in _files(place) if _written(path) < before.timestamp()), (), 0)


def of_components(home: Path, *, before: datetime, most_mb: int) -> OldLogs:
    """Return the old logs of components that do not run, and the logs that are larger than ``most_mb``."""
    logs, most = list(_files(home / "logs")), most_mb * MB
    old = [log for log in logs if _written(log) < before.timestamp() and not _running(home, log)]
    large = [log for log in logs if log not in old and _size(log) > most]
    return OldLogs(tuple(old), tuple(large), most // 2)


def remove(found: OldLogs, *, below: Path | None = None) -> dict[str, int]:
    """Remove and cut files of logs; return how many, and the bytes. ``below``: also remove folders that are empty."""
    size = found.size
    for path in found.files:
        path.unlink(missing_ok=True)
    for path in found.large:
        _cut(path, keep=found.keep)
    if below is not None:
        _remove_empty({path.parent for path in found.files}, below=below)
    return {"files": len(found.files), "cut": len(found.large), "bytes": size}


def tasks_folder() -> Path | None:
    """Return the folder of the logs of Airflow's tasks, if it is on this host."""
    home = os.environ.get(HOME)
    place = os.environ.get(FOLDER) or (f"{home}/logs" if home else "")
    return Path(place) if place and Path(place).is_dir() else None


def _files(folder: Path) -> Iterator[Path]:
    # a link may lead out of the folder
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _running(home: Path, log: Path) -> bool:
    return running(home / "run" / f"{log.stem}.pid") is not None


def _written(path: Path) -> float:
    return path.stat().st_mtime


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
