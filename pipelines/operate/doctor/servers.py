"""Check MLflow and Airflow, approvals, and the credentials of sources and providers with the cheapest call of each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import wraps
from http import HTTPStatus

import requests

from pipelines.collect.month import Window
from pipelines.collect.read.engine import ENGINES
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import Source, open_source
from pipelines.core.config.label import Consent, RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.errors import SourceNotApproved
from pipelines.llm.vendor import Provider
from pipelines.operate.doctor.deployment import Deployment, Finding, failure, of_error, ok, warning, within
from pipelines.operate.services.airflow_api import Airflow, AirflowUnavailable, named
from pipelines.operate.services.airflow_setup import address, connect
from pipelines.takedown.sweep import lookups
from pipelines.workspace import dag_graph
from pipelines.workspace.git import git

START = "Start it (embedded: `make demo`; its log is in `logs` below CORPUS_HOME)."
HOURS = ("CORPUS_AIRFLOW_SWEEP_HOURS", "CORPUS_AIRFLOW_MONTH_HOURS")
COMPONENTS = ("metadatabase", "scheduler", "dag_processor")


def mlflow(deployment: Deployment) -> Finding:
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
        answer = requests.get(f"{uri.rstrip('/')}/health", timeout=deployment.seconds)
    except requests.RequestException as error:
        return failure(f"no answer ({type(error).__name__})", fix=f"{START} Or correct MLFLOW_TRACKING_URI.")
    if answer.status_code != HTTPStatus.OK:
        return failure(f"HTTP {answer.status_code}", fix="Check MLFLOW_TRACKING_URI and the server's credentials.")
    return ok("answers")


def airflow(deployment: Deployment) -> Finding:
    """Check the health of Airflow's components, for which no credentials are needed."""
    states = _health(deployment)
    if isinstance(states, Finding):
        return states
    if ill := [name for name in COMPONENTS if states.get(name) != "healthy"]:
        return failure(f"not healthy: {', '.join(ill)}", fix=f"Restart Airflow's component {ill[0]} and read its log.")
    return ok(f"healthy: {', '.join(COMPONENTS)}")


def _health(deployment: Deployment) -> dict[str, str | None] | Finding:
    """Return the state by component; ``None``: it has never run."""
    base = address(deployment.settings.home)
    if base is None:
        return warning("no address is known", fix="Set CORPUS_AIRFLOW_URL, or start it with `make demo`.")
    try:
        health = requests.get(f"{base}/api/v2/monitor/health", timeout=deployment.seconds).json()
        return {name: (state or {}).get("status") for name, state in health.items()}
    except (requests.RequestException, ValueError, AttributeError) as error:
        return failure(f"no answer ({type(error).__name__})", fix=f"{START} Or correct CORPUS_AIRFLOW_URL.")


def deadlines(deployment: Deployment) -> Finding:
    """Check that Airflow's triggerer runs: without one, no one is notified of a Dag run's missed deadline."""
    if all(os.environ.get(name) in ("0", "0.0") for name in HOURS):
        return ok("there are none")
    states = _health(deployment)
    if isinstance(states, Finding):
        return warning("not examined: Airflow does not answer", fix="See the check 'airflow'.")
    if states.get("triggerer") == "healthy":
        return ok("a triggerer notifies of missed ones")
    text, fix = "no triggerer runs, so a missed deadline notifies no one", f"or set {' and '.join(HOURS)} to 0."
    if os.environ.get("CORPUS_AIRFLOW_NOTIFY"):
        return failure(text, fix=f"Start `airflow triggerer` (embedded: `corpus up`), {fix}")
    return warning(text, fix=f"Set CORPUS_AIRFLOW_NOTIFY and start `airflow triggerer` (docs/airflow.md), {fix}")


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


def _asking(check: Callable[[Deployment, Airflow], Finding]) -> Callable[[Deployment], Finding]:
    """Give a check a client of Airflow; that Airflow does not answer is a finding of the check ``airflow``."""

    @wraps(check)
    def run(deployment: Deployment) -> Finding:
        home = deployment.settings.home
        if (base := address(home)) is None:
            return warning("not examined: no address of Airflow is known", fix="See the check 'airflow'.")
        try:
            return check(deployment, connect(base, environment=os.environ, home=home))
        except AirflowUnavailable as error:
            return of_error(error, status="warning")

    return run


