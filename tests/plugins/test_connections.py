"""A task's child process gets addresses and secrets from Airflow connections, for variables that are not set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvc_airflow import command, connections, settings

ROOT = Path(__file__).resolve().parents[2]
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
    found = connections.environment()
    assert found == {"CORPUS_REDDIT_CLIENT_ID": "an-id", "CORPUS_REDDIT_CLIENT_SECRET": "a-secret"}


def test_a_variable_that_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_REDDIT_CLIENT_ID", "set")
    assert connections.environment() == {"CORPUS_REDDIT_CLIENT_SECRET": "a-secret"}


def test_with_a_prefix_the_connections_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PREFIX", "crisis_")
    assert connections.environment()["CORPUS_REDDIT_CLIENT_ID"] == "another-id"


def test_a_provider_of_your_own_has_an_address_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "generic", "host": "https://llm.example.org/v1", "password": "a-key"}
    monkeypatch.setenv("AIRFLOW_CONN_CORPUS_TOGETHER", json.dumps(given))
    monkeypatch.setattr(settings, "CONNECTIONS", "together")
    found = connections.environment()
    assert found == {"CORPUS_TOGETHER_URL": "https://llm.example.org/v1", "CORPUS_TOGETHER_KEY": "a-key"}


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
