"""The few calls of Airflow's REST API that the demo and the tier need."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import requests

from pipelines.errors import DataError

POLL_SECONDS = 1.0
PARSE_SECONDS = 90.0
# No run of the demo takes half as long; a scheduler that stands still is reported instead of waited for.
RUN_SECONDS = 2700.0
ENDED = {"success", "failed"}


class RunFailed(DataError):
    """A Dag run failed, or nothing moved."""

    message = "{dag} is {state}: {detail}."
    remedy = "Open {address} and read the task's log; `make demo` again goes on from there."


class Airflow:
    """The few calls of Airflow's REST API that the demo needs."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session = requests.Session()
        self.session.trust_env = False
        token = self.session.get(f"{base}/auth/token", timeout=30).json()["access_token"]
        self.session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Return the JSON answer of a GET."""
        answer = self.session.get(f"{self.base}/api/v2{path}", params=params, timeout=30)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
        return result

    def unpause(self, dag_id: str) -> None:
        """Unpause a Dag once the Dag processor has parsed it.

        Raises:
            RunFailed: the Dag did not appear, with the import errors that say why.
        """
        deadline = time.monotonic() + PARSE_SECONDS
        while time.monotonic() < deadline:
            answer = self.session.patch(f"{self.base}/api/v2/dags/{dag_id}", json={"is_paused": False}, timeout=30)
            if answer.ok:
                return
            time.sleep(POLL_SECONDS)
        errors = [e["stack_trace"].strip().splitlines()[-1] for e in self.get("/importErrors")["import_errors"]]
        raise RunFailed(dag=dag_id, state="not there", detail="; ".join(errors) or "never parsed", address=self.base)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the JSON answer of a POST, ``None`` where Airflow has that already (409)."""
        answer = self.session.post(f"{self.base}/api/v2{path}", json=dict(body), timeout=30)
        if answer.status_code == requests.codes.conflict:
            return None
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
        return result

    def trigger(self, dag_id: str, *, run_id: str | None = None, **body: Any) -> str:
        """Start a run of a Dag and return its id; ``body`` may hold ``conf`` or ``partition_key``."""
        given = {"dag_run_id": run_id} if run_id else {}
        answer = self.post(f"/dags/{dag_id}/dagRuns", {"logical_date": None, **given, **body})
        return str(answer["dag_run_id"] if answer else run_id)

    def runs_and_tasks(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return all Dag runs and all task instances."""
        return (
            self._all("/dags/~/dagRuns/list", "dag_runs", "id"),
            self._all("/dags/~/dagRuns/~/taskInstances/list", "task_instances", "id"),
        )

    def _all(self, path: str, key: str, order: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.post(path, {"page_limit": 100, "page_offset": len(found), "order_by": order}) or {}
            found += page.get(key, [])
            if len(found) >= page.get("total_entries", 0):
                return found

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the Dag's runs, oldest first."""
        return list(self.get(f"/dags/{dag_id}/dagRuns", limit=100, order_by="id")["dag_runs"])

    def tasks(self, dag_id: str, run_id: str) -> Counter[str]:
        """Return how many task instances of a run are in which state."""
        found = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=200)["task_instances"]
        return Counter(t["state"] or "waiting" for t in found)

    def task(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the state of a task instance; ``None`` as a word before it was scheduled."""
        found = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
        return str(found["state"])

    def answer(self, dag_id: str, run_id: str, task_id: str, *, option: str, given: Mapping[str, Any]) -> bool:
        """Say what a person would click if the task asks and has no answer; return whether it has gone on.

        Ask it again until it has: Airflow 3.3 retries a task that is answered in the moment in which its worker ends
        (the scheduler takes the worker's end for the task's), and the retry forgets the answer.
        """
        place = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        now = self.task(dag_id, run_id, task_id)
        if now == "awaiting_input" and not self.get(place)["response_received"]:
            body = {"chosen_options": [option], "params_input": dict(given)}
            self.session.patch(f"{self.base}/api/v2{place}", json=body, timeout=30).raise_for_status()
        return now == "success"

    def finish(self, dag_id: str, run_id: str, *, answers: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        """Wait for the end of a run, and answer what its tasks ask.

        Args:
            dag_id: whose run.
            run_id: which.
            answers: task -> the option, and what goes into the form.

        Raises:
            RunFailed: it failed, or nothing moved.
        """
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            for task_id, (option, given) in answers.items():
                self.answer(dag_id, run_id, task_id, option=option, given=given)
            state = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            if state == "success":
                return
            if state == "failed":
                raise RunFailed(dag=dag_id, state=state, detail="a task gave up", address=self.base)
            time.sleep(POLL_SECONDS)
        raise RunFailed(dag=dag_id, state="unfinished", detail=f"after {RUN_SECONDS:.0f} s", address=self.base)
