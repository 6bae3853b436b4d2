"""Follow the demo's Dag runs: snapshots of Airflow, their progress on the console, and failed tasks, cleared once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.core.errors import DataError
from pipelines.operate.services.airflow_api import ENDED, Airflow

Json = dict[str, Any]
# Identifies a task instance: Dag, run, task, map index.
Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Look:
    """A snapshot of all Dag runs and task instances of Airflow."""

    runs: list[Json]
    tasks: list[Json]

    @classmethod
    def at(cls, airflow: Airflow) -> Look:
        """Take a snapshot of Airflow's present Dag runs and task instances."""
        return cls(*airflow.runs_and_tasks())

    def runs_of(self, dag_id: str) -> list[Json]:
        """Return the Dag runs of a Dag in this snapshot, oldest first."""
        return [run for run in self.runs if run["dag_id"] == dag_id]

    def tasks_of(self, run: Json) -> Iterator[Json]:
        """Yield the task instances of a Dag run in this snapshot."""
        for task in self.tasks:
            if (task["dag_id"], task["dag_run_id"]) == (run["dag_id"], run["dag_run_id"]):
                yield task

    def active(self, *dag_ids: str) -> bool:
        """Return whether any run of these Dags (or of any Dag if none is named) is unfinished."""
        return any(run["state"] not in ENDED for run in self.runs if not dag_ids or run["dag_id"] in dag_ids)

    def states(self) -> dict[tuple[Key, int], str | None]:
        """Return the state of every task instance, by task instance and attempt."""
        return {(key_of(task), task["try_number"]): task["state"] for task in self.tasks}

    def collected(self, dag_id: str) -> set[str]:
        """Return the partition keys (months) for which a Dag has a successful run."""
        return {run["partition_key"] for run in self.runs_of(dag_id) if run["state"] == "success"}


def key_of(task: Json) -> Key:
    """Return the key of an Airflow task instance, which is the same for all its attempts."""
    return task["dag_id"], task["dag_run_id"], task["task_id"], int(task["map_index"])


def title_of(run: Json) -> str:
    """Return a readable name of a Dag run: its Dag, and its month or the values of its configuration."""
    asked = " ".join(str(value) for value in (run.get("conf") or {}).values())
    return f"{run['dag_id']} {run.get('partition_key') or asked}".strip()


def task_of(task: Json) -> str:
    """Return a readable name of an Airflow task instance: its task id, and its map index if it is mapped."""
    return str(task["task_id"]) + (f"[{task['map_index']}]" if int(task["map_index"]) >= 0 else "")


SHOWN = ("success", "failed", "up_for_retry")


class Lines:
    """Print one line for each task attempt that ends after the start of the demo: Dag, month, task, seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._known: set[tuple[Key, int]] | None = None

    def show(self, look: Look) -> None:
        """Print the task attempts that ended since the last poll; the first call prints nothing."""
        titles = {(run["dag_id"], run["dag_run_id"]): title_of(run) for run in look.runs}
        ended = [task for task in look.tasks if task["state"] in SHOWN and task["duration"] is not None]
        attempts = {(key_of(task), task["try_number"]) for task in ended}
        known = attempts if self._known is None else self._known
        self._known = known | attempts
        for task in sorted(ended, key=lambda task: task["end_date"] or ""):
            if (key_of(task), task["try_number"]) not in known:
                title = titles.get((task["dag_id"], task["dag_run_id"]), task["dag_id"])
                state = "" if task["state"] == "success" else f"  {task['state']}"
                line = f"{task['duration']:7.1f} s  {title:<24} {task_of(task)}{state}"
                self.console.print(line, highlight=False, soft_wrap=True, markup=False)


# Number of log lines shown: a command's error is among the last ones, after Airflow's own traceback.
LINES = 15


class Failures:
    """The failed tasks of the demo's runs; ``cleared`` counts how often this process has cleared each of them."""

    def __init__(self, airflow: Airflow, *, logs: Path) -> None:
        self.airflow = airflow
        self.logs = logs
        self.cleared: Counter[Key] = Counter()

    def clear(self, look: Look) -> int:
        """Clear the failed tasks of failed runs and the tasks that they blocked; return the number of failed tasks."""
        count = 0
        for run in look.runs:
            if run["state"] == "failed":
                count += self._clear(run, [task for task in look.tasks_of(run) if task["state"] == "failed"])
        return count

    def _clear(self, run: Json, failed: list[Json]) -> int:
        if not failed:
            raise DataError("NothingToClear", run=title_of(run), address=self.airflow.base)
        for task in failed:
            if self.cleared[key_of(task)]:
                where = {"task": task_of(task), "run": title_of(run), "address": self.airflow.base}
                raise DataError("FailedAgain", log=tail(self.logs, task), **where)
        body = {"dry_run": False, "dag_run_id": run["dag_run_id"], "only_failed": True, "reset_dag_runs": True}
        self.airflow.post(f"/dags/{run['dag_id']}/clearTaskInstances", body)
        self.cleared.update(key_of(task) for task in failed)
        return len(failed)


def tail(logs: Path, task: Json) -> str:
    """Return the last lines of the newest log of an Airflow task instance."""
    dag_id, run_id, task_id, index = key_of(task)
    folder = logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
    folder = folder / f"map_index={index}" if index >= 0 else folder
    attempts = sorted(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime)
    if not attempts:
        return "  (there is no log)"
    lines = attempts[-1].read_text(errors="replace").splitlines()[-LINES:]
    return "\n".join(f"  {_event(line)}" for line in lines)


def _event(line: str) -> str:
    try:
        event = json.loads(line)
        return f"{event.get('level', '')}: {event['event']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
