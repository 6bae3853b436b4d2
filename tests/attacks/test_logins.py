"""The real web servers of Airflow and MLflow against another user of the host and against web pages."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from pipelines.core.components import down, running
from pipelines.core.config.settings import ADMIN, APPROVER, TRACKING, Settings, password_of
from pipelines.operate.services.airflow_api import Airflow, Login
from pipelines.operate.services.airflow_setup import connect
from pipelines.operate.services.services import LocalDeployment
from tests import airflow_database, mlflow_database
from tests.attacks.other_user import asked, attack, needs_another_user, reachable_folder
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
# The web server alone, without scheduler and PostgreSQL, with all of its applications. Collecting garbage takes a fifth
# of the time of the imports.
AIRFLOW = """
import gc
gc.disable()
import sys
from airflow import settings
settings.initialize()
import uvicorn
from airflow.api_fastapi.app import create_app
uvicorn.run(create_app(apps="all"), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""
# Paths of the interface, the REST API, the login and the tasks' API.
PLACES = ("/", "/api/v2/version", "/api/v2/dags", "/auth/token", "/execution/health")
STORED = "a-password-in-a-connection"


@dataclass(frozen=True)
class Servers:
    home: Path
    deployment: LocalDeployment
    airflow: str
    mlflow: str


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with reachable_folder() as folder, pytest.MonkeyPatch.context() as patch:
        home = folder / "var"
        for name, value in (("CORPUS_HOME", str(home)), ("AIRFLOW_PORT", free_port()), ("MLFLOW_PORT", free_port())):
            patch.setenv(name, str(value))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
            patch.delenv(name, raising=False)
        settings = Settings.from_env()
        deployment = LocalDeployment(settings, root=ROOT, profile="sandbox")
        deployment.logs.mkdir(mode=0o700)
        databases = [airflow_database.place(home / "airflow"), mlflow_database.place(home)]
        for place in databases:
            Path(place.removeprefix("sqlite:///")).chmod(0o600)
        environment = {
            **deployment.environment,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": databases[0],
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "PYTHONPATH": str(ROOT),
        }
        patch.setenv("PYTHONPATH", str(ROOT))
        log = home / "logs" / "api-server.log"
        airflow = f"http://127.0.0.1:{deployment.ports.airflow}"
        with log.open("w") as out:
            argv = [sys.executable, "-c", AIRFLOW, str(deployment.ports.airflow)]
            server = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=out, stderr=out, umask=0o077)
        try:
            deployment._mlflow()
            deadline = time.monotonic() + 180
            while not answers(airflow):
                assert server.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, "the API server did not start"
                time.sleep(0.3)
            yield Servers(home, deployment, airflow, f"http://127.0.0.1:{deployment.ports.mlflow}")
        finally:
            server.terminate()
            server.wait(30)
            down(settings)


def answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/api/v2/version", timeout=10).ok
    except requests.RequestException:
        return False


def test_the_servers_pass_the_check_of_the_start(servers: Servers) -> None:
    health = f"{servers.airflow}/api/v2/monitor/health"
    servers.deployment._require_guard("airflow-api-server", open_to_all=health, login=f"{servers.airflow}/auth/token")


@pytest.fixture
def login(servers: Servers) -> Login:
    return servers.deployment.login(ADMIN)


@needs_another_user
def test_another_user_gets_no_token_and_no_password(servers: Servers) -> None:
    token = f"{servers.airflow}/auth/token"
    assert asked(token) == "403"
    guess = json.dumps({"username": "admin", "password": "admin"})
    assert asked(token, "--header", "Content-Type: application/json", "--data", guess) == "401"
    assert asked(f"{servers.airflow}/auth/token/login") == "403"
    assert asked(f"{servers.airflow}/api/v2/dags") == "401"
    assert asked(f"{servers.airflow}/api/v2/dags", "--header", "Authorization: Bearer a.b.c") in {"401", "403"}
    read = attack("cat", str(servers.deployment.passwords))
    assert read.returncode != 0 and read.stdout == ""


@needs_another_user
def test_another_user_reads_and_writes_nothing_in_mlflow(servers: Servers) -> None:
    search = f"{servers.mlflow}/api/2.0/mlflow/experiments/search"
    assert asked(f"{servers.mlflow}/") == asked(search, "--json", '{"max_results": 1}') == "401"
    create = f"{servers.mlflow}/api/2.0/mlflow/registered-models/create"
    assert asked(create, "--user", "mlflow:mlflow", "--json", '{"name": "theirs"}') == "401"
    assert asked(f"{servers.mlflow}/health") == "200", "`up` waits for it"


