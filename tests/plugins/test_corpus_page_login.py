"""The Corpus page in Airflow's own web application: login, permissions and what its database says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.operate.summary import VERSION

ROOT = Path(__file__).resolve().parents[2]
# A process of its own: Airflow reads its configuration when it is imported; without collecting garbage, in less time.
ASKED = """
import gc, json, sys
gc.disable()
from datetime import UTC, datetime, timedelta
from airflow.models.base import Base
from airflow.settings import engine
from airflow import settings
import airflow.models.dagbundle, airflow.models.errors, airflow.models.team
from airflow.utils.db import import_all_models
import_all_models()
Base.metadata.create_all(settings.engine)
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.testclient import TestClient
from corpus_view.page_plugin import CorpusPage

manager = create_auth_manager()
now = datetime.now(UTC)
with create_session(scoped=False) as session:
    session.add(DagBundleModel(name="dags"))
    session.flush()
    for dag in ("memes_collect", "promote", "deletion_sweep", "deliver"):
        session.add(DagModel(dag_id=dag, bundle_name="dags", is_paused=dag == "deletion_sweep", is_stale=False))
    session.flush()
    def run(dag, number, state, key=None):
        session.add(DagRun(dag_id=dag, run_id=f"r{number}", run_type="manual", state=state, run_after=now,
                           partition_key=key))
    run("memes_collect", 1, "failed", "2022-11")
    run("memes_collect", 2, "success", "2022-11")
    run("memes_collect", 3, "failed", "2022-12")
    run("promote", 4, "failed")
    run("promote", 5, "success")
    run("deliver", 6, "failed")
    run("deliver", 7, "success")
app = FastAPI()
for one in CorpusPage.fastapi_apps:
    app.mount(one["url_prefix"], one["app"])
client = TestClient(app)

def get(token=None, path="/corpus/", cookie=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    client.cookies.clear()
    if cookie:
        client.cookies.set("_token", cookie)
    answer = client.get(path, headers=headers)
    return {"status": answer.status_code, "text": answer.text, "headers": dict(answer.headers)}

def token(role, expires=600):
    return manager.generate_jwt(SimpleAuthManagerUser(username="anna", role=role), expiration_time_in_seconds=expires)

viewer = token("viewer")
told = {
    "none": get(), "forged": get(viewer[:-4] + "AAAA"), "expired": get(token("viewer", -60)), "viewer": get(viewer),
    "cookie": get(cookie=viewer), "css": get(path="/corpus/page.css"), "other": get(path="/corpus/page_app.py"),
    "up": get(path="/corpus/..%2fpage_app.py"), "post": client.post("/corpus/").status_code,
}
manager.get_authorized_dag_ids = lambda **_: {"unrelated"}
told["foreign"] = get(viewer)
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of the page by who asked."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "summary").mkdir()
    found = {"version": VERSION, "written": "2022-12-31T00:00:00+00:00",
             "corpora": {"memes": {"period": ["2022-11", "2022-12"], "months": {}}}}  # fmt: skip
    (folder / "summary" / "corpus.json").write_text(json.dumps(found))
    given = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "CORPUS_"))},
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "CORPUS_HOME": str(folder),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'plugins'}",
    }
    done = subprocess.run([sys.executable, "-c", ASKED], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_a_request_without_a_valid_login_is_refused(told: dict[str, Any]) -> None:
    for who, status in {"none": 401, "forged": 403, "expired": 401}.items():
        assert told[who]["status"] == status, who
        assert "memes" not in told[who]["text"] and "2022" not in told[who]["text"]
    assert "Log in to Airflow" in told["none"]["text"]


def test_a_user_of_airflow_sees_the_page(told: dict[str, Any]) -> None:
    for who in ("viewer", "cookie"):
        assert told[who]["status"] == 200 and "What needs attention" in told[who]["text"]
    headers = told["viewer"]["headers"]
    assert "default-src 'none'" in headers["content-security-policy"] and headers["cache-control"] == "no-store"
    assert "frame-ancestors 'self'" in headers["content-security-policy"]


def test_who_may_read_no_dag_of_the_project_sees_nothing(told: dict[str, Any]) -> None:
    assert told["foreign"]["status"] == 403 and "memes" not in told["foreign"]["text"]


def test_the_last_run_counts_and_every_request_of_its_own(told: dict[str, Any]) -> None:
    text = told["viewer"]["text"]
    assert "memes_collect of 2022-12 failed" in text and "memes_collect of 2022-11 failed" not in text
    assert "Run of promote failed" in text and "Run of deliver failed" not in text
    assert "Dag deletion_sweep is paused" in text


def test_only_the_files_of_the_page_are_served(told: dict[str, Any]) -> None:
    assert told["css"]["status"] == 200 and told["css"]["headers"]["x-content-type-options"] == "nosniff"
    assert told["other"]["status"] == told["up"]["status"] == 404 and told["post"] == 405
