"""Run the project's main workflow end to end on the offline Reddit (``make demo``), and report what it gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from crisis_corpus.journal import JournalRow
from crisis_corpus_sandbox import audit
from crisis_corpus_sandbox.demo_runs import CORPORA, MODELS, DemoPlan, Failures, Json, Lines, Look
from crisis_corpus_sandbox.reddit.build import build
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import load
from pipelines.core.config.settings import APPROVER, Settings
from pipelines.core.errors import DataError
from pipelines.core.process import silent
from pipelines.operate import status
from pipelines.operate.services.airflow_api import ENDED, RUN_SECONDS, Airflow, named
from pipelines.operate.services.services import LocalDeployment
from pipelines.registry.journal import Journal
from pipelines.workspace import repository
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

DAG = named("promote")
WHO = "demo"
WHY = "the metrics are as expected for a demo"
CONTESTED, OTHERS = "meme-severity", ("crisis-posts",)
VERSIONS = 3


@dataclass
class Act:
    """Promote model versions, one action per poll of Airflow.

    ``order`` returns the versions of ``meme-severity`` by ascending score. ``airflow`` triggers the runs, and
    ``approver`` answers their questions, as another user.
    """

    airflow: Airflow
    approver: Airflow
    settings: Settings
    deployment: LocalDeployment
    order: Callable[[], Sequence[int]]
    _awake: bool = False

    def advance(self, look: Look) -> bool:
        """Take the promotion steps that are due; return whether the journal contains every planned decision."""
        done = [self._advance(name, look) for name in (*OTHERS, CONTESTED)]
        return all(done)

    def _advance(self, name: str, look: Look) -> bool:
        unfinished = (run for run in look.runs_of(DAG) if run["state"] not in ENDED)
        if run := next((run for run in unfinished if (run.get("conf") or {}).get("name") == name), None):
            if any(task["state"] == "awaiting_input" for task in look.tasks_of(run)):
                self.approver.answer(DAG, run["dag_run_id"], "approve", option="Promote", given={"why": WHY})
            return False
        with Journal.of(self.settings) as journal:
            rows = list(journal.rows(name))
        registered, promoted = (_versions(rows, event) for event in ("registered", "promoted"))
        if name != CONTESTED:
            if registered and not promoted:
                self._start(name, registered[0], look)
            return bool(promoted)
        if _versions(rows, "rolled_back"):
            return True
        if len(promoted) > 1 and _versions(rows, "refused"):
            return self._rollback(leaving=promoted[-1])
        if len(registered) >= VERSIONS:
            self._start(name, next_version(rows, order=self.order(), base=self.airflow.base), look)
        return False

    def _start(self, name: str, version: int, look: Look) -> None:
        if not self._awake:
            self.airflow.unpause(DAG)
            self._awake = True
        conf = {"name": name, "version": version}
        number = sum(conf.items() <= (run.get("conf") or {}).items() for run in look.runs_of(DAG)) + 1
        if number > 2:
            detail = f"the journal has no decision about version {version} of {name}"
            raise _failed("finished without a decision", detail, address=self.airflow.base)
        self.airflow.trigger(DAG, dag_run_id=f"demo__{name}__{version}__{number}", conf=conf)

    def _rollback(self, *, leaving: int) -> bool:
        """Roll back with the command, as a person would; repeating it after a kill rolls back no further."""
        argv = ["rollback", CONTESTED, "--who", WHO, "--why", "to demonstrate a rollback", "--leaving", str(leaving)]
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *argv], cwd=self.deployment.root, env=self.deployment.environment,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise _failed("failed", f"exit status {done.returncode}", dag="rollback")
        return True


def _failed(state: str, detail: str, *, dag: str = DAG, address: str = "-") -> DataError:
    return DataError("RunFailed", dag=dag, state=state, detail=detail, address=address)


def _versions(rows: Sequence[JournalRow], event: str) -> list[int]:
    return [row.to_version for row in rows if row.event == event and row.to_version is not None]


def next_version(rows: Sequence[JournalRow], *, order: Sequence[int], base: str) -> int:
    """Return the version of ``meme-severity`` that the gate evaluates next.

    The lowest-scoring version becomes the first champion, the highest replaces it, the third is refused. The gate
    decides, not the order: if two versions are close, it may promote the third as well and then refuse the version that
    the third replaced, because at most one of two versions is better than the other in most resamples.
    """
    promoted, refused = _versions(rows, "promoted"), _versions(rows, "refused")
    low, middle, high = order
    candidates = (low, middle, high) if not promoted else (high, middle, low)
    if len(promoted) > 1:
        candidates = (middle, high, low)
    left = [version for version in candidates if version not in {*promoted[-1:], *refused}]
    if not left:
        detail = f"all {len(order)} versions of {CONTESTED} have been decided on, so none is left to evaluate"
        raise _failed("not finished", detail, address=base)
    return left[0]


def by_score(evaluated: Json, *, models: Sequence[str]) -> list[int]:
    """Sort the versions 1, 2, 3 of ``meme-severity`` by the macro-F1 in the published evaluation, lowest first."""
    of_models = evaluated["tasks"]["severity"]["models"]
    scores = {
        version: of_models[name]["valid"]["figures"]["macro_f1"]["mean"] for version, name in enumerate(models, 1)
    }
    return sorted(scores, key=lambda version: (scores[version], version))


DECISIONS = ("refused", "promoted", "rolled_back", "withdrawn")


def decisions(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each decision in the models' journal: a title, the model and event, versions and reason."""
    with Journal.of(settings) as journal:
        for row in journal.rows():
            if row.event in DECISIONS:
                yield "decisions", f"{row.name} {row.event.replace('_', ' ')}", _said(row)


