"""A task's child process gets addresses and secrets from Airflow connections, for variables that are not set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from dvc_airflow import command, settings

ROOT = Path(__file__).resolve().parents[2]
FOUND = {"CORPUS_REDDIT_CLIENT_ID": "an-id", "CORPUS_REDDIT_CLIENT_SECRET": "a-secret"}
CHILD = """
import json, os, sys
print(json.dumps({"id": os.environ.get("CORPUS_REDDIT_CLIENT_ID"), "argv": sys.argv[1:],
                  "secret": os.environ.get("CORPUS_REDDIT_CLIENT_SECRET")}))
"""


@pytest.fixture(autouse=True)
def reddit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection, as an environment variable of Airflow's own: one of its secrets backends."""
    for variable in ("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET", "CORPUS_TOGETHER_KEY"):
        monkeypatch.delenv(variable, raising=False)
    given = {"conn_type": "generic", "login": "an-id", "password": "a-secret"}
    monkeypatch.setenv("AIRFLOW_CONN_CORPUS_REDDIT", json.dumps(given))
    monkeypatch.setenv("AIRFLOW_CONN_CRISIS_REDDIT", json.dumps({**given, "login": "another-id"}))
    monkeypatch.setattr(settings, "CONNECTIONS", "reddit")


def test_login_and_password_become_variables() -> None:
    assert command.environment() == FOUND


def test_a_variable_that_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_REDDIT_CLIENT_ID", "set")
    assert command.environment() == {"CORPUS_REDDIT_CLIENT_SECRET": "a-secret"}


def test_with_a_prefix_the_connections_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PREFIX", "crisis_")
    assert command.environment()["CORPUS_REDDIT_CLIENT_ID"] == "another-id"


def test_a_provider_of_your_own_has_an_address_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "generic", "host": "https://llm.example.org/v1", "password": "a-key"}
    monkeypatch.setenv("AIRFLOW_CONN_CORPUS_TOGETHER", json.dumps(given))
    monkeypatch.setattr(settings, "CONNECTIONS", "together")
    found = command.environment()
    assert found == {"CORPUS_TOGETHER_URL": "https://llm.example.org/v1", "CORPUS_TOGETHER_KEY": "a-key"}


class Outage:
    """A database of Airflow that does not answer some requests, as a running task sees it."""

    def __init__(self, *, begins: int, ends: int) -> None:
        self.begins, self.ends, self.asked = begins, ends, 0
        self.dag_id, self.run_id = "posts_collect", "backfill"

    @property
    def now(self) -> bool:
        self.asked += 1
        return self.begins <= self.asked < self.ends

    def get(self, conn_id: str) -> Connection:
        if self.now or conn_id != "corpus_reddit":
            raise AirflowNotFoundException(conn_id)
        return Connection(conn_id=conn_id, conn_type="generic", login="an-id", password="a-secret")

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        if self.now:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        return "running"


# requests 1 and 2 ask for connections, 3 for the run's state, 4 and 5 for the connections that were not found
@pytest.mark.parametrize("begins", range(1, 7))
@pytest.mark.parametrize("length", range(6))
def test_no_outage_of_the_database_hides_a_connection(
    monkeypatch: pytest.MonkeyPatch, begins: int, length: int
) -> None:
    outage = Outage(begins=begins, ends=begins + length)
    monkeypatch.setattr(settings, "CONNECTIONS", "reddit,together")
    monkeypatch.setattr(Connection, "get", outage.get)
    monkeypatch.setattr(command, "_running_task", lambda: outage)
    if begins <= 3 < begins + length:
        with pytest.raises(AirflowRuntimeError):
            command.environment()
    else:
        assert command.environment() == FOUND


def test_the_child_gets_them_in_its_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    package = tmp_path / "pipelines"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(CHILD)
    (tmp_path / "profiles").symlink_to(ROOT / "profiles")
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    answer = command.run("collect", "memes")
    assert (answer["id"], answer["secret"], answer["argv"]) == ("an-id", "a-secret", ["collect", "memes"])
    assert "a-secret" not in caplog.text
