"""The client of Airflow's API against a server that fails: 5xx, broken connections, lost replies, expired tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from tenacity import wait_none

from pipelines.deployment.airflow_api import RunFailed
from tests.airflow_client import AirflowClient

BREAK = 0  # a status that closes the connection without an answer


class Server(ThreadingHTTPServer):
    """A small Airflow: runs and task instances in memory, faults from a list, served before or after the deed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[int] = []
        self.lost: list[int] = []  # like faults, but after the request was carried out
        self.runs: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any]] = []
        self.tokens = 1
        self.answers: list[Any] = []
        self.asked = datetime(2022, 12, 1, tzinfo=UTC)  # when the human-in-the-loop task started
        self.seen: list[tuple[str, str]] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Say nothing of a broken connection."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def reply(self, status: int, body: Any = None) -> None:
        if status == BREAK:
            self.connection.close()
            self.close_connection = True
            return
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        given = json.loads(self.rfile.read(length)) if length else None
        place = urlsplit(self.path)
        self.server.seen.append((self.command, place.path))
        if self.server.faults:
            self.reply(self.server.faults.pop(0))
            return
        if place.path == "/auth/token":
            self.reply(201, {"access_token": f"token-{self.server.tokens}"})
            return
        if self.headers["Authorization"] != f"Bearer token-{self.server.tokens}":
            self.reply(401)
            return
        status, body = self.carry_out(place.path, given, {k: v[0] for k, v in parse_qs(place.query).items()})
        if self.server.lost and self.command != "GET":
            self.reply(self.server.lost.pop(0))
        else:
            self.reply(status, body)

    do_GET = do_POST = do_PATCH = handle_any

    def carry_out(self, path: str, given: Any, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/hitlDetails") and self.command == "PATCH":
            if self.server.answers:
                return 409, {}
            self.server.answers.append(given)
            return 200, {}
        if path.endswith("/hitlDetails"):
            return 200, {"response_received": bool(self.server.answers)}
        if re.search(r"/taskInstances/\w+$", path):
            return 200, {"state": "awaiting_input", "start_date": self.server.asked.isoformat(), "try_number": 2}
        if self.command == "POST" and path.endswith("/dagRuns"):
            if given["dag_run_id"] in {run["dag_run_id"] for run in self.server.runs}:
                return 409, {}
            self.server.runs.append(given)
            return 200, given
        if self.command == "PATCH" and path == "/api/v2/dags/known":
            return 200, {}
        if path.endswith("/taskInstances"):
            return self.page("task_instances", self.server.tasks, query)
        if path.endswith("/dagRuns"):
            return self.page("dag_runs", self.server.runs, query)
        return 404, {}

    @staticmethod
    def page(key: str, found: list[dict[str, Any]], query: dict[str, str]) -> tuple[int, Any]:
        first, size = int(query.get("cursor") or 0), min(int(query["limit"]), 100)
        rest = len(found) > first + size
        return 200, {key: found[first : first + size], "next_cursor": str(first + size) if rest else None}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def airflow(server: Server) -> AirflowClient:
    client = AirflowClient(server.base, patience=10)
    client._again.wait = wait_none()
    server.seen.clear()
    return client


CALLS: dict[str, Callable[[AirflowClient], object]] = {
    "read": lambda airflow: airflow.runs("known"),
    "unpause": lambda airflow: airflow.unpause("known"),
    "trigger": lambda airflow: airflow.trigger("known"),
    "answer": lambda airflow: airflow.answer("known", "r", "approve", option="Yes", given={}),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("faults", [[500], [503, 502, 500], [BREAK], [BREAK, 500, BREAK]])
def test_a_call_is_repeated_until_it_succeeds(
    server: Server, airflow: AirflowClient, call: str, faults: list[int]
) -> None:
    server.faults = list(faults)
    CALLS[call](airflow)
    assert not server.faults


def test_the_login_is_repeated_as_well(server: Server) -> None:
    server.faults = [500, BREAK]
    assert AirflowClient(server.base, patience=10).runs("known") == []


@pytest.mark.parametrize("lost", [500, BREAK])
def test_a_trigger_whose_reply_was_lost_starts_one_run(server: Server, airflow: AirflowClient, lost: int) -> None:
    server.lost = [lost, lost]
    run_id = airflow.trigger("known", conf={"a": 1})
    assert [(run["dag_run_id"], run["conf"]) for run in server.runs] == [(run_id, {"a": 1})]


def test_a_run_of_the_callers_own_id_is_started_once(server: Server, airflow: AirflowClient) -> None:
    assert [airflow.trigger("known", dag_run_id="mine") for _ in range(2)] == ["mine", "mine"]
    assert len(server.runs) == 1


def test_two_triggers_start_two_runs(server: Server, airflow: AirflowClient) -> None:
    assert airflow.trigger("known") != airflow.trigger("known")
    assert len(server.runs) == 2


def test_an_answer_whose_reply_was_lost_is_given_once(server: Server, airflow: AirflowClient) -> None:
    server.lost = [BREAK]
    airflow.answer("known", "r", "approve", option="Yes", given={"why": "w"})
    assert server.answers == [{"chosen_options": ["Yes"], "params_input": {"why": "w"}}]


def test_an_answer_waits_until_the_scheduler_has_seen_the_question(server: Server, airflow: AirflowClient) -> None:
    for seconds, answered in ((0, 0), (5, 0), (9, 1)):
        server.asked = datetime.now(UTC) - timedelta(seconds=seconds)
        airflow.answer("known", "r", "approve", option="Yes", given={})
        assert len(server.answers) == answered


def test_an_expired_token_is_renewed(server: Server, airflow: AirflowClient) -> None:
    server.tokens += 1
    assert airflow.trigger("known") == server.runs[0]["dag_run_id"]


def test_a_mistake_of_the_caller_is_not_repeated(server: Server, airflow: AirflowClient) -> None:
    with pytest.raises(requests.HTTPError, match="404"):
        airflow.get("/nothing")
    assert len(server.seen) == 1


def test_patience_ends(server: Server) -> None:
    airflow = AirflowClient(server.base, patience=0.3)
    server.faults = [500] * 1000
    with pytest.raises(requests.HTTPError, match="500"):
        airflow.runs("known")


def test_everything_is_read_in_pages(server: Server, airflow: AirflowClient) -> None:
    server.runs = [{"dag_run_id": str(n)} for n in range(3)]
    server.tasks = [{"id": n, "state": None if n else "success"} for n in range(250)]
    assert airflow.runs_and_tasks() == (server.runs, server.tasks)
    assert airflow.tasks("known", "0") == {"success": 1, "waiting": 249}


def test_a_dag_that_never_appears_is_named(
    server: Server, airflow: AirflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.deployment.airflow_api.PARSE_SECONDS", 0.1)
    monkeypatch.setattr(airflow, "get", lambda _: {"import_errors": [{"stack_trace": "a\nValueError: bad\n"}]})
    with pytest.raises(RunFailed, match="unknown is not there: ValueError: bad"):
        airflow.unpause("unknown")
