"""The client of Airflow's API against a server that fails: 5xx, broken connections, lost replies, expired tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from tenacity import wait_none

from pipelines.operate.services.airflow_setup import wait
from tests.airflow_client import AirflowClient
from tests.json_server import Request, json_server
from tests.refusals import refused
from tests.sandbox.small_airflow import page

BREAK = 0  # a status that closes the connection without an answer


class Server:
    """A small Airflow: runs and task instances in memory, faults from a list, served before or after the deed."""

    def __init__(self) -> None:
        self.base = ""
        self.faults: list[int] = []
        self.lost: list[int] = []  # like faults, but after the request was carried out
        self.runs: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any]] = []
        self.tokens = 1
        self.answers: list[Any] = []
        self.asked = datetime(2022, 12, 1, tzinfo=UTC)  # when the human-in-the-loop task started
        self.seen: list[tuple[str, str]] = []
        self.states: list[str] = []  # of a run, each time it is asked for

    def answer(self, request: Request) -> tuple[int, Any] | None:
        self.seen.append((request.method, request.path))
        if self.faults:
            return _fault(self.faults.pop(0))
        if request.path == "/auth/token":
            return 201, {"access_token": f"token-{self.tokens}"}
        if request.headers["Authorization"] != f"Bearer token-{self.tokens}":
            return 401, None
        answered = self.carry_out(request.method, request.path, request.body, request.query)
        return _fault(self.lost.pop(0)) if self.lost and request.method != "GET" else answered

    def carry_out(self, method: str, path: str, body: Any, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/hitlDetails") and method == "PATCH":
            if self.answers:
                return 409, {}
            self.answers.append(body)
            return 200, {}
        if path.endswith("/hitlDetails"):
            return 200, {"response_received": bool(self.answers)}
        if re.search(r"/taskInstances/\w+$", path):
            return 200, {"state": "awaiting_input", "start_date": self.asked.isoformat(), "try_number": 2}
        if method == "POST" and path.endswith("/dagRuns"):
            if body["dag_run_id"] in {run["dag_run_id"] for run in self.runs}:
                return 409, {}
            self.runs.append(body)
            return 200, body
        if method == "PATCH" and path == "/api/v2/dags/known":
            return 200, {}
        if re.search(r"/dagRuns/\w+$", path):
            return 200, {"state": self.states.pop(0)}
        if path.endswith("/taskInstances"):
            return 200, page("task_instances", self.tasks, query, most=100)
        if path.endswith("/dagRuns"):
            return 200, page("dag_runs", self.runs, query, most=100)
        return 404, {}


def _fault(status: int) -> tuple[int, Any] | None:
    return None if status == BREAK else (status, None)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with json_server(made.answer) as made.base:
        yield made


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


def test_two_triggers_start_two_runs_but_of_the_callers_own_id_one(server: Server, airflow: AirflowClient) -> None:
    assert [airflow.trigger("known", dag_run_id="mine") for _ in range(2)] == ["mine", "mine"]
    assert airflow.trigger("known") != airflow.trigger("known")
    assert len(server.runs) == 3


def test_an_answer_whose_reply_was_lost_is_given_once(server: Server, airflow: AirflowClient) -> None:
    server.lost = [BREAK]
    airflow.answer("known", "r", "approve", option="Yes", given={"why": "w"})
    assert server.answers == [{"chosen_options": ["Yes"], "params_input": {"why": "w"}}]


def test_an_answer_waits_until_the_scheduler_has_seen_the_question(server: Server, airflow: AirflowClient) -> None:
    for seconds, answered in ((0, 0), (5, 0), (9, 1)):
        server.asked = datetime.now(UTC) - timedelta(seconds=seconds)
        airflow.answer("known", "r", "approve", option="Yes", given={})
        assert len(server.answers) == answered


def test_a_run_is_awaited_and_its_failure_is_named(
    server: Server, airflow: AirflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.operate.services.airflow_api.POLL_SECONDS", 0)
    server.states = ["queued", "running", "success", "running", "failed"]
    wait(airflow, "known", "mine")
    with refused("RunFailed", match="known is failed: run mine"):
        wait(airflow, "known", "mine")


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
    monkeypatch.setattr("pipelines.operate.services.airflow_api.PARSE_SECONDS", 0.1)
    monkeypatch.setattr(airflow, "get", lambda _: {"import_errors": [{"stack_trace": "a\nValueError: bad\n"}]})
    with refused("RunFailed", match="unknown is not there: ValueError: bad"):
        airflow.unpause("unknown")