@pytest.mark.parametrize("path", PLACES)
def test_a_page_that_rebinds_its_name_is_refused(servers: Servers, path: str) -> None:
    port = servers.deployment.ports.airflow
    for host in (f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}", ""):
        assert requests.get(servers.airflow + path, headers={"Host": host}, timeout=30).status_code == 403
    own = requests.get(servers.airflow + path, headers={"Host": f"localhost:{port}"}, timeout=30, allow_redirects=False)
    assert own.status_code != 403 or path == "/auth/token", "its own address"


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9", "https://localhost", "null"])
def test_a_page_of_another_origin_is_refused(servers: Servers, path: str, origin: str) -> None:
    given = {"Origin": origin, "Content-Type": "text/plain"}
    assert requests.post(servers.airflow + path, headers=given, data="{}", timeout=30).status_code == 403


def test_mlflow_refuses_pages_even_with_the_password(servers: Servers) -> None:
    login = (TRACKING, password_of(servers.home, TRACKING))
    search, body = f"{servers.mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 1}
    assert requests.post(search, json=body, auth=login, timeout=30).status_code == 200
    for header in ({"Host": "evil.example"}, {"Origin": "http://localhost:9"}, {"Origin": "null"}):
        assert requests.post(search, json=body, auth=login, headers=header, timeout=30).status_code == 403


def test_the_interface_of_the_same_origin_is_served(servers: Servers, login: Login) -> None:
    given = {"Origin": servers.airflow}
    body = {"username": login.user, "password": login.password}
    answer = requests.post(f"{servers.airflow}/auth/token", json=body, headers=given, timeout=30)
    assert answer.status_code == 201 and answer.json()["access_token"]


def test_each_user_of_airflow_may_do_its_part(servers: Servers) -> None:
    admin, approver = (servers.deployment.client(user) for user in (ADMIN, APPROVER))
    admin.set_pools({"made": {"slots": 1, "description": "", "include_deferred": False}})
    assert approver.get("/dags")["dags"] == []
    with pytest.raises(requests.HTTPError, match="403"):
        approver.set_pools({"more": {"slots": 1, "description": "", "include_deferred": False}})
    with pytest.raises(requests.HTTPError, match="403"):
        Airflow(servers.airflow, patience=0)


def test_commands_find_the_login_of_the_embedded_airflow(servers: Servers) -> None:
    assert connect(servers.airflow, environment={}, home=servers.home).get("/dags")["dags"] == []


def test_mlflows_own_client_logs_in(servers: Servers, tmp_path: Path) -> None:
    """A command in a shell without variables: the home has the address and the password."""
    script = """
from pipelines.core.config.settings import Settings
from mlflow import MlflowClient
client = MlflowClient(Settings.from_env().mlflow_tracking_uri)
run = client.create_run(client.create_experiment("ours"))
client.log_text(run.info.run_id, "a report", "report.txt")
print([one.path for one in client.list_artifacts(run.info.run_id)])
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, env=kept, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "['report.txt']\n", done.stderr[-2000:]


def test_passwords_of_connections_are_encrypted_in_the_database(servers: Servers) -> None:
    client = servers.deployment.client()
    client.set_connections({"theirs": {"conn_type": "generic", "password": STORED}})
    with sqlite3.connect(servers.home / "airflow" / "airflow.db") as database:
        [(password, encrypted)] = database.execute("select password, is_encrypted from connection").fetchall()
    assert encrypted and STORED not in password
    assert client.get("/connections/theirs")["connection_id"] == "theirs"


def test_passwords_are_private_and_in_no_log(servers: Servers, login: Login) -> None:
    assert stat.S_IMODE(servers.deployment.passwords.stat().st_mode) == 0o600
    known = json.loads(servers.deployment.passwords.read_text())
    assert set(known) == {"admin", "approver", "mlflow"} and len({*known.values()}) == 3
    assert all(len(password) >= 32 for password in known.values()) and login.password not in repr(login)
    for log in (servers.home / "logs").iterdir():
        assert not [name for name, password in known.items() if password in log.read_text()], log.name


def test_components_other_than_the_scheduler_have_no_secret(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_SECRET", "7e" * 64)
    monkeypatch.setenv("CORPUS_VAULT_URL", "postgresql+psycopg2://a:b@127.0.0.1/vault")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    found = {}
    for name in ("airflow-scheduler", "airflow-api-server"):
        servers.deployment._start(name, sleep)
        process = running(servers.deployment.run / f"{name}.pid")
        assert process is not None
        # empty while the process replaces its program
        while "CORPUS_HOME" not in (environment := process.environ()):
            time.sleep(0.05)
        found[name] = environment
    assert found["airflow-scheduler"]["CORPUS_SECRET"] == "7e" * 64
    assert not {"CORPUS_SECRET", "CORPUS_VAULT_URL", "CORPUS_OPENAI_KEY"} & found["airflow-api-server"].keys()
    assert "7e" * 64 not in servers.deployment._exports()