@_asking
def pools(deployment: Deployment, client: Airflow) -> Finding:
    """Check that Airflow has every pool of ``profiles/pools.json``, and one for each provider, with a slot."""
    listed = json.loads((deployment.root / "profiles" / "pools.json").read_text())
    wanted = sorted(named(name) for name in {*listed, *deployment.params.providers})
    slots = {pool["name"]: pool["slots"] for pool in client.get("/pools", limit=1000)["pools"]}
    if missing := [name for name in wanted if name not in slots]:
        return failure(f"missing: {', '.join(missing)}", fix="Run `corpus airflow setup`.")
    if empty := [name for name in wanted if slots[name] == 0]:
        return failure(f"without a slot: {', '.join(empty)}", fix="Run `corpus airflow setup --reset-slots`.")
    return ok(f"{len(wanted)} pools")


@_asking
def queues(deployment: Deployment, client: Airflow) -> Finding:
    """Check that an Airflow scheduler runs, and that no task waits too long in a queue for a worker.

    Airflow's API lists schedulers, but no workers: a task that stays queued is the evidence that its queue has none. A
    local executor takes the tasks of all queues.
    """
    jobs = client.get("/jobs", job_type="SchedulerJob", is_alive="true")["jobs"]
    if not jobs:
        return failure("no live scheduler, so no queue has a worker", fix="Start it: `airflow scheduler`.")
    oldest = deployment.now - timedelta(minutes=deployment.params.doctor.queued_minutes)
    tasks = client.get("/dags/~/dagRuns/~/taskInstances", state="queued", limit=100)["task_instances"]
    since = [(task["queue"], task["queued_when"]) for task in tasks if task.get("queued_when")]
    waiting = [str(queue) for queue, when in since if datetime.fromisoformat(when) < oldest]
    if stuck := sorted(set(waiting)):
        return failure(
            f"no worker takes queue {', '.join(stuck)}: {len(waiting)} tasks wait for over "
            f"{deployment.params.doctor.queued_minutes} min",
            fix=f"Start a worker: `airflow celery worker --queues {','.join(stuck)}`.",
        )
    options = json.loads((deployment.root / "profiles" / "tasks.json").read_text()).values()
    queues = sorted({"default", *(of_task["queue"] for of_task in options if "queue" in of_task)})
    return ok(f"no task waits for a worker of {', '.join(queues)}")


@_asking
def housekeeping(deployment: Deployment, client: Airflow) -> Finding:
    """Check when the Dag ``housekeeping`` last succeeded: not longer ago than the limit, unless it is paused."""
    dag_id = named("housekeeping")
    dag = client.find(f"/dags/{dag_id}")
    if dag is None or dag.get("is_paused"):
        return ok("not scheduled: its Dag is paused" if dag else "not scheduled: Airflow has no such Dag")
    runs = client.get(f"/dags/{dag_id}/dagRuns", order_by="-run_after", limit=100)["dag_runs"]
    ends = [run["end_date"] for run in runs if run["state"] == "success" and run["end_date"]]
    # of a Dag that never succeeded, since its first run was due
    since = map(datetime.fromisoformat, ends or [run["run_after"] for run in runs])
    age = (deployment.now - (max if ends else min)(since, default=deployment.now)) / timedelta(hours=1)
    text = f"last succeeded {max(age, 0):.0f} h ago" if ends else "not succeeded yet"
    fix = f"Read the log of the Dag {dag_id} and clear its task, or run `corpus housekeeping`."
    return within(deployment, "housekeeping_hours", age, found=text, fix=fix, fine=text)


def sources(params: Params) -> list[str]:
    """Return the sources to check: those of the corpora, and approved ones that the sweep asks."""
    approved = {name for name in lookups(params) if params.sources[name].approval}
    return sorted({name for corpus in params.corpora.values() for name in corpus.sources} | approved)


def labellers(params: Params) -> dict[str, RemoteLabeller]:
    """Return the remote labellers in use: those that vote, and those that a trained or prompted model queries."""
    models = [params.models[name] for name in params.used_models]
    asked = {name for model in models for name in (model.rationales, getattr(model, "labeller", None)) if name}
    voting = {name for names in params.votes.labellers.values() for name in names}
    named = {name: params.labellers[name] for name in sorted(voting | asked)}
    return {name: labeller for name, labeller in named.items() if isinstance(labeller, RemoteLabeller)}


def approval(deployment: Deployment, name: str) -> Finding:
    """Check that ``params.yaml`` has an approval to read a source of posts, and for how long."""
    source = deployment.params.sources[name]
    source.check(name, today=deployment.now.date())
    if not source.live or source.expires is None:
        return ok("ethics approval on record; its terms need no other")
    return _until(deployment, source.expires, what="approval", key=f"sources.{name}.expires")


