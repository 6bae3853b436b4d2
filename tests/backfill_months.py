"""Backfill many small months of both corpora while Airflow's scheduler and API server are killed, and log the run.

``CORPUS_BACKFILL_MONTHS=60 python -m pytest -m faults tests/test_backfill_months.py`` runs sixty months. A
deployment with a home of its own collects the months of the offline Reddit by ``airflow backfill create``. At three
random moments SIGKILL ends the scheduler alone, the API server, and both with all their children; ``corpus sandbox up``
starts again what is not running, as ``restart: unless-stopped`` does in docker/compose.yaml. One JSON line per run is
appended to ``var/backfill_months.jsonl``. A run that was stopped goes on where it was; its home, below
``var/backfill_months``, is removed when nothing was wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from crisis_corpus_sandbox.reddit.build import build
from pipelines.core.components import down, running
from pipelines.core.config import logins
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.operate.services.airflow_api import ENDED
from pipelines.operate.services.services import LocalDeployment
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.airflow_client import AirflowClient
from tests.ports import free_port
from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "var" / "backfill_months.jsonl"
CORPORA = ("memes", "posts")
COLLECT = [f"{corpus}_collect" for corpus in CORPORA]
DATASET = [f"{corpus}_dataset" for corpus in CORPORA]
# Submissions of a month, and the fewest with which the offline Reddit has all its cases and the split its items.
MEMES, POSTS, FEWEST = 6, 8, (120, 200)
KILLED = (("airflow-scheduler",), ("airflow-api-server",), ("airflow-scheduler", "airflow-api-server"))
# Seconds between two looks at Airflow, and how long nothing must run before all consumers are known to have been woken.
LOOK, CALM = 4.0, 20.0


def months(count: int) -> tuple[str, ...]:
    """Return the last months up to December 2022."""
    last = 2022 * 12 + 11
    return tuple(f"{number // 12}-{number % 12 + 1:02}" for number in range(last - count + 1, last + 1))


class Backfill:
    """The backfill of ``count`` months in a home of its own, which a later call goes on with."""

    def __init__(self, count: int, *, patience: float) -> None:
        self.months, self.patience = months(count), patience
        self.folder = ROOT / "var" / "backfill_months" / str(count)
        self.root, self.noted = self.folder / "checkout", self.folder / "state.json"
        self.state: dict[str, Any] = {"kills": []}
        if self.noted.exists():
            self.state |= json.loads(self.noted.read_text())

    def note(self, **more: Any) -> None:
        """Store what a later call needs."""
        self.state |= more
        partial = self.noted.with_suffix(".partial")
        partial.write_text(json.dumps(self.state))
        partial.replace(self.noted)

    @contextmanager
    def deployed(self) -> Iterator[tuple[LocalDeployment, AirflowClient, Settings]]:
        """Start the deployment of the working tree; stop it and restore the environment at the end."""
        before = dict(os.environ)
        if not self.noted.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            checkout(self.root, smaller=self._smaller)
            self.note(port=free_port(), seed=random.SystemRandom().randrange(2**32))
        os.environ |= {"CORPUS_HOME": str(self.folder / "var"), "CORPUS_SANDBOX_PORT": str(self.state["port"])}
        settings = Settings.from_env()
        try:
            drawn = load(self.root, profile="sandbox").sandbox
            if drawn is None:
                raise SystemExit("the profile sandbox has no section sandbox")
            sandbox: Sandbox = drawn.model_copy(update={"port": self.state["port"]})
            self.built = build(settings.sandbox, sandbox=sandbox)
            repository.init(settings, checkout=self.root, profile="sandbox")
            deployment = LocalDeployment(settings, root=self.root, profile="sandbox", sandbox_port=sandbox.port)
            deployment.up(say=lambda _: None)
            base = f"http://127.0.0.1:{deployment.ports.airflow}"
            yield deployment, AirflowClient(base, login=deployment.login(logins.ADMIN)), Settings.from_env()
        finally:
            down(settings)
            os.environ.clear()
            os.environ.update(before)

    def _smaller(self, profile: dict[str, Any]) -> None:
        least = [max(few, each * len(self.months)) for few, each in zip(FEWEST, (MEMES, POSTS), strict=True)]
        profile["sandbox"] |= {"months": list(self.months), "submissions": least[0], "posts": least[1]}
        for corpus in CORPORA:
            profile["corpora"][corpus]["first_month"] = self.months[0]
        profile["collect"]["shard_size"] = 60
        profile["sample"] = {"memes": {"size": 40}, "posts": {"size": 110}}
        profile["split"]["posts"] = {name: {"train": 30, "dev": 50, "test": 30} for name in ("ratios", "sizes")}

    def start(self, deployment: LocalDeployment, airflow: AirflowClient) -> None:
        """Unpause the Dags and create both backfills, once."""
        for dag_id in (*DATASET, *COLLECT):
            airflow.unpause(dag_id)
        for dag_id in COLLECT:
            if airflow.get("/backfills", dag_id=dag_id)["total_entries"]:
                continue
            argv = ("backfill", "create", "--dag-id", dag_id)
            period = ("--from-date", f"{self.months[0]}-01", "--to-date", f"{self.months[-1]}-01")
            subprocess.run([sys.executable, "-m", "airflow", *argv, *period], cwd=self.root,
                           env=deployment.environment, stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        if "began" not in self.state:
            self.note(began=time.time())

    def kill(self, deployment: LocalDeployment) -> None:
        """Kill what is next, and start it again."""
        number, rng = len(self.state["kills"]), random.Random(f"{self.state['seed']} {len(self.state['kills'])}")
        names = KILLED[number]
        for name in names:
            if process := running(deployment.run / f"{name}.pid"):
                # the scheduler alone leaves its workers behind; of the others no child may keep a port
                family = [] if names == ("airflow-scheduler",) else process.children(recursive=True)
                for member in [process, *family]:
                    with suppress(psutil.NoSuchProcess):
                        os.kill(member.pid, signal.SIGKILL)
        time.sleep(rng.uniform(0, 5))
        subprocess.run([sys.executable, "-m", "pipelines", "sandbox", "up"], cwd=self.root,
                       stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        self.note(kills=[*self.state["kills"], names])

    def follow(self, deployment: LocalDeployment, airflow: AirflowClient) -> list[str]:
        """Wait until every run has ended, and kill when as many months as drawn are there; return what is wrong."""
        rng, wanted = random.Random(self.state["seed"]), 2 * len(self.months)
        # one in each of the middle thirds of the backfill, so that something is left to be lost
        at = [round(wanted * (third + rng.uniform(0.2, 1.0)) / (len(KILLED) + 1)) for third in range(len(KILLED))]
        calm, deadline = 0.0, time.monotonic() + self.patience
        while calm < CALM:
            if time.monotonic() > deadline:
                return [f"not at rest after {self.patience:.0f} s"]
            runs = {dag_id: airflow.runs(dag_id) for dag_id in (*COLLECT, *DATASET)}
            done = sum(run["state"] in ENDED for dag_id in COLLECT for run in runs[dag_id])
            if (number := len(self.state["kills"])) < len(KILLED) and done >= at[number]:
                time.sleep(rng.uniform(0, 6))
                self.kill(deployment)
            rest = done == wanted and all(run["state"] in ENDED for found in runs.values() for run in found)
            calm = calm + LOOK if rest else 0.0
            time.sleep(LOOK)
        return []

    def run(self) -> dict[str, Any]:
        """Run the backfill to its end; ``wrong`` lists what is wrong."""
        with self.deployed() as (deployment, airflow, settings):
            self.start(deployment, airflow)
            late = self.follow(deployment, airflow)
            runs, tasks = airflow.runs_and_tasks()
            found = late + self._commits(settings) + self._runs(runs, tasks) + self._counts(deployment)
            found += self._consumers(runs, tasks) + ([] if late else self._changed(deployment, settings))
        return {"months": len(self.months), "seconds": round(time.time() - self.state["began"]), "wrong": found}

    def _commits(self, settings: Settings) -> list[str]:
        repo, wrong = ("--git-dir", settings.repo), []
        subjects = git(*repo, "log", "--format=%s", "corpus").splitlines()
        files = set(git(*repo, "ls-tree", "-r", "--name-only", "corpus", "data").splitlines())
        for corpus in CORPORA:
            commits = Counter(line for line in subjects if line.startswith(f"data({corpus}): "))
            wanted = Counter(f"data({corpus}): {month}" for month in self.months)
            if commits != wanted:
                wrong.append(
                    f"{corpus}: {(wanted - commits).total()} commits missing, {(commits - wanted).total()} more"
                )
            bare = [m for m in self.months if not any(f.startswith(f"data/{corpus}/{m}/") for f in files)]
            if bare:
                wrong.append(f"{corpus}: {len(bare)} months without pointers")
            newest = next((line for line in subjects if f"({corpus})" in line), "")
            if newest != f"snapshot({corpus}): quality@{corpus}":
                wrong.append(f"{corpus}: the last commit is not the dataset of all months: {newest}")
        return wrong

    def _runs(self, runs: Sequence[Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        wrong = [f"{run['dag_id']} {run['partition_key']}: {run['state']}" for run in runs if run["state"] != "success"]
        for dag_id in COLLECT:
            keys = Counter(run["partition_key"] for run in runs if run["dag_id"] == dag_id)
            if keys != Counter(self.months):
                wrong.append(f"{dag_id}: {keys.total()} runs for {len(keys)} months of {len(self.months)}")
        states = Counter(task["state"] for task in tasks)
        lost = {state: count for state, count in states.items() if state not in {"success", "skipped"}}
        return wrong + ([f"tasks that did not end: {lost}"] if lost else [])

    def _counts(self, deployment: LocalDeployment) -> list[str]:
        """Compare the counts of the datasets with those of the offline Reddit, and every stage with dvc.lock."""
        argv = [sys.executable, "-m", "pipelines", "status", "--json"]
        done = subprocess.run(argv, cwd=self.root, env=deployment.environment, stdout=subprocess.PIPE, check=True)
        shown = json.loads(done.stdout)
        truths = {corpus: parts.get("truth", {}) for corpus, parts in {"memes": shown, **shown["corpora"]}.items()}
        counts = {
            f"{corpus} {what}": truths[corpus].get(what) for corpus in CORPORA for what in ("unexpected", "missing")
        }
        return [f"truth of {what}: {count} records" for what, count in counts.items() if count != 0]

    def _changed(self, deployment: LocalDeployment, settings: Settings) -> list[str]:
        """Return the stages of the datasets that DVC holds for changed in a clone with everything from the remote."""
        laptop = repository.clone(settings, folder=self.folder / "laptop")
        stages = [f"quality@{corpus}" for corpus in CORPORA]
        pointers = [str(path.relative_to(laptop)) for path in laptop.glob("data/*/**/*.dvc")]
        for argv in (["pull", "--quiet", *pointers], ["pull", "--quiet", "--with-deps", *stages]):
            subprocess.run([sys.executable, "-m", "dvc", *argv], cwd=laptop, env=deployment.environment, check=True)
        argv = [sys.executable, "-m", "dvc", "status", "--json", "--with-deps", *stages]
        done = subprocess.run(argv, cwd=laptop, env=deployment.environment, stdout=subprocess.PIPE, check=True)
        shutil.rmtree(laptop)
        return [f"dvc status: {name} is changed" for name in json.loads(done.stdout)]

    def _consumers(self, runs: Sequence[Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the consumers that ran too often, or of which no run did more than find that a later one does it."""
        wrong = []
        for dag_id in DATASET:
            count = len({run["dag_run_id"] for run in runs if run["dag_id"] == dag_id})
            states = Counter(task["state"] for task in tasks if task["dag_id"] == dag_id and task["task_id"] == "pin")
            # a publish that was killed after its commit commits nothing again, but emits its event
            if not 1 <= states["success"] <= count <= len(self.months) + len(KILLED):
                wrong.append(f"{dag_id}: {count} runs, of which {states['success']} worked")
        return wrong


def log_line(count: int, *, patience: float) -> dict[str, Any]:
    """Run one backfill, append its line to the log, and return it."""
    one = Backfill(count, patience=patience)
    found = one.run()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()  # fmt: skip
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"at": at, "commit": commit, "seed": one.state["seed"], **found}
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")
    if not line["wrong"]:
        shutil.rmtree(one.folder)
    return line
