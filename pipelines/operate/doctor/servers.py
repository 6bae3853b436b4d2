"""Check MLflow and Airflow, approvals, and the credentials of sources and providers with the cheapest call of each."""

from __future__ import annotations

import json
import os
from datetime import date, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests

from pipelines.collect.month import Window
from pipelines.collect.read.ocr import GOOGLE_VISION
from pipelines.core.config.collect import SourceName
from pipelines.core.config.label import Api, Consent, RemoteLabeller, on_this_machine
from pipelines.core.config.models import PromptedModel, WithRationales
from pipelines.core.config.params import Params
from pipelines.core.errors import SourceNotApproved
from pipelines.llm.addresses import ADDRESSES, NO_KEY
from pipelines.llm.capabilities import deprecated
from pipelines.llm.retirements import retirement
from pipelines.operate.doctor.deployment import Deployment, git
from pipelines.operate.doctor.finding import Finding, failure, of_error, ok, warning
from pipelines.operate.services.airflow_api import Airflow, AirflowUnavailable, named
from pipelines.operate.services.airflow_setup import address, connect
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
        return {name: (state or {}).get("status") for name, state in health.items()}
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
    text, fix = "no triggerer runs, so a missed deadline notifies no one", f"or set {' and '.join(HOURS)} to 0."
    if os.environ.get("CORPUS_AIRFLOW_NOTIFY"):
        return failure(text, fix=f"Start `airflow triggerer` (embedded: `corpus sandbox up`), {fix}")
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
    text = f"last succeeded {max(age, 0):.0f} h ago" if ends else "not succeeded yet"
    if age > hours:
        fix = f"Read the log of the Dag {dag_id} and clear its task, or run `corpus housekeeping`."
        return failure(f"{text}, more than doctor.housekeeping_hours ({hours})", fix=fix)
    return ok(text)


def wanted_queues(root: Path) -> list[str]:
    """Return the Airflow task queues that the project's tasks name, and ``default``."""
    options = json.loads((root / "profiles" / "tasks.json").read_text()).values()
    return sorted({"default", *(options_of_task["queue"] for options_of_task in options if "queue" in options_of_task)})


def _queued(client: Airflow) -> list[dict[str, Any]]:
    tasks = client.get("/dags/~/dagRuns/~/taskInstances", state="queued", limit=100)["task_instances"]
    return [task for task in tasks if task.get("queued_when")]


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


def sources(params: Params) -> list[SourceName]:
    """Return the sources of posts to check: those of the corpora and, if approved, Reddit, which the sweep asks."""
    approved: set[SourceName] = {"reddit"} if params.sources["reddit"].approval else set()
    return sorted({name for corpus in params.corpora.values() for name in corpus.sources} | approved)


def labellers(params: Params) -> dict[str, RemoteLabeller]:
    """Return the remote labellers in use: those that vote, and those that a trained or prompted model queries."""
    models = [params.models[n] for n in (*params.prompted.models, *params.train.models, *params.baselines.models)]
    asked = {model.labeller for model in models if isinstance(model, PromptedModel | WithRationales)}
    named = {name: params.labellers[name] for name in sorted({*params.votes.labellers, *asked})}
    return {name: labeller for name, labeller in named.items() if isinstance(labeller, RemoteLabeller)}


def approval(deployment: Deployment, name: SourceName) -> Finding:
    """Check that ``params.yaml`` has an approval to read a source of posts, and for how long."""
    source = deployment.params.sources[name]
    source.check(name, today=deployment.now.date())
    if not source.live or source.expires is None:
        return ok("ethics approval on record; its terms need no other")
    return _until(deployment, source.expires, what="approval", key=f"sources.{name}.expires")


def recipients(params: Params) -> list[str]:
    """Return the providers to which posts or images are sent: of labellers and moderators in use, and of remote OCR."""
    pictures = any(corpus.content == "images" for corpus in params.corpora.values())
    engines = {params.images.ocr.engine} & {GOOGLE_VISION} if pictures else set()
    audited = {params.moderators[name].provider for names in params.moderation.systems.values() for name in names}
    return sorted({labeller.provider for labeller in labellers(params).values()} | audited | engines)


def consent(deployment: Deployment, name: str) -> Finding:
    """Check that ``params.yaml`` lets a provider receive posts or images, and for how long."""
    if name != GOOGLE_VISION and on_this_machine(deployment.settings.endpoint(name).url):
        return ok("on this machine, needs no consent")
    granted = deployment.params.consents.get(name, Consent())
    granted.check(name, today=deployment.now.date())
    return _until(deployment, granted.expires or deployment.now.date(), what="consent", key=f"consents.{name}.expires")


def _until(deployment: Deployment, expires: date, *, what: str, key: str) -> Finding:
    days = (expires - deployment.now.date()).days
    if days <= deployment.limits.expires_days:
        return warning(
            f"the {what} ends on {expires}, in {days} days", fix=f"Renew the {what}, then set {key} in params.yaml."
        )
    return ok(f"until {expires}")


