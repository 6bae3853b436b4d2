"""Check MLflow and Airflow: health, the graph of the Dags, deadlines, pools, workers of queues, housekeeping."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests

from pipelines.deployment.airflow_api import Airflow, AirflowUnavailable, named
from pipelines.deployment.airflow_setup import address, connect
from pipelines.doctor.deployment import Deployment, git
from pipelines.doctor.finding import Finding, failure, of_error, ok, warning
from pipelines.workspace import dag_graph

START = "Start it (embedded: `make demo`; its log is in `logs` below CORPUS_HOME)."
HOURS = ("CORPUS_AIRFLOW_SWEEP_HOURS", "CORPUS_AIRFLOW_MONTH_HOURS")
COMPONENTS = ("metadatabase", "scheduler", "dag_processor")


def mlflow(deployment: Deployment, *, seconds: float) -> Finding:
    """Check that MLflow reports itself as healthy."""
    uri = deployment.settings.mlflow_tracking_uri
    if not uri:
        return warning(
            "MLFLOW_TRACKING_URI is not set, so nothing is tracked or registered",
            fix="Set MLFLOW_TRACKING_URI to the address of the tracking server.",
        )
    if not uri.startswith("http"):
        return ok("a local store")
    try:
        answer = requests.get(f"{uri.rstrip('/')}/health", timeout=seconds)
    except requests.RequestException as error:
        return failure(f"no answer ({type(error).__name__})", fix=f"{START} Or correct MLFLOW_TRACKING_URI.")
    if answer.status_code != HTTPStatus.OK:
        return failure(f"HTTP {answer.status_code}", fix="Check MLFLOW_TRACKING_URI and the server's credentials.")
    return ok("answers")


def airflow(deployment: Deployment, *, seconds: float) -> Finding:
    """Check the health of Airflow's components, for which no credentials are needed."""
    states = _health(deployment, seconds=seconds)
    if isinstance(states, Finding):
        return states
    if ill := [name for name in COMPONENTS if states.get(name) != "healthy"]:
        return failure(f"not healthy: {', '.join(ill)}", fix=f"Restart Airflow's component {ill[0]} and read its log.")
    return ok(f"healthy: {', '.join(COMPONENTS)}")


def _health(deployment: Deployment, *, seconds: float) -> dict[str, str | None] | Finding:
    base = address(deployment.settings.home)
    if base is None:
        return warning("no address is known", fix="Set CORPUS_AIRFLOW_URL, or start it with `make demo`.")
    try:
        health = requests.get(f"{base}/api/v2/monitor/health", timeout=seconds).json()
        return {name: (found or {}).get("status") for name, found in health.items()}
    except (requests.RequestException, ValueError, AttributeError) as error:
        return failure(f"no answer ({type(error).__name__})", fix=f"{START} Or correct CORPUS_AIRFLOW_URL.")


def deadlines(deployment: Deployment, *, seconds: float) -> Finding:
    """Check that Airflow's triggerer runs: without one, no one is notified of a Dag run's missed deadline."""
    if all(os.environ.get(name) in ("0", "0.0") for name in HOURS):
        return ok("there are none")
    states = _health(deployment, seconds=seconds)
    if isinstance(states, Finding):
        return warning("not examined: Airflow does not answer", fix="See the check 'airflow'.")
    if states.get("triggerer") == "healthy":
        return ok("a triggerer notifies of missed ones")
    found, fix = "no triggerer runs, so a missed deadline notifies no one", f"or set {' and '.join(HOURS)} to 0."
    if os.environ.get("CORPUS_AIRFLOW_NOTIFY"):
        return failure(found, fix=f"Start `airflow triggerer` (embedded: `corpus sandbox up`), {fix}")
    return warning(found, fix=f"Set CORPUS_AIRFLOW_NOTIFY and start `airflow triggerer` (docs/airflow.md), {fix}")


def graph(deployment: Deployment) -> Finding:
    """Check that Airflow's Dags follow the stages of the corpus branch's newest commit, if this host parses them."""
    clone, home = deployment.clone, deployment.settings.home
    if clone is None:
        return warning("not examined without a repository", fix="See the check 'repository'.")
    if not dag_graph.file(home).exists():
        return warning(
            "this CORPUS_HOME has no graph, so that no Dags are rendered from it",
            fix="On the host of the Dag processor, run `corpus airflow refresh`; elsewhere it is not needed.",
        )
    if not dag_graph.current(home, dag_graph.read(lambda name: git("show", f"HEAD:{name}", cwd=clone))):
        return failure(
            "the graph in CORPUS_HOME, from which Airflow renders the Dags, is not that of the corpus branch",
            fix="Run `corpus airflow refresh` on the host of the Dag processor.",
        )
    return ok("the Dags have the graph of the corpus branch")