def recipients(params: Params) -> list[str]:
    """Return the providers to which posts or images are sent: of labellers and moderators in use, and of remote OCR."""
    pictures = any(corpus.content == "images" for corpus in params.corpora.values())
    engine = params.images.ocr.engine
    engines = {engine} if pictures and ENGINES.get(engine, params.distributions).remote else set()
    audited = {params.moderators[name].provider for names in params.moderation.systems.values() for name in names}
    return sorted({labeller.provider for labeller in labellers(params).values()} | audited | engines)


def consent(deployment: Deployment, name: str) -> Finding:
    """Check that ``params.yaml`` lets a provider receive posts or images, and for how long."""
    if name in deployment.params.providers and _provider(deployment, name).here:
        return ok("on this machine, needs no consent")
    granted = deployment.params.consents.get(name, Consent())
    granted.check(name, today=deployment.now.date())
    return _until(deployment, granted.expires or deployment.now.date(), what="consent", key=f"consents.{name}.expires")


def _until(deployment: Deployment, expires: date, *, what: str, key: str) -> Finding:
    days = (expires - deployment.now.date()).days
    if days <= deployment.params.doctor.expires_days:
        fix = f"Renew the {what}, then set {key} in params.yaml."
        return warning(f"the {what} ends on {expires}, in {days} days", fix=fix)
    return ok(f"until {expires}")


def source(deployment: Deployment, name: str) -> Finding:
    """Test a source of posts with its cheapest request."""
    params, settings = deployment.params, deployment.settings
    try:
        params.sources[name].check(name, today=deployment.now.date())
    except SourceNotApproved:
        return warning("not tried, because it is not approved", fix=f"See the check 'approval {name}'.")
    corpora = [corpus for corpus in params.corpora.values() if name in corpus.sources]
    subreddits = [s for corpus in corpora or params.corpora.values() for s in corpus.subreddits]
    windows = [Window.from_key(corpus.last_month or corpus.first_month) for corpus in corpora]
    try:
        opened = open_source(name, Source, params=params, settings=settings, today=deployment.now.date())
        return ok(opened.probe(windows=windows, subreddits=subreddits))
    except SubredditClosed as error:
        return of_error(error, status="warning")


def labeller(deployment: Deployment, name: str) -> Finding:
    """Check that a remote labeller's model is not retired, and that its provider answers at no cost."""
    asked, today = labellers(deployment.params)[name], deployment.now.date()
    provider = _provider(deployment, asked.provider)
    if provider.address is None:
        return failure("no address is set", fix=f"Set {provider.variable}_URL.")
    if not (provider.endpoint.url or provider.endpoint.key.get_secret_value()):
        return failure("no key is set", fix=f"Set {provider.variable}_KEY.")
    notice = provider.retirement(asked.model)
    retired = notice is not None and notice.retired <= today
    finding = ok("retired") if retired else _answering(deployment, provider, asked=asked, name=name)
    if notice is None or finding.status != "ok":
        return finding
    host = f"Set {provider.variable}_URL to a host that serves it"
    fix = f"{host}, or add a labeller of another name for {notice.successor}."
    return (failure if retired else warning)(f"{asked.model} {notice.told(today=today)}", fix=fix)


def _provider(deployment: Deployment, name: str) -> Provider:
    return Provider.of(name, params=deployment.params, settings=deployment.settings)


def _answering(deployment: Deployment, provider: Provider, *, asked: RemoteLabeller, name: str) -> Finding:
    """Request a labeller's model, or its provider's list of models: of OpenAI's protocol, some have no page of one."""
    model, variable, vendor = asked.model, provider.variable, provider.vendor
    if not vendor.model_page:
        return ok("not tried, because its vendor has no page that costs nothing")
    path, headers = vendor.model_page.format(model=model), vendor.headers(provider.key)
    address = f"{(provider.address or '').rstrip('/')}{path}"
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(address, headers=headers, timeout=deployment.seconds, allow_redirects=False)
            known = not path.endswith("/models") or model in {entry["id"] for entry in answer.json()["data"]}
        except (ValueError, KeyError, TypeError):
            known = answer.status_code != HTTPStatus.OK
        except requests.RequestException as error:
            return failure(f"the provider does not answer ({type(error).__name__})", fix=f"Check {variable}_URL.")
    change = f"Set labellers.{name}.model in catalogue.yaml to a model that it serves."
    if answer.status_code == HTTPStatus.NOT_FOUND or not known:
        return failure(f"the provider has no model {model}", fix=change)
    if answer.status_code != HTTPStatus.OK:
        fix = f"Check {variable}_KEY, {variable}_URL and the account's quota."
        return failure(f"the provider answers HTTP {answer.status_code}", fix=fix)
    if vendor.deprecated(model):
        return warning(f"the provider will retire model {model}", fix=change)
    return ok(f"the provider serves {model}")