def source(deployment: Deployment, name: SourceName) -> Finding:
    """Test a source of posts: request one post of Reddit or an empty page of Arctic Shift, or list the dump files."""
    params, settings = deployment.params, deployment.settings
    try:
        params.sources[name].check(name, today=deployment.now.date())
    except SourceNotApproved:
        return warning("not tried, because it is not approved", fix=f"See the check 'approval {name}'.")
    subreddits = [s for corpus in params.corpora.values() if name in corpus.sources for s in corpus.subreddits]
    subreddits = subreddits or [s for corpus in params.corpora.values() for s in corpus.subreddits]
    if name == "reddit":
        return _reddit(deployment, subreddits[0])
    if name == "arctic_shift":
        from pipelines.collect.sources.arctic_shift import ArcticShiftSource

        ArcticShiftSource(settings, params=params.arctic_shift).ping(subreddits[0])
        return ok("answers")
    from pipelines.collect.sources.dump import DumpSource, expected_digest

    dumps = DumpSource(settings.dumps, params=params.dump)
    files = {path for window in _windows(deployment) for path in dumps.files(window, subreddits=subreddits)}
    for path in files:
        expected_digest(path)
    return ok(f"{len(files)} files with a checksum")


def _reddit(deployment: Deployment, subreddit: str) -> Finding:
    from pipelines.collect.sources.reddit import RedditSource
    from pipelines.collect.sources.service import SubredditClosed

    try:
        RedditSource(deployment.settings, params=deployment.params.reddit).newest(subreddit)
    except SubredditClosed as error:
        return of_error(error, status="warning")
    return ok("the credentials are accepted")


def _windows(deployment: Deployment) -> list[Window]:
    corpora = [corpus for corpus in deployment.params.corpora.values() if "dump" in corpus.sources]
    return [Window.from_key(corpus.last_month or corpus.first_month) for corpus in corpora]


def labeller(deployment: Deployment, name: str, *, seconds: float) -> Finding:
    """Check that a remote labeller's model is not retired, and that its provider answers at no cost."""
    asked, today = labellers(deployment.params)[name], deployment.now.date()
    endpoint = deployment.settings.endpoint(asked.provider)
    variable = f"CORPUS_{asked.provider.upper().replace('-', '_')}"
    if endpoint.url is None and not endpoint.key.get_secret_value():
        return failure("no key is set", fix=f"Set {variable}_KEY.")
    notice = retirement(asked.model, api=deployment.params.providers[asked.provider].api, url=endpoint.url)
    retired = notice is not None and notice.retired <= today
    finding = ok("retired") if retired else _answering(deployment, asked, name=name, seconds=seconds)
    if notice is None or finding.status != "ok":
        return finding
    fix = f"Set {variable}_URL to a host that serves it, or add a labeller of another name for {notice.successor}."
    return (failure if retired else warning)(f"{asked.model} {notice.told(today=today)}", fix=fix)


def _answering(deployment: Deployment, asked: RemoteLabeller, *, name: str, seconds: float) -> Finding:
    """Request a labeller's model, or its provider's list of models."""
    api, endpoint = deployment.params.providers[asked.provider].api, deployment.settings.endpoint(asked.provider)
    key, variable = endpoint.key.get_secret_value(), f"CORPUS_{asked.provider.upper().replace('-', '_')}"
    path, headers = _request(api, model=asked.model, key=key or NO_KEY)
    address = f"{(endpoint.url or ADDRESSES[api]).rstrip('/')}{path}"
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(address, headers=headers, timeout=seconds, allow_redirects=False)
            known = not path.endswith("/models") or asked.model in {entry["id"] for entry in answer.json()["data"]}
        except (ValueError, KeyError, TypeError):
            known = answer.status_code != HTTPStatus.OK
        except requests.RequestException as error:
            return failure(f"the provider does not answer ({type(error).__name__})", fix=f"Check {variable}_URL.")
    if answer.status_code == HTTPStatus.NOT_FOUND or not known:
        return _retired(asked.model, name=name, found="the provider has no model")
    if answer.status_code != HTTPStatus.OK:
        fix = f"Check {variable}_KEY, {variable}_URL and the account's quota."
        return failure(f"the provider answers HTTP {answer.status_code}", fix=fix)
    if deprecated(asked.model, api=api):
        finding = _retired(asked.model, name=name, found="the provider will retire model")
        return warning(finding.found, fix=finding.fix)
    return ok(f"the provider serves {asked.model}")


def _retired(model: str, *, name: str, found: str) -> Finding:
    return failure(f"{found} {model}", fix=f"Set labellers.{name}.model in catalogue.yaml to a model that it serves.")


def _request(api: Api, *, model: str, key: str) -> tuple[str, dict[str, str]]:
    """Return path and headers; servers of OpenAI's protocol have a list of models, some no page of one model."""
    if api == "openai":
        return "/models", {"Authorization": f"Bearer {key}"}
    if api == "anthropic":
        return f"/v1/models/{model}", {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return f"/v1beta/models/{model}", {"x-goog-api-key": key}
