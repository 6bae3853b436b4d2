"""Run the project's main workflow end to end on the offline Reddit (``make demo``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from crisis_corpus_sandbox.demo import closing_report, promotions
from crisis_corpus_sandbox.demo.failures import Failures
from crisis_corpus_sandbox.demo.plan import CORPORA, DemoPlan
from crisis_corpus_sandbox.demo.promotions import Act
from crisis_corpus_sandbox.demo.run_progress import view
from crisis_corpus_sandbox.demo.runs import Api, Look
from crisis_corpus_sandbox.reddit.build import build
from pipelines import status, status_table
from pipelines.config.collect import Sandbox
from pipelines.config.logins import APPROVER
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.deployment.airflow_api import RUN_SECONDS, RunFailed
from pipelines.deployment.services import LocalDeployment
from pipelines.workspace import repository
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

# Seconds between two polls of Airflow: its API server competes with the tasks for cores.
LOOK_SECONDS = 2.5


def run(settings: Settings, *, root: Path, profile: str, sandbox: Sandbox) -> None:
    """Build the offline Reddit, start the services, backfill its months, follow the Dag runs and print the results.

    Completed parts are skipped, so a second call resumes where the first one ended.
    """
    console = Console()
    began = time.monotonic()
    say = console.print if console.is_terminal else _nothing
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
    rows = [*closing_report.decisions(settings), *(("forgeries", what, reason) for what, reason in forgeries)]
    console.print(status_table.table(status.gather(settings), more=rows))
    total = time.monotonic() - began
    console.print(closing_report.spent(settings, look, started=started, total=total, failures=failures))
    console.print(
        closing_report.addresses(airflow, look, mlflow=mlflow, passwords=deployment.passwords),
        highlight=False,
        soft_wrap=True,
    )


def _nothing(_: str) -> None:
    """Print nothing."""


def follow(
    airflow: Api, *, plan: DemoPlan, act: Act, failures: Failures, console: Console, pause: float = LOOK_SECONDS
) -> Look:
    """Start each Dag run when it is due, and show progress until all models are published and all promotions decided.

    Returns the last snapshot of Airflow's runs and tasks (:class:`Look`).
    """
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
    raise RunFailed(dag="the demo", state="unfinished", detail=f"no progress for {RUN_SECONDS:.0f} s",
                    address=airflow.base)  # fmt: skip


def newest(settings: Settings) -> dict[str, str]:
    """Return the subject line of each corpus's newest commit on the corpus branch."""
    with history(settings) as repo:
        subjects = git("--git-dir", str(repo), "log", "--format=%s", BRANCH).splitlines()
    return {corpus: next((s for s in subjects if f"({corpus})" in s), "") for corpus in CORPORA}


def contested(settings: Settings, *, profile: str) -> Sequence[int]:
    """Return the versions of the model ``meme-severity``, sorted by their published score in ascending order."""
    chosen = load(profile=profile).registry[promotions.CONTESTED]
    evaluated = closing_report.evaluated(settings, corpus="memes")
    return promotions.by_score(evaluated, models=[one.model for one in chosen])
