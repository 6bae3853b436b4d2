"""Call the parts of Airflow's REST API that the demo and the tests need, and survive a server that is overloaded.

Every call is repeated while the server answers 5xx or does not answer: reads and PATCHes are idempotent, and a run is
triggered under an id of the client's own, so that a repeated POST finds the first one's run (409) and starts no second.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from pipelines.errors import DataError

# A run's state changes every few seconds; each poll costs the API server some 20 ms of CPU.
POLL_SECONDS = 3.0
PARSE_SECONDS = 90.0
# No run of the demo takes half as long; a scheduler that stands still is reported instead of waited for.
RUN_SECONDS = 2700.0
ENDED = {"success", "failed"}
# A call may wait for the database's lock as long as the server does (services.py), and a little longer.
CALL_SECONDS = 75.0
# How long a call is repeated: a restart of the API server takes some 30 s on a busy machine.
PATIENCE = 150.0
# The server cuts larger pages; services.py raises its default of 100 to this.
PAGE = 1000


class RunFailed(DataError):
    """A Dag run failed, or nothing moved."""

    message = "{dag} is {state}: {detail}."
    remedy = "Open {address} and read the task's log; `make demo` again goes on from there."


class Airflow:
    """The REST API of one Airflow.

    Args:
        base: the address of the API server, without a path.
        patience: for how many seconds a call is repeated that met 5xx or no answer.
    """

    def __init__(self, base: str, *, patience: float = PATIENCE) -> None:
        self.base = base
        self.session = requests.Session()
        self.session.trust_env = False
        self._again = Retrying(
            retry=retry_if_exception(_transient),
            wait=wait_exponential(multiplier=0.5, max=15),
            stop=stop_after_delay(patience),
            reraise=True,
        )
        self._again(self._log_in)

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Return the JSON answer of a GET."""
        result: dict[str, Any] = self._call("GET", path, params=params).json()
        return result

    def unpause(self, dag_id: str) -> None:
        """Unpause a Dag once the Dag processor has parsed it.

        Raises:
            RunFailed: the Dag did not appear, with the import errors that say why.
        """
        deadline = time.monotonic() + PARSE_SECONDS
        while time.monotonic() < deadline:
            answer = self._call(
                "PATCH", f"/dags/{dag_id}", json={"is_paused": False}, expected=HTTPStatus.NOT_FOUND
            )  # fmt: skip
            if answer.ok:
                return
            time.sleep(1)
        errors = [e["stack_trace"].strip().splitlines()[-1] for e in self.get("/importErrors")["import_errors"]]
        raise RunFailed(dag=dag_id, state="not there", detail="; ".join(errors) or "never parsed", address=self.base)

    def trigger(self, dag_id: str, *, dag_run_id: str | None = None, **body: Any) -> str:
        """Start a run of a Dag, unless a run of that id exists, and return the id.

        Args:
            dag_id: which Dag.
            dag_run_id: the run's id; a new one is made if none is given.
            **body: may hold ``conf`` or ``partition_key``.
        """
        run_id = dag_run_id or f"manual__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}_{secrets.token_hex(4)}"
        given = {"logical_date": None, **body, "dag_run_id": run_id}
        self.post(f"/dags/{dag_id}/dagRuns", given)
        return run_id

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the Dag's runs, oldest first."""
        return list(self._all(f"/dags/{dag_id}/dagRuns", "dag_runs", order_by="id"))

    def tasks(self, dag_id: str, run_id: str) -> Counter[str]:
        """Return how many task instances of a run are in which state."""
        found = self._all(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", "task_instances")
        return Counter(t["state"] or "waiting" for t in found)

    def runs_and_tasks(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return all runs and all task instances of all Dags, as the API gives them, in two requests.

        Runs come oldest first. Read the runs' ids first: a task instance's run may be missing where it was created
        between the two requests.
        """
        runs = list(self._all("/dags/~/dagRuns", "dag_runs", order_by="id"))
        return runs, list(self._all("/dags/~/dagRuns/~/taskInstances", "task_instances", order_by="id"))

    def task(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the state of a task instance; ``None`` as a word before it was scheduled."""
        found = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
        return str(found["state"])

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the JSON answer of a POST that may be repeated, ``None`` where Airflow has it already (409)."""
        answer = self._call("POST", path, json=dict(body), expected=HTTPStatus.CONFLICT)
        result: dict[str, Any] | None = None if answer.status_code == HTTPStatus.CONFLICT else answer.json()
        return result

    def set_pools(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Create or overwrite pools, given as in the file that ``airflow pools import`` reads."""
        entities = [{"name": name, **pool} for name, pool in pools.items()]
        body = {"actions": [{"action": "create", "action_on_existence": "overwrite", "entities": entities}]}
        answer = self._call("PATCH", "/pools", json=body).json()
        if errors := (answer.get("create") or {}).get("errors"):
            raise RunFailed(dag="pools", state="not set", detail=str(errors[0]), address=self.base)

    def answer(self, dag_id: str, run_id: str, task_id: str, *, option: str, given: Mapping[str, Any]) -> bool:
        """Say what a person would click if the task asks and has no answer; return whether it has gone on.

        Ask it again until it has: Airflow 3.3 retries a task that is answered in the moment in which its worker ends
        (the scheduler takes the worker's end for the task's), and the retry forgets the answer.
        """
        place = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        now = self.task(dag_id, run_id, task_id)
        if now == "awaiting_input" and not self.get(place)["response_received"]:
            body = {"chosen_options": [option], "params_input": dict(given)}
            # a conflict is an answer that arrived although its reply was lost
            self._call("PATCH", place, json=body, expected=HTTPStatus.CONFLICT)
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

    def _all(self, path: str, key: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield every element of a listing; by cursor, since an element that moves shifts all offsets."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.get(path, limit=PAGE, cursor=cursor, **params)
            yield from page[key]
            cursor = page["next_cursor"]

    def _call(self, method: str, path: str, *, expected: HTTPStatus | None = None, **how: Any) -> requests.Response:
        """Return the answer of a call; an error status is raised unless it is the expected one."""
        return self._again(self._once, method, path, expected=expected, **how)

    def _once(self, method: str, path: str, *, expected: HTTPStatus | None, **how: Any) -> requests.Response:
        answer = self._send(method, path, **how)
        if answer.status_code == HTTPStatus.UNAUTHORIZED:  # the token expired, or the server has a new secret
            self._log_in()
            answer = self._send(method, path, **how)
        if answer.status_code != expected:
            answer.raise_for_status()
        return answer

    def _send(self, method: str, path: str, **how: Any) -> requests.Response:
        return self.session.request(method, f"{self.base}/api/v2{path}", timeout=CALL_SECONDS, **how)

    def _log_in(self) -> None:
        self.session.headers.pop("Authorization", None)  # an expired token must not be sent along
        answer = self.session.get(f"{self.base}/auth/token", timeout=CALL_SECONDS)
        answer.raise_for_status()
        self.session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


def _transient(error: BaseException) -> bool:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError)