def pools(deployment: Deployment) -> Finding:
    """Check that Airflow has every pool of ``profiles/pools.json``, and one for each provider, with a slot."""
    client = _client(deployment)
    if isinstance(client, Finding):
        return client
    listed = json.loads((deployment.root / "profiles" / "pools.json").read_text())
    wanted = sorted(named(name) for name in {*listed, *deployment.params.providers})
    slots = {pool["name"]: pool["slots"] for pool in client.get("/pools", limit=1000)["pools"]}
    if missing := [name for name in wanted if name not in slots]:
        return failure(f"missing: {', '.join(missing)}", fix="Run `corpus airflow setup`.")
    if empty := [name for name in wanted if slots[name] == 0]:
        return failure(f"without a slot: {', '.join(empty)}", fix="Run `corpus airflow setup --reset-slots`.")
    return ok(f"{len(wanted)} pools")


def queues(deployment: Deployment) -> Finding:
    """Check that an Airflow scheduler runs, and that no task waits too long in a queue for a worker.

    Airflow's API lists schedulers, but no workers: a task that stays queued is the evidence that its queue has none. A
    local executor takes the tasks of all queues.
    """
    client = _client(deployment)
    if isinstance(client, Finding):
        return client
    jobs = client.get("/jobs", job_type="SchedulerJob", is_alive="true")["jobs"]
    if not jobs:
        return failure("no live scheduler, so no queue has a worker", fix="Start it: `airflow scheduler`.")
    oldest = deployment.now - timedelta(minutes=deployment.limits.queued_minutes)
    waiting = [task for task in _queued(client) if _time(task["queued_when"]) < oldest]
    stuck = sorted({str(task["queue"]) for task in waiting})
    if stuck:
        return failure(
            f"no worker takes queue {', '.join(stuck)}: {len(waiting)} tasks wait for over "
            f"{deployment.limits.queued_minutes} min",
            fix=f"Start a worker: `airflow celery worker --queues {','.join(stuck)}`.",
        )
    return ok(f"no task waits for a worker of {', '.join(wanted_queues(deployment.root))}")


def housekeeping(deployment: Deployment) -> Finding:
    """Check when the Dag ``housekeeping`` last succeeded: not longer ago than the limit, unless it is paused."""
    client, hours = _client(deployment), deployment.limits.housekeeping_hours
    if isinstance(client, Finding):
        return client
    dag_id = named("housekeeping")
    dag = client.find(f"/dags/{dag_id}")
    if dag is None or dag.get("is_paused"):
        return ok("not scheduled: its Dag is paused" if dag else "not scheduled: Airflow has no such Dag")
    runs = client.get(f"/dags/{dag_id}/dagRuns", order_by="-run_after", limit=100)["dag_runs"]
    ends = [_time(run["end_date"]) for run in runs if run["state"] == "success" and run["end_date"]]
    # of a Dag that never succeeded, since its first run was due
    since = max(ends, default=None) or min((_time(run["run_after"]) for run in runs), default=deployment.now)
    age = (deployment.now - since) / timedelta(hours=1)
    found = f"last succeeded {max(age, 0):.0f} h ago" if ends else "not succeeded yet"
    if age > hours:
        fix = f"Read the log of the Dag {dag_id} and clear its task, or run `corpus housekeeping`."
        return failure(f"{found}, more than doctor.housekeeping_hours ({hours})", fix=fix)
    return ok(found)


def wanted_queues(root: Path) -> list[str]:
    """Return the Airflow task queues that the project's tasks name, and ``default``."""
    options = json.loads((root / "profiles" / "tasks.json").read_text()).values()
    return sorted({"default", *(found["queue"] for found in options if "queue" in found)})


def _queued(client: Airflow) -> list[dict[str, Any]]:
    found = client.get("/dags/~/dagRuns/~/taskInstances", state="queued", limit=100)["task_instances"]
    return [task for task in found if task.get("queued_when")]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _client(deployment: Deployment) -> Airflow | Finding:
    base = address(deployment.settings.home)
    if base is None:
        return warning("not examined: no address of Airflow is known", fix="See the check 'airflow'.")
    try:
        return connect(base, environment=os.environ, home=deployment.settings.home)
    except AirflowUnavailable as error:
        # that it does not answer is a finding of the check 'airflow'
        return of_error(error, status="warning")
