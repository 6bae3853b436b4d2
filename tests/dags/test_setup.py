"""`corpus airflow setup` on a real API server, with a login: it creates pools and connections, and is repeatable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from pipelines.operate.services.airflow_api import Airflow, Login
from tests import airflow_database
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
# Collecting garbage takes a fifth of the time of the imports.
SERVER = """
import gc
gc.disable()
import sys
from airflow import settings
settings.initialize()
import uvicorn
from airflow.api_fastapi.app import create_app
uvicorn.run(create_app(apps="core"), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""
PASSWORD, SECRET = "a-password-of-ops", "a-secret-of-reddit"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An API server with an empty database and one user."""
    home = tmp_path_factory.mktemp("airflow")
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({"ops": PASSWORD}))
    address = f"http://127.0.0.1:{(port := free_port())}"
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflow_database.place(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ops:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "5e" * 64,
    }
    with (home / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], env=environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 180
            while not answers(address):
                assert server.poll() is None, (home / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, "the API server did not start"
                time.sleep(0.3)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/api/v2/version", timeout=10).ok
    except requests.RequestException:
        return False


@pytest.fixture
def airflow(url: str) -> Airflow:
    return Airflow(url, login=Login(user="ops", password=PASSWORD))


def setup(url: str, *argv: str, prefix: str, command: str = "setup", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CORPUS_")},
        "CORPUS_AIRFLOW_URL": url,
        "CORPUS_AIRFLOW_USER": "ops",
        "CORPUS_AIRFLOW_PASSWORD": PASSWORD,
        "CORPUS_AIRFLOW_PREFIX": prefix,
        "CORPUS_REDDIT_CLIENT_ID": "an-id",
        "CORPUS_REDDIT_CLIENT_SECRET": SECRET,
        **more,
    }
    whole = [sys.executable, "-m", "pipelines", "airflow", command, *argv]
    done = subprocess.run(whole, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert PASSWORD not in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
    return done


def test_a_dry_run_changes_nothing(url: str, airflow: Airflow) -> None:
    done = setup(url, "--dry-run", prefix="dry_")
    assert done.returncode == 0
    assert "pool dry_gpu: would be created with 2 slots" in done.stdout
    assert airflow.find("/pools/dry_gpu") is None and airflow.find("/connections/dry_reddit") is None


def test_pools_and_connections_are_created_once(url: str, airflow: Airflow) -> None:
    first, second = setup(url, prefix="crisis_"), setup(url, prefix="crisis_")
    assert first.returncode == second.returncode == 0
    pools = json.loads((ROOT / "profiles" / "pools.json").read_text())
    for name, pool in pools.items():
        assert airflow.get(f"/pools/crisis_{name}")["slots"] == pool["slots"]
        assert f"pool crisis_{name}: unchanged" in second.stdout
    assert airflow.find("/pools/gpu") is None
    connection = airflow.get("/connections/crisis_reddit")
    assert (connection["login"], connection["password"]) == ("an-id", "***")
    assert "set again from CORPUS_REDDIT_CLIENT_ID, CORPUS_REDDIT_CLIENT_SECRET" in second.stdout
    assert airflow.find("/connections/crisis_openai") is None
    assert "connection crisis_openai: not created: CORPUS_OPENAI_URL, CORPUS_OPENAI_KEY not set" in first.stdout


def test_the_slots_that_a_person_set_are_kept(url: str, airflow: Airflow) -> None:
    airflow.set_pools({"own_gpu": {"slots": 8, "description": "ours", "include_deferred": False}})
    assert "pool own_gpu: kept with 8 slots" in setup(url, prefix="own_").stdout
    assert airflow.get("/pools/own_gpu")["slots"] == 8
    assert setup(url, "--reset-slots", prefix="own_").returncode == 0
    assert airflow.get("/pools/own_gpu")["slots"] == 2


def test_an_unknown_dag_is_one_sentence(url: str) -> None:
    done = setup(url, "posts_datasets", "--partition-key", "snapshot", command="trigger", prefix="crisis_")
    assert done.returncode == 64
    assert done.stderr.startswith("UnknownName: There is no Dag 'crisis_posts_datasets'")
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_password_is_one_sentence(url: str) -> None:
    done = setup(url, prefix="", CORPUS_AIRFLOW_USER="unknown")
    assert done.returncode == 78
    assert done.stderr.startswith("AirflowUnavailable: ") and len(done.stderr.splitlines()) == 1


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    began = time.monotonic()
    done = setup(f"http://127.0.0.1:{free_port()}", prefix="")
    assert done.returncode == 78 and "does not answer" in done.stderr
    assert time.monotonic() - began < 60
