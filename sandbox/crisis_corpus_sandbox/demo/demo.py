"""Run the project's main workflow end to end on the offline Reddit (``make demo``), and report what it gave."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from crisis_corpus.journal import JournalRow
from crisis_corpus.versions import NAMES
from crisis_corpus_sandbox.demo import promotions
from crisis_corpus_sandbox.demo.plan import CORPORA, MODELS, DemoPlan
from crisis_corpus_sandbox.demo.promotions import Act
from crisis_corpus_sandbox.demo.runs import Failures, Json, Look, view
from crisis_corpus_sandbox.reddit.build import build
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.logins import APPROVER
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.core.progress import silent
from pipelines.core.timing import IMPORTS, WORK
from pipelines.operate import status
from pipelines.operate.services.airflow_api import RUN_SECONDS, Airflow
from pipelines.operate.services.services import LocalDeployment
from pipelines.registry.journal import Journal
from pipelines.workspace import repository
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

DECISIONS = ("refused", "promoted", "rolled_back", "withdrawn")
SERVICES, AIRFLOW, GIT = "services, start", "Airflow, per task", "git and DVC"


def evaluated(settings: Settings, *, corpus: str) -> Json:
    """Return the content of a corpus's ``evaluate.json`` (model scores) on the corpus branch."""
    with history(settings) as repo:
        text = git("--git-dir", str(repo), "show", f"{BRANCH}:metrics/{corpus}/evaluate.json")
    scores: Json = json.loads(text)
    return scores