def _said(row: JournalRow) -> str:
    reasons: Any = row.metrics.get("reasons")
    before, after = ("none" if version is None else str(version) for version in (row.from_version, row.to_version))
    return f"{before} → {after}: {'; '.join(reasons) if reasons else row.why}"


def addresses(airflow: Airflow, look: Look, *, mlflow: str, passwords: Path) -> str:
    """Return the addresses of the demo's reports and services, and the file of their passwords, one per line."""
    places = {f"report of {corpus}": _report(airflow, look, models.dag_id) for corpus, models in MODELS.items()}
    places |= {"Airflow": airflow.base, "MLflow": mlflow, "passwords": str(passwords)}
    places |= {"votes": ".venv/bin/corpus votes-report posts", "stop": "make down"}
    return "\n".join(f"{name:<16}{value}" for name, value in places.items())


def _report(airflow: Airflow, look: Look, dag_id: str) -> str:
    """Return the address that the last task ``track`` of a Dag returned."""
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
    # the services and all tasks inherit the variables
    os.environ |= audit.begin(settings, environment=deployment.environment, root=root)
    with console.status("starting") as spinner:
        deployment.up(say=lambda name: spinner.update(f"starting {name}"))
    airflow = deployment.client()
    mlflow = f"http://127.0.0.1:{deployment.ports.mlflow}"
    say(f"[green]✓[/] Airflow at {airflow.base}, MLflow at {mlflow}; users and passwords: {deployment.passwords}")
    plan = DemoPlan(airflow, sandbox.months, partial(newest, settings))
    act = Act(airflow, deployment.client(APPROVER), settings, deployment, partial(contested, settings, profile=profile))
    failures = Failures(airflow, logs=settings.home / "airflow" / "logs")
    look = follow(airflow, plan=plan, act=act, failures=failures, console=console)
    console.print(status.table(status.gather(settings), more=list(decisions(settings))))
    seconds, tasks = time.monotonic() - began, sum(bool(task["duration"]) for task in look.tasks)
    console.print(f"{seconds:.0f} s, {tasks} tasks, {failures.cleared.total()} cleared", highlight=False)
    console.print(
        addresses(airflow, look, mlflow=mlflow, passwords=deployment.passwords), highlight=False, soft_wrap=True
    )
    if found := audit.outside(settings):
        raise DataError("OutsideStores", count=len(found), first=audit.told(found[0]), file=audit.log_of(settings))


def follow(
    airflow: Airflow, *, plan: DemoPlan, act: Act, failures: Failures, console: Console, pause: float = LOOK_SECONDS
) -> Look:
    """Start each Dag run when it is due, until all is published and decided; return the last snapshot."""
    plan.start()
    look = Look.at(airflow)
    moved, states = time.monotonic(), None
    shown = Lines(console)
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
    chosen = load(profile=profile).registry[CONTESTED]
    with history(settings) as repo:
        scores = git("--git-dir", str(repo), "show", f"{BRANCH}:metrics/memes/evaluate.json")
    return by_score(json.loads(scores), models=[entry.model for entry in chosen.candidates])
