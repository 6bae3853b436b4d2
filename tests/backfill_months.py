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
import statistics
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
# Seconds without a look that were a pause: the run was stopped.
PAUSE = 60.0
# The growth of a month's time from the first to the last third that is still called linear.
BAR = 1.3
# Fewer months show no growth.
ENOUGH = 12


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
        self.state: dict[str, Any] = {"kills": [], "looks": [], "pauses": []}
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
        elif self.state["looks"] and (last := self.state["looks"][-1][0]) < time.time() - PAUSE:
            self.note(pauses=[*self.state["pauses"], (last, time.time())])

    def kill(self, deployment: LocalDeployment) -> None:
        """Kill what is next, and start it again."""
        number, rng = len(self.state["kills"]), random.Random(f"{self.state['seed']} {len(self.state['kills'])}")
        names, at = KILLED[number], time.time()
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
        kills = [*self.state["kills"], {"what": names, "at": at, "up": time.time()}]
        self.note(kills=kills)

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
            self.note(looks=[*self.state["looks"], (round(time.time(), 1), done, round(os.getloadavg()[0], 1))])
            if (number := len(self.state["kills"])) < len(KILLED) and done >= at[number]:
                time.sleep(rng.uniform(0, 6))
                self.kill(deployment)
            rest = done == wanted and all(run["state"] in ENDED for found in runs.values() for run in found)
            calm = calm + LOOK if rest else 0.0
            time.sleep(LOOK)
        return []

    def run(self) -> dict[str, Any]:
        """Run the backfill to its end and return its figures; ``wrong`` lists what is wrong."""
        with self.deployed() as (deployment, airflow, settings):
            self.start(deployment, airflow)
            late = self.follow(deployment, airflow)
            runs, tasks = airflow.runs_and_tasks()
            found = late + self._commits(settings) + self._runs(runs, tasks) + self._counts(deployment)
            found += [] if late else self._changed(deployment, settings)
            figures = {**consumers(runs, tasks), **self._pace(runs, log=settings.home / "logs" / "phases.jsonl")}
            found += self._wrong(figures)
        return {"months": len(self.months), "corpora": len(CORPORA), **figures, "wrong": found}

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

    def _pace(self, runs: Sequence[Mapping[str, Any]], *, log: Path) -> dict[str, Any]:
        """Return seconds, by the clock and of processors, per month in the first and the last third of the months.

        The months of each corpus are taken in the order of their ends. By the clock, a corpus gets slower or faster
        with what else runs: the other corpus, the datasets and other programs; the time from a kill to the end of the
        restart is left out, and pauses of this process.
        """
        outages = [(kill["at"], kill["up"]) for kill in self.state["kills"]] + self.state["pauses"]
        spent: Counter[tuple[str, str]] = Counter()
        for line in map(json.loads, log.read_text().splitlines()):
            spent[line.get("dag", ""), line.get("run", "")] += line["cpu"]

        def clock(moment: float) -> float:
            return moment - self.state["began"] - sum(max(0.0, min(moment, up) - at) for at, up in outages)

        paces: dict[str, Any] = {}
        for dag_id in COLLECT:
            mine = [run for run in runs if run["dag_id"] == dag_id and run["end_date"]]
            mine.sort(key=lambda run: str(run["end_date"]))
            ends = [clock(datetime.fromisoformat(run["end_date"]).timestamp()) for run in mine]
            cpu = [spent[run["dag_id"], run["dag_run_id"]] for run in mine]
            third = max(1, len(ends) // 3)
            clocks = slope(ends[: third + 1]), slope(ends[-third - 1 :])
            used = statistics.mean(cpu[:third]), statistics.mean(cpu[-third:])
            paces[dag_id] = {
                "seconds_per_month": [round(one, 2) for one in clocks],
                "ratio": round(clocks[1] / clocks[0], 2),
                "cpu_per_month": [round(one, 2) for one in used],
                "cpu_ratio": round(used[1] / used[0], 2),
                "ends": [round(end) for end in ends],
                "cpu": [round(one, 1) for one in cpu],
            }
        seconds = round(time.time() - self.state["began"])
        return {"seconds": seconds, "outages": [round(up - at) for at, up in outages], **paces}

    def _wrong(self, figures: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with the figures: too many runs of a consumer, or months that take longer and longer."""
        wrong = []
        for dag_id in DATASET:
            runs, worked = figures[dag_id]["runs"], figures[dag_id]["worked"]
            # a publish that was killed after its commit commits nothing again, but emits its event
            if not 1 <= worked <= runs <= len(self.months) + len(KILLED):
                wrong.append(f"{dag_id}: {runs} runs, of which {worked} worked")
        if len(self.months) >= ENOUGH:
            ratios = {
                f"{dag_id} {name}": figures[dag_id][name] for dag_id in COLLECT for name in ("ratio", "cpu_ratio")
            }
            wrong += [f"{name}: {ratio}" for name, ratio in ratios.items() if ratio > BAR]
        return wrong


def slope(values: Sequence[float]) -> float:
    """Return the growth per step of a line through the values."""
    return statistics.linear_regression(range(len(values)), values).slope if len(values) > 1 else 0.0


def consumers(runs: Sequence[Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many runs each consumer had, and how many of them did more than find out that a later one does it."""
    found: dict[str, Any] = {}
    for dag_id in DATASET:
        mine = {run["dag_run_id"] for run in runs if run["dag_id"] == dag_id}
        pins = Counter(t["state"] for t in tasks if t["dag_id"] == dag_id and t["task_id"] == "pin")
        found[dag_id] = {"runs": len(mine), "worked": pins["success"]}
    return found


def log_line(count: int, *, patience: float) -> dict[str, Any]:
    """Run one backfill, append its line to the log, and return it."""
    one = Backfill(count, patience=patience)
    found = one.run()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()  # fmt: skip
    line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit, "seed": one.state["seed"],
            "load": round(statistics.mean(look[2] for look in one.state["looks"]), 1), **found}  # fmt: skip
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")
    if not line["wrong"]:
        shutil.rmtree(one.folder)
    return line
