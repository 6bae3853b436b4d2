"""Fetch all Dag runs and all task instances of Airflow as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.deployment.airflow_api import ENDED

Json = dict[str, Any]
# Identifies a task instance: Dag, run, task, map index.
Key = tuple[str, str, str, int]


class Api(Protocol):
    """The part of Airflow's REST API that the demo uses to follow runs."""

    base: str

    def runs_and_tasks(self) -> tuple[list[Json], list[Json]]:
        """Return all Dag runs and all task instances of Airflow."""

    def unpause(self, dag_id: str) -> None:
        """Unpause a Dag."""

    def trigger(self, dag_id: str, *, dag_run_id: str, **body: Any) -> str:
        """Start a Dag run with the given id; repeating the call does not start another run."""

    def post(self, path: str, body: Json) -> Json | None:
        """Send a POST request to Airflow; return the response, or ``None`` for a conflict (409)."""


@dataclass(frozen=True)
class Look:
    """A snapshot of all Dag runs and task instances of Airflow."""

    runs: list[Json]
    tasks: list[Json]

    @classmethod
    def at(cls, airflow: Api) -> Look:
        """Take a snapshot of Airflow's present Dag runs and task instances."""
        return cls(*airflow.runs_and_tasks())

    def of(self, dag_id: str) -> list[Json]:
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
        return {run["partition_key"] for run in self.of(dag_id) if run["state"] == "success"}


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
