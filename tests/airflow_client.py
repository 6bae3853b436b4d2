"""The client of the demo with what only tests ask of Airflow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipelines.core.errors import DataError
from pipelines.operate.services.airflow_api import RUN_SECONDS, Airflow

# A run's state changes every few seconds; each poll costs the API server some 20 ms of CPU.
POLL_SECONDS = 3.0


class AirflowClient(Airflow):
    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the Dag's runs, oldest first."""
        return list(self._all(f"/dags/{dag_id}/dagRuns", "dag_runs", order_by="id"))

    def unfinished(self) -> list[str]:
        """Return every task that has begun and not succeeded, to explain a test's time-out."""
        _, tasks = self.runs_and_tasks()
        return [
            f"{t['dag_id']}.{t['task_id']} {t['state']} on {t['hostname']}, try {t['try_number']}"
            for t in tasks
            if t["state"] not in {None, "success", "skipped"}
        ]

    def tasks(self, dag_id: str, run_id: str) -> Counter[str]:
        """Return the number of a run's task instances in each state."""
        found = self._all(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", "task_instances")
        return Counter(t["state"] or "waiting" for t in found)

    def finish(self, dag_id: str, run_id: str, *, answers: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        """Wait for the end of a run and answer its human-in-the-loop tasks, by task: the option and the fields."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            for task_id, (option, given) in answers.items():
                self.answer(dag_id, run_id, task_id, option=option, given=given)
            state = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            if state == "success":
                return
            if state == "failed":
                break
            time.sleep(POLL_SECONDS)
        raise DataError("RunFailed", dag=dag_id, state=state, detail=f"within {RUN_SECONDS:.0f} s", address=self.base)
