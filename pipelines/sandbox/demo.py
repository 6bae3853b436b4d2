"""``make demo``: the main job, end to end, on the offline Reddit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipelines import status
from pipelines.evaluate import report_parts
from pipelines.params import Sandbox, Settings
from pipelines.sandbox.airflow_api import ENDED, POLL_SECONDS, RUN_SECONDS, Airflow, RunFailed
from pipelines.sandbox.build import build
from pipelines.sandbox.promotions import Act
from pipelines.sandbox.services import Deployment
from pipelines.store import repository
from pipelines.store.git import git
from pipelines.store.workspace import BRANCH, workspace

PRODUCERS = ("posts_collect", "memes_collect")
CONSUMERS = ("memes_dataset", "posts_dataset", "posts_label")


@dataclass(frozen=True)
class Models:
    """The Dag that makes a corpus's models: it is started by hand, once, when all months are in.

    It would wake by itself at the end of a round, and of every month's labels, which are no reason to train here.

    Args:
        dag_id: what is started.
        after: the Dag whose publish says ``ready``.
        ready: the newest commit of the corpus, once there is something to train on.
        done: the newest commit of the corpus, once everything is done.
        key: of the partition that is started.
    """

    dag_id: str
    after: str
    ready: str
    done: str
    key: str | None = None


MODELS = {
    "memes": Models("memes_benchmark", "memes_dataset", "snapshot(memes): score@", "snapshot(memes): report@"),
    "posts": Models("posts_finetune", "posts_label", "snapshot(posts): probe@", "snapshot(posts): report@", "snapshot"),
}


def run(settings: Settings, *, root: Path, profile: str, sandbox: Sandbox) -> None:
    """Build the sandbox, start the components, backfill its months, follow the runs, print what came out.

    Every part is skipped where it is done already, so a second call goes on where the first one ended.

    Raises:
        RunFailed: a run failed or nothing moved.
        ServiceFailed: a component did not come up.
    """
    console = Console()
    began = time.monotonic()
    with console.status("drawing the offline Reddit"):
        built = build(settings.sandbox, sandbox=sandbox)
    counts = ", ".join(f"{built.get(name, 0)} {name}" for name in ("submissions", "images", "posts"))
    console.print(f"[green]✓[/] sandbox: {counts}")
    repository.init(settings, checkout=root, profile=profile)
    deployment = Deployment(settings, root=root, profile=profile, sandbox_port=sandbox.port)
    with console.status("starting") as spinner:
        deployment.up(say=lambda name: spinner.update(f"starting {name}"))
    base = f"http://127.0.0.1:{deployment.ports.airflow}"
    airflow = Airflow(base)
    for dag_id in (*CONSUMERS, *PRODUCERS):
        airflow.unpause(dag_id)
    console.print(f"[green]✓[/] Airflow at {base}, MLflow at http://127.0.0.1:{deployment.ports.mlflow}")
    for dag_id in PRODUCERS:
        backfill(deployment, dag_id=dag_id, months=sandbox.months)
    follow(airflow, settings, console=console, months=sandbox.months)
    with console.status("asking who may be champion"):
        Act(airflow, settings, deployment).play(console)
    console.print(f"[green]✓[/] done in {time.monotonic() - began:.0f} s after set-up")
    status.show(status.gather(settings))
    for corpus in MODELS:
        console.print(scoreboard(settings, corpus=corpus))
    console.print(f"Airflow  {base}\nMLflow   http://127.0.0.1:{deployment.ports.mlflow}")
    console.print("Votes    .venv/bin/corpus votes posts\nStop it  make down")


def backfill(deployment: Deployment, *, dag_id: str, months: tuple[str, ...]) -> None:
    """Create the backfill as a person would, with Airflow's own command."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", dag_id,
         "--from-date", f"{min(months)}-01", "--to-date", f"{max(months)}-01", "--max-active-runs", "2"],
        cwd=deployment.root, env=deployment.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (deployment.logs / f"backfill-{dag_id}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise RunFailed(
            dag=dag_id, state="not backfilled", detail=f"see var/logs/backfill-{dag_id}.log", address="the Airflow UI"
        )


def follow(airflow: Airflow, settings: Settings, *, console: Console, months: tuple[str, ...]) -> None:
    """Show every run's tasks until the months are in and the snapshots that hold them are published."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    deadline = time.monotonic() + RUN_SECONDS
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bars: dict[str, Any] = {}
        while time.monotonic() < deadline:
            states = {}
            for dag_id in (*PRODUCERS, *CONSUMERS, *(models.dag_id for models in MODELS.values())):
                for dag_run in airflow.runs(dag_id):
                    name = f"{dag_id} {dag_run['partition_key'] or dag_run['dag_run_id']}"
                    states[name, dag_run["dag_run_id"]] = dag_run["state"]
                    _show(progress, bars, airflow=airflow, dag_run=dag_run, name=name)
            failed = [name for (name, _), state in states.items() if state == "failed"]
            if failed:
                raise RunFailed(dag=failed[0], state="failed", detail="a task gave up", address=airflow.base)
            done = Counter(name.split()[0] for (name, _), state in states.items() if state == "success")
            active = {name.split()[0] for (name, _), state in states.items() if state not in ENDED}
            newest = _newest(settings)
            for corpus, models in MODELS.items():
                if (
                    done[f"{corpus}_collect"] >= len(months)
                    and not active & {models.after, models.dag_id}
                    and newest[corpus].startswith(models.ready)
                ):
                    airflow.unpause(models.dag_id)
                    airflow.trigger(models.dag_id, partition_key=models.key)
            collected = all(done[dag_id] >= len(months) for dag_id in PRODUCERS)
            if collected and not active and all(newest[c].startswith(m.done) for c, m in MODELS.items()):
                return
            time.sleep(POLL_SECONDS)
    raise RunFailed(dag=CONSUMERS[-1], state="unfinished", detail=f"after {RUN_SECONDS:.0f} s", address=airflow.base)


def _show(progress: Progress, bars: dict[str, Any], *, airflow: Airflow, dag_run: dict[str, Any], name: str) -> None:
    run_id = dag_run["dag_run_id"]
    if run_id not in bars:
        bars[run_id] = progress.add_task(name, total=None, note="")
    elif progress.tasks[bars[run_id]].finished:
        return
    tasks = airflow.tasks(dag_run["dag_id"], run_id)
    note = ", ".join(f"{count} {state}" for state, count in sorted(tasks.items()))
    progress.update(bars[run_id], total=tasks.total() or None, completed=tasks["success"] + tasks["skipped"], note=note)
    if dag_run["state"] in ENDED:
        progress.stop_task(bars[run_id])


def _newest(settings: Settings) -> dict[str, str]:
    """Return the subject of each corpus's newest commit: where it is a snapshot, that holds every month before it."""
    subjects = git("--git-dir", settings.repo, "log", "--format=%s", BRANCH).splitlines()
    return {corpus: next((s for s in subjects if f"({corpus})" in s), "") for corpus in MODELS}


def scoreboard(settings: Settings, *, corpus: str) -> Table:
    """Return the scores of a corpus's published models, for a terminal."""
    with workspace(settings) as clone:
        metrics = json.loads((clone.path / "metrics" / corpus / "evaluate.json").read_text())
    return report_parts.scoreboard(metrics).rich()
