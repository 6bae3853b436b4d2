"""Run the project's main workflow end to end on the offline Reddit (``make demo``), and report what it gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from crisis_corpus.journal import JournalRow, of_rows
from crisis_corpus_sandbox import audit
from crisis_corpus_sandbox.component import added, with_port
from crisis_corpus_sandbox.demo_runs import CORPORA, MODELS, DemoPlan, Failures, Json, Look, Progress
from crisis_corpus_sandbox.reddit.build import build
from pipelines.core.components import starting
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import APPROVER, Settings
from pipelines.core.errors import DataError
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


TITLES = ("submissions read", "kept", "near-duplicates removed", "labelled, in train, dev, test", "models compared")


def end_page(corpora: Mapping[str, Json], champions: Sequence[str], places: Mapping[str, str]) -> str:
    """Return what the demo ends with, on one screen: five numbers of each corpus, champions, addresses, what is next.

    ``corpora``: the numbers of `corpus status` by corpus.
    """
    rows = [("", *corpora), *zip(TITLES, *map(_numbers, corpora.values()), strict=True)]
    lines = [f"{title:<32}" + "".join(f"{cell:>10}" for cell in cells) for title, *cells in rows]
    lines += ["", *(f"champion  {champion}" for champion in champions), ""]
    lines += [f"{name:<18}{place}" for name, place in places.items()]
    lines += ["", "All numbers: make status. Stop: make down."]
    return "\n".join([*lines, "Next, your own corpus: source .venv/bin/activate && corpus new NAME"])


def _numbers(parts: Json) -> list[int]:
    collect, models = parts["collect"], {name for task in parts["benchmark"].values() for name in task} - {"majority"}
    sizes = parts["split"]["sizes"].values()
    return [collect["submissions"], collect["kept"], parts["dedupe"]["dropped"], sum(sizes), len(models)]


def champions(settings: Settings) -> Iterator[str]:
    """Yield for each model its champion, with the score with which it was promoted, in percent."""
    with Journal.of(settings) as journal:
        for name in journal.models():
            rows = list(journal.rows(name))
            version = of_rows(name, rows).champion
            promoted = [row for row in rows if row.event == "promoted" and row.to_version == version]
            for row in promoted[-1:]:
                score: Any = row.metrics["figures"]["scores"]["macro_f1"]
                mean, low, high = (100 * value for value in (score["candidate"], *score["intervals"]["candidate"]))
                yield f"{name}, version {version}: macro-F1 {mean:.1f} [{low:.1f}, {high:.1f}]"


def addresses(airflow: Airflow, look: Look, *, passwords: Path) -> dict[str, str]:
    """Return the addresses of the demo's reports and services by name, and the file of their passwords."""
    places = {f"report of {corpus}": _report(airflow, look, models.dag_id) for corpus, models in MODELS.items()}
    return places | {"Airflow": f"{airflow.base}/plugin/corpus", "passwords": str(passwords)}


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


def run(settings: Settings, *, root: Path, profile: str, params: Params, verbose: bool) -> None:
    """Build the offline Reddit, start the services, backfill its months, follow the Dag runs and print the results.

    Completed parts are skipped, so a second call resumes where the first one ended.
    """
    console, began = Console(), time.monotonic()
    sandbox = with_port(params, settings)
    with console.status("drawing the offline Reddit") as spinner:
        built = build(settings.sandbox, sandbox=sandbox)
        counts = ", ".join(f"{built.get(name, 0)} {name}" for name in ("submissions", "images", "posts"))
        console.print(f"[green]✓[/] offline Reddit: {counts}")
        spinner.update("creating the corpus repository")
        repository.init(settings, checkout=root, profile=profile)
        with starting():
            deployment = LocalDeployment(settings, root=root, profile=profile, added=added(settings, params))
            # the services and all tasks inherit the variables
            os.environ |= audit.begin(settings, environment=deployment.environment, root=root)
            deployment.up(say=lambda name: spinner.update(f"starting {name}"))
    airflow = deployment.client()
    console.print(f"[green]✓[/] Airflow at {airflow.base}; users and passwords: {deployment.passwords}")
    plan = DemoPlan(airflow, sandbox.months, partial(newest, settings))
    act = Act(airflow, deployment.client(APPROVER), settings, deployment, partial(contested, settings, profile=profile))
    failures = Failures(airflow, logs=settings.home / "airflow" / "logs")
    look = follow(airflow, plan=plan, act=act, failures=failures, progress=Progress(console, verbose=verbose))
    with console.status("counting"):
        corpora = status.gather(settings)["corpora"]
        page = end_page(corpora, [*champions(settings)], addresses(airflow, look, passwords=deployment.passwords))
    seconds, tasks = time.monotonic() - began, sum(bool(task["duration"]) for task in look.tasks)
    took = f"{seconds:.0f} s, {tasks} tasks, {failures.cleared.total()} repeated"
    console.print(f"\n{took}\n\n{page}", highlight=False, soft_wrap=True, markup=False)
    if found := audit.outside(settings):
        raise DataError("OutsideStores", count=len(found), first=audit.told(found[0]), file=audit.log_of(settings))


def follow(
    airflow: Airflow, *, plan: DemoPlan, act: Act, failures: Failures, progress: Progress, pause: float = LOOK_SECONDS
) -> Look:
    """Start each Dag run when it is due, until all is published and decided; return the last snapshot."""
    plan.start()
    look = Look.at(airflow)
    moved, states = time.monotonic(), None
    with progress.live:
        while time.monotonic() - moved < RUN_SECONDS:
            progress.show(look)
            if cleared := failures.clear(look):
                progress.console.print(f"cleared {cleared} failed tasks", highlight=False)
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
