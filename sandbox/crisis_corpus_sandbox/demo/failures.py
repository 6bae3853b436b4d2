"""Clear the failed Airflow tasks of a run once; stop when a task fails again, and show the end of its log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from crisis_corpus_sandbox.demo.runs import Api, Json, Key, Look, key_of, task_of, title_of
from pipelines.errors import DataError

# Number of log lines shown: a command's error is among the last ones, after Airflow's own traceback.
LINES = 15


class FailedAgain(DataError):
    """An Airflow task of the demo failed, was cleared, and failed again."""

    message = "Task {task} of {run} failed again after it was cleared. The end of its log:\n{log}\n"
    remedy = "Open {address} for the whole log, remove the cause, and start `make demo` again: it clears the task."


class NothingToClear(DataError):
    """A Dag run failed although none of its tasks failed."""

    message = "{run} failed, but none of its tasks did."
    remedy = "Open {address} and clear the run."


class Failures:
    """The failed tasks of the demo's runs; ``cleared`` counts how often this process has cleared each of them."""

    def __init__(self, airflow: Api, *, logs: Path) -> None:
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
            raise NothingToClear(run=title_of(run), address=self.airflow.base)
        for task in failed:
            if self.cleared[key_of(task)]:
                raise FailedAgain(
                    task=task_of(task), run=title_of(run), log=tail(self.logs, task), address=self.airflow.base
                )
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
        found = json.loads(line)
        return f"{found.get('level', '')}: {found['event']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
