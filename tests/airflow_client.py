"""The client of the demo with what only tests ask of Airflow."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipelines.operate.services.airflow_api import Airflow


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