def decisions(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each decision in the models' journal: a title, the model and event, versions and reason."""
    with Journal.of(settings) as journal:
        for name in NAMES:
            for row in journal.rows(name):
                if row.event in DECISIONS:
                    yield "decisions", f"{name} {row.event.replace('_', ' ')}", _said(row)


def _said(row: JournalRow) -> str:
    reasons: Any = row.metrics.get("reasons")
    before, after = ("none" if version is None else str(version) for version in (row.from_version, row.to_version))
    return f"{before} → {after}: {'; '.join(reasons) if reasons else row.why}"


def spent(settings: Settings, look: Look, *, started: float, total: float, failures: Failures) -> Table:
    """Return a table of the seconds that the demo spent on each part of the work; times of parallel tasks are added."""
    durations = [task["duration"] for task in look.tasks if task["duration"]]
    parts = {SERVICES: started} | divided(sum(durations), lines(settings.home / "logs" / "phases.jsonl", look))
    title = f"{total:.0f} s, {len(durations)} tasks, {failures.cleared.total()} cleared"
    table = Table(title=title, title_justify="left")
    table.add_column("where the time went")
    table.add_column("seconds", justify="right")
    for name, seconds in parts.items():
        table.add_row(name, f"{seconds:,.0f}")
    return table


def lines(path: Path, look: Look) -> list[Json]:
    """Return the timing records of a snapshot's tasks from a JSON-lines file; incomplete lines are left out."""
    known = {(task["dag_id"], task["dag_run_id"], task["task_id"]) for task in look.tasks}
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if (record.get("dag"), record.get("run"), record.get("task")) in known:
            records.append(record)
    return records


def divided(tasks: float, phases: list[Json]) -> dict[str, float]:
    """Divide the seconds of all tasks into those of Airflow, of git and DVC, of imports, and of the work itself.

    Processes started by a command write their own timing records (``inner``); their time is part of the command's
    ``work``.
    """
    outer, inner = Counter[str](), Counter[str]()
    for line in phases:
        (inner if line["inner"] else outer).update(line["seconds"])
    between = sum(seconds for name, seconds in outer.items() if name not in (WORK, IMPORTS))
    return {
        AIRFLOW: max(0.0, tasks - sum(outer.values())),
        GIT: between,
        "imports": outer[IMPORTS] + inner[IMPORTS],
        "work": max(0.0, outer[WORK] - inner[IMPORTS]),
    }


def addresses(airflow: Airflow, look: Look, *, mlflow: str, passwords: Path) -> str:
    """Return the addresses of the demo's reports and services, and the file of their passwords, one per line."""
    places = {f"report of {corpus}": _report(airflow, look, models.dag_id) for corpus, models in MODELS.items()}
    places |= {"Airflow": airflow.base, "MLflow": mlflow, "passwords": str(passwords)}
    places |= {"votes": ".venv/bin/corpus votes-report posts", "stop": "make down"}
    return "\n".join(f"{name:<16}{value}" for name, value in places.items())


def _report(airflow: Airflow, look: Look, dag_id: str) -> str:
    for run in reversed(look.runs_of(dag_id)):
        if any(task["task_id"] == "track" and task["state"] == "success" for task in look.tasks_of(run)):
            path = f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances/track/xcomEntries/return_value"
            value = airflow.get(path, stringify=False)["value"]
            return str(value.get("report", "not logged"))
    return "not logged"


# Seconds between two polls of Airflow: its API server competes with the tasks for cores.
LOOK_SECONDS = 2.5


def run(settings: Settings, *, root: Path, profile: str, sandbox: Sandbox) -> None:
    """Build the offline Reddit, start the services, backfill its months, follow the Dag runs and print the results.

    Completed parts are skipped, so a second call resumes where the first one ended.
    """
    console = Console()
    began = time.monotonic()
    say = console.print if console.is_terminal else silent
    with console.status("drawing the offline Reddit"):
        built = build(settings.sandbox, sandbox=sandbox)
    counts = ", ".join(f"{built.get(name, 0)} {name}" for name in ("submissions", "images", "posts"))
    say(f"[green]✓[/] sandbox: {counts}")
    repository.init(settings, checkout=root, profile=profile)
    deployment = LocalDeployment(settings, root=root, profile=profile, sandbox_port=sandbox.port)
    starting = time.monotonic()
    with console.status("starting") as spinner:
        deployment.up(say=lambda name: spinner.update(f"starting {name}"))
    started = time.monotonic() - starting
    airflow = deployment.client()
    mlflow = f"http://127.0.0.1:{deployment.ports.mlflow}"
    say(f"[green]✓[/] Airflow at {airflow.base}, MLflow at {mlflow}; users and passwords: {deployment.passwords}")
    plan = DemoPlan(airflow, sandbox.months, partial(newest, settings))
    act = Act(airflow, deployment.client(APPROVER), settings, deployment, partial(contested, settings, profile=profile))
    failures = Failures(airflow, logs=settings.home / "airflow" / "logs")
    look = follow(airflow, plan=plan, act=act, failures=failures, console=console)
    # read again for the address and the login of MLflow, which had not started before
    forgeries = list(promotions.forgeries(Settings.from_env(), name=promotions.CONTESTED))
    rows = [*decisions(settings), *(("forgeries", what, reason) for what, reason in forgeries)]
    console.print(status.table(status.gather(settings), more=rows))
    total = time.monotonic() - began
    console.print(spent(settings, look, started=started, total=total, failures=failures))
    console.print(
        addresses(airflow, look, mlflow=mlflow, passwords=deployment.passwords),
        highlight=False,
        soft_wrap=True,
    )


def follow(
    airflow: Airflow, *, plan: DemoPlan, act: Act, failures: Failures, console: Console, pause: float = LOOK_SECONDS
) -> Look:
    """Start each Dag run when it is due, until all is published and decided; return the last snapshot."""
    plan.start()
    look = Look.at(airflow)
    moved, states = time.monotonic(), None
    with view(console) as shown:
        while time.monotonic() - moved < RUN_SECONDS:
            shown.show(look)
            if cleared := failures.clear(look):
                console.print(f"cleared {cleared} failed tasks", highlight=False)
            else:
                published, decided = plan.advance(look), act.advance(look)
                if published and decided and not look.active():
                    return look
            time.sleep(pause)
            look = Look.at(airflow)
            if (now := look.states()) != states:
                moved, states = time.monotonic(), now
    raise DataError("RunFailed", dag="the demo", state="unfinished", detail=f"no progress for {RUN_SECONDS:.0f} s",
                    address=airflow.base)  # fmt: skip


def newest(settings: Settings) -> dict[str, str]:
    """Return the subject line of each corpus's newest commit on the corpus branch."""
    with history(settings) as repo:
        subjects = git("--git-dir", str(repo), "log", "--format=%s", BRANCH).splitlines()
    return {corpus: next((s for s in subjects if f"({corpus})" in s), "") for corpus in CORPORA}


def contested(settings: Settings, *, profile: str) -> Sequence[int]:
    """Return the versions of the model ``meme-severity``, sorted by their published score in ascending order."""
    chosen = load(profile=profile).registry[promotions.CONTESTED]
    scores = evaluated(settings, corpus="memes")
    return promotions.by_score(scores, models=[entry.model for entry in chosen])
