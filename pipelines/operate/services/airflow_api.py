"""Call the parts of Airflow's REST API that this project needs, with retries for an overloaded server.

Every call is repeated while the server answers 5xx or does not answer: reads and PATCHes are idempotent, and the client
chooses the id of a run, so that a repeated POST finds the first one's run (409) and does not start a second.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from pipelines.core.errors import BadParams, ConfigError, DataError

PARSE_SECONDS = 90.0
# No run of the demo takes half as long; after this time a stalled scheduler is reported.
RUN_SECONDS = 2700.0
ENDED = {"success", "failed"}
# Slightly longer than the server waits for the database's lock (services.py).
CALL_SECONDS = 75.0
# A run's state changes every few seconds; each poll costs the API server some 20 ms of CPU.
POLL_SECONDS = 3.0
# How long a call is retried: a restart of the API server takes some 30 s on a busy machine.
PATIENCE = 150.0
# The scheduler looks at its executor once a loop, which takes a second, and several on a busy machine.
ANSWER_SECONDS = 4.0
# The server truncates larger pages; services.py raises its default of 100 to this.
PAGE = 1000


class AirflowUnavailable(ConfigError):
    """Airflow's REST API does not answer or refuses the request."""


def prefix() -> str:
    """Return the start of the names of all Dags, pools, assets and tags (``dvc_airflow.settings`` reads it as well)."""
    text = os.environ.get("CORPUS_AIRFLOW_PREFIX", "")
    if not re.fullmatch(r"[\w.-]*", text, re.ASCII):
        raise BadParams(where="CORPUS_AIRFLOW_PREFIX", detail="may only contain letters, digits, '_', '-' and '.'")
    return text


def named(name: str) -> str:
    """Return the name of a Dag or a pool with this deployment's prefix."""
    return prefix() + name


