"""A backfill of many small months, during which Airflow's scheduler and API server are killed, loses nothing.

``CORPUS_BACKFILL_MONTHS=60 python -m pytest -m faults tests/test_backfill_months.py`` runs sixty months of both
corpora. At three random moments SIGKILL ends the scheduler alone, the API server, and both with all their children;
``corpus sandbox up`` starts again what is not running, as ``restart: unless-stopped`` does in docker/compose.yaml.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.core.components import running
from pipelines.operate.services.airflow_api import ENDED
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.airflow.conftest import World, deployed

COUNT = int(os.environ.get("CORPUS_BACKFILL_MONTHS", "4"))
LAST = 2022 * 12 + 11
MONTHS = tuple(f"{number // 12}-{number % 12 + 1:02}" for number in range(LAST - COUNT + 1, LAST + 1))
CORPORA = ("memes", "posts")
COLLECT, DATASET = ([f"{corpus}_{kind}" for corpus in CORPORA] for kind in ("collect", "dataset"))
# Submissions of a month, and the fewest with which the offline Reddit has all its cases and the split its items.
MEMES, POSTS = max(120, 6 * COUNT), max(200, 8 * COUNT)
SCHEDULER, API_SERVER = "airflow-scheduler", "airflow-api-server"
KILLED = ((SCHEDULER,), (API_SERVER,), (SCHEDULER, API_SERVER))
# Seconds between two looks at Airflow, and how long nothing must run before all consumers are known to have been woken.
LOOK, CALM, PATIENCE = 4.0, 20.0, 3600.0


def smaller(profile: dict[str, Any]) -> None:
    profile["sandbox"] |= {"months": list(MONTHS), "submissions": MEMES, "posts": POSTS}
    for corpus in CORPORA:
        profile["corpora"][corpus]["first_month"] = MONTHS[0]
    profile["collect"]["shard_size"] = 60
    profile["sample"] = {"memes": {"size": 40}, "posts": {"size": 110}}
    profile["split"]["posts"] = {name: {"train": 30, "dev": 50, "test": 30} for name in ("ratios", "sizes")}


def kill(world: World, names: tuple[str, ...], *, rng: random.Random) -> None:
    """Kill components, and start them again."""
    for name in names:
        if process := running(world.deployment.run / f"{name}.pid"):
            # the scheduler alone leaves its workers behind; of the others no child may keep a port
            family = [] if names == (SCHEDULER,) else process.children(recursive=True)
            for member in [process, *family]:
                with suppress(psutil.NoSuchProcess):
                    os.kill(member.pid, signal.SIGKILL)
    time.sleep(rng.uniform(0, 5))
    argv = [sys.executable, "-m", "pipelines", "sandbox", "up"]
    subprocess.run(argv, cwd=world.root, stdout=subprocess.DEVNULL, check=True)


def follow(world: World, *, rng: random.Random) -> None:
    """Wait until every run has ended, and kill when as many months as drawn are there."""
    wanted = 2 * COUNT
    # one in each of the middle thirds of the backfill, so that something is left to be lost
    at = [round(wanted * (third + rng.uniform(0.2, 1.0)) / (len(KILLED) + 1)) for third in range(len(KILLED))]
    kills, calm, deadline = 0, 0.0, time.monotonic() + PATIENCE
    while calm < CALM:
        assert time.monotonic() < deadline, f"not at rest after {PATIENCE:.0f} s; {world.airflow.unfinished()}"
        states = {dag_id: [run["state"] for run in world.airflow.runs(dag_id)] for dag_id in (*COLLECT, *DATASET)}
        done = sum(state in ENDED for dag_id in COLLECT for state in states[dag_id])
        if kills < len(KILLED) and done >= at[kills]:
            time.sleep(rng.uniform(0, 6))
            kill(world, KILLED[kills], rng=rng)
            kills += 1
        rest = done == wanted and all(state in ENDED for found in states.values() for state in found)
        calm = calm + LOOK if rest else 0.0
        time.sleep(LOOK)


def changed(world: World, laptop: Path) -> dict[str, Any]:
    """Return the stages of the datasets that DVC holds for changed in a clone with everything from the remote."""
    repository.clone(world.settings, folder=laptop)
    stages = [f"quality@{corpus}" for corpus in CORPORA]
    pointers = [str(path.relative_to(laptop)) for path in laptop.glob("data/*/**/*.dvc")]
    shown = ""
    for argv in (["pull", "--quiet", *pointers], ["pull", "--quiet", "--with-deps", *stages],
                 ["status", "--json", "--with-deps", *stages]):  # fmt: skip
        command = [sys.executable, "-m", "dvc", *argv]
        environment = world.deployment.environment
        shown = subprocess.run(command, cwd=laptop, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return dict(json.loads(shown))


@pytest.mark.faults
@pytest.mark.airflow
def test_a_backfill_of_months_survives_kills_of_scheduler_and_api_server(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    with deployed(tmp_path, smaller=smaller) as world:
        for dag_id in (*DATASET, *COLLECT):
            world.airflow.unpause(dag_id)
        for corpus in CORPORA:
            world.backfill(corpus, months=MONTHS)
        follow(world, rng=random.Random(seed))
        runs, tasks = world.airflow.runs_and_tasks()
        assert {run["state"] for run in runs} == {"success"}, f"seed {seed}"
        assert {task["state"] for task in tasks} <= {"success", "skipped"}, f"seed {seed}"
        files = git("--git-dir", world.settings.repo, "ls-tree", "-r", "--name-only", "corpus", "data").splitlines()
        shown = json.loads(world.run("pipelines", "status", "--json"))
        truths = {corpus: parts["truth"] for corpus, parts in shown["corpora"].items()}
        for corpus, collect, dataset in zip(CORPORA, COLLECT, DATASET, strict=True):
            keys = Counter(run["partition_key"] for run in runs if run["dag_id"] == collect)
            assert keys == Counter(MONTHS), f"seed {seed}"
            subjects = world.subjects(f"{corpus})")
            months = Counter(line for line in subjects if line.startswith("data("))
            assert months == Counter(f"data({corpus}): {month}" for month in MONTHS), f"seed {seed}"
            assert subjects[0] == f"snapshot({corpus}): quality@{corpus}", "the dataset of all months"
            assert {file.split("/")[2] for file in files if file.startswith(f"data/{corpus}/2")} == set(MONTHS)
            assert (truths[corpus]["unexpected"], truths[corpus]["missing"]) == (0, 0), f"seed {seed}"
            # a publish that was killed after its commit commits nothing again, but emits its event
            count = sum(run["dag_id"] == dataset for run in runs)
            states = Counter(task["state"] for task in tasks if (task["dag_id"], task["task_id"]) == (dataset, "pin"))
            assert 1 <= states["success"] <= count <= COUNT + len(KILLED), f"seed {seed}"
        assert changed(world, tmp_path / "laptop") == {}, f"seed {seed}"