@dataclass(frozen=True)
class Login:
    """Credentials for Airflow: a token, or a name and password; without them, the server must not require a login."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)


class Airflow:
    """A client of the REST API of one Airflow server at ``base``, the URL without the path of the API.

    A call may take ``seconds``, and is retried for ``patience`` seconds after a 5xx response or no response.
    """

    def __init__(
        self, base: str, *, patience: float = PATIENCE, login: Login | None = None, seconds: float = CALL_SECONDS
    ) -> None:
        self.base = base.rstrip("/")
        self.login = login or Login()
        self.seconds = seconds
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
        """Send a GET request to Airflow's API and return the JSON of the response."""
        return dict(self._call("GET", path, params=params).json())

    def find(self, path: str) -> dict[str, Any] | None:
        """Send a GET request and return the JSON of the response, or ``None`` if the object does not exist (404)."""
        answer = self._call("GET", path, expected=HTTPStatus.NOT_FOUND)
        return dict(answer.json()) if answer.ok else None

    def unpause(self, dag_id: str) -> None:
        """Unpause a Dag once the Dag processor has parsed it."""
        deadline = time.monotonic() + PARSE_SECONDS
        while time.monotonic() < deadline:
            if self._call("PATCH", f"/dags/{dag_id}", json={"is_paused": False}, expected=HTTPStatus.NOT_FOUND).ok:
                return
            time.sleep(1)
        errors = [e["stack_trace"].strip().splitlines()[-1] for e in self.get("/importErrors")["import_errors"]]
        detail = "; ".join(errors) or "never parsed"
        raise DataError("RunFailed", dag=dag_id, state="not there", detail=detail, address=self.base)

    def trigger(self, dag_id: str, *, dag_run_id: str | None = None, **body: Any) -> str:
        """Start a run of a Dag unless a run with that id exists; return the id. ``body``: conf, partition_key."""
        run_id = dag_run_id or f"manual__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}_{secrets.token_hex(4)}"
        fields = {"logical_date": None, **body, "dag_run_id": run_id}
        self.post(f"/dags/{dag_id}/dagRuns", fields)
        return run_id

    def finish(
        self,
        dag_id: str,
        run_id: str,
        *,
        answers: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
        within: float = RUN_SECONDS,
    ) -> None:
        """Wait for a run to succeed, and answer its human-in-the-loop tasks, by task: the option and the fields."""
        deadline = time.monotonic() + within
        while True:
            for task_id, (option, given) in (answers or {}).items():
                self.answer(dag_id, run_id, task_id, option=option, given=given)
            state = self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            if state == "success":
                return
            if state == "failed" or time.monotonic() > deadline:
                raise DataError("RunFailed", dag=dag_id, state=state, detail=f"run {run_id}", address=self.base)
            time.sleep(POLL_SECONDS)

    def runs_and_tasks(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return all runs and all task instances of all Dags, as the API describes them, with two requests.

        Runs come oldest first and are read first: a run that is created between the two requests is missing, although
        its task instances are returned.
        """
        runs = list(self._all("/dags/~/dagRuns", "dag_runs", order_by="id"))
        return runs, list(self._all("/dags/~/dagRuns/~/taskInstances", "task_instances", order_by="id"))

    def parse(self, dag_id: str) -> bool:
        """Ask the Dag processor to parse a Dag's file next; return whether Airflow knows the Dag."""
        dag = self.find(f"/dags/{dag_id}")
        if dag:
            self._call("PUT", f"/parseDagFile/{dag['file_token']}", expected=HTTPStatus.CONFLICT)
        return dag is not None

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send a POST that may be repeated; return the JSON response, or ``None`` if the object exists (409)."""
        answer = self._call("POST", path, json=dict(body), expected=HTTPStatus.CONFLICT)
        return dict(answer.json()) if answer.ok else None

    def set_pools(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Create or overwrite Airflow pools, given in the format of ``airflow pools import``."""
        self._overwrite("/pools", [{"name": name, **pool} for name, pool in pools.items()])

    def set_connections(self, connections: Mapping[str, Mapping[str, Any]]) -> None:
        """Create or overwrite Airflow connections, given in the format of ``airflow connections import``."""
        self._overwrite("/connections", [{"connection_id": name, **fields} for name, fields in connections.items()])

    def _overwrite(self, path: str, entities: list[dict[str, Any]]) -> None:
        body = {"actions": [{"action": "create", "action_on_existence": "overwrite", "entities": entities}]}
        answer = self._call("PATCH", path, json=body).json()
        if errors := (answer.get("create") or {}).get("errors"):
            # an error may repeat the entity, which may hold a secret
            detail = f"{len(errors)} of {len(entities)} {path.strip('/')} were refused"
            raise AirflowUnavailable(address=self.base, detail=detail)

    def answer(self, dag_id: str, run_id: str, task_id: str, *, option: str, given: Mapping[str, Any]) -> bool:
        """Answer the question of a task that waits for a person's input; return whether the task has succeeded.

        Call this function repeatedly until it returns true. The response is delayed by ``ANSWER_SECONDS`` times the
        number of tries, because Airflow 3.3 fails a task whose response arrives before the scheduler has registered the
        end of the task's worker, and the retry then loses the response.
        """
        place = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        now = self.get(place)
        if now["state"] == "awaiting_input":
            age = datetime.now(UTC) - datetime.fromisoformat(now["start_date"])
            details = f"{place}/-1/hitlDetails"
            if age.total_seconds() > ANSWER_SECONDS * now["try_number"] and not self.get(details)["response_received"]:
                body = {"chosen_options": [option], "params_input": dict(given)}
                # a conflict is an answer that arrived although its reply was lost
                self._call("PATCH", details, json=body, expected=HTTPStatus.CONFLICT)
        return bool(now["state"] == "success")

    def _all(self, path: str, key: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield every element of a listing; pages use cursors, because a moving element shifts all offsets."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.get(path, limit=PAGE, cursor=cursor, **params)
            yield from page[key]
            cursor = page["next_cursor"]

    def _call(self, method: str, path: str, *, expected: HTTPStatus | None = None, **how: Any) -> requests.Response:
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
        return self.session.request(method, f"{self.base}/api/v2{path}", timeout=self.seconds, **how)

    def _log_in(self) -> None:
        self.session.headers.pop("Authorization", None)  # an expired token must not be sent along
        token, login = self.login.token, self.login
        if not token:
            credentials = {"username": login.user, "password": login.password} if login.user else None
            method, address = "POST" if login.user else "GET", f"{self.base}/auth/token"
            answer = self.session.request(method, address, json=credentials, timeout=self.seconds)
            answer.raise_for_status()
            token = answer.json()["access_token"]
        self.session.headers["Authorization"] = f"Bearer {token}"


def _transient(error: BaseException) -> bool:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError)
