"""Posts from dumps to labels on two workers: whatever fails on the way, the data is that of one host.

The tests build on one another. Each breaks one part while a task that needs it runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.takedown.redaction import Gone
from pipelines.vault.vault import Vault
from tests.distributed.cluster import WORKERS
from tests.distributed.conftest import World

pytestmark = pytest.mark.faults
MONTHS = ("2022-11", "2022-12")
COLLECT, DATASET, LABEL = "posts_collect", "posts_dataset", "posts_label"
REQUEST = "request-1"


def naming(folder: Path, ids: set[str]) -> list[Path]:
    gone = Gone(ids)
    return [path for path in (folder / "files").rglob("*") if path.is_file() and gone.within(path)]


@pytest.fixture(scope="module")
def collected(world: World) -> World:
    """Both months; in the first a worker was killed, in the second PostgreSQL was restarted."""
    world.airflow.unpause(COLLECT)
    world.airflow.trigger(COLLECT, partition_key=MONTHS[0])
    world.wait(lambda: world.running(COLLECT, "texts", "partition", on="gpu"), what="a task on the worker gpu")
    world.cluster.kill("gpu")
    world.succeed(COLLECT)
    world.cluster.start("gpu")
    world.airflow.trigger(COLLECT, partition_key=MONTHS[1])
    world.wait(lambda: world.running(COLLECT, "texts"), what="a task of the second month")
    world.cluster.restart("postgres")
    world.succeed(COLLECT, runs=2)
    return world


@pytest.fixture(scope="module")
def made(collected: World) -> World:
    """The dataset; Redis was restarted, the store answered with 503 for a minute, and publish found no git server."""
    cluster = collected.cluster
    collected.airflow.unpause(DATASET)
    collected.airflow.trigger(DATASET, partition_key="snapshot")
    collected.wait(lambda: collected.running(DATASET, "dedupe", "gold"), what="the first stages of the dataset")
    cluster.restart("redis")
    collected.wait(lambda: collected.running(DATASET, "sample", "split"), what="further stages of the dataset")
    with cluster.without_store():
        time.sleep(60)
    collected.wait(lambda: collected.running(DATASET, "publish"), what="publish")
    cluster.stop("git")
    time.sleep(30)
    cluster.start("git")
    collected.succeed(DATASET)
    return collected


@pytest.fixture(scope="module")
def labelled(made: World) -> World:
    """The labels of the offline labellers and ensembles; a worker was killed."""
    made.airflow.unpause(LABEL)
    made.airflow.trigger(LABEL, partition_key="snapshot")
    made.wait(lambda: made.running(LABEL, on="gpu"), what="a task of the labels on the worker gpu")
    made.cluster.kill("gpu")
    made.cluster.start("gpu")
    made.succeed(LABEL)
    return made


def test_a_killed_worker_costs_only_time(collected: World) -> None:
    assert max(t["try_number"] for t in collected.tasks(COLLECT)) >= 2
    subjects = {run["partition_key"] for run in collected.airflow.runs(COLLECT) if run["state"] == "success"}
    assert subjects == set(MONTHS)


def test_both_workers_had_tasks(made: World) -> None:
    assert {t["hostname"] for t in made.tasks(COLLECT)} == set(WORKERS)
    assert {t["hostname"] for t in made.tasks(COLLECT) if t["queue"] == "internet"} == {"fetch"}


def test_the_data_is_that_of_one_host(labelled: World, alone: Any) -> None:
    wanted, found = alone[0], labelled.digests()
    assert {path for path in wanted if "silver" in path}
    pairs = {path: (wanted.get(path), found.get(path)) for path in wanted.keys() | found.keys()}
    assert {path: digests for path, digests in pairs.items() if digests[0] != digests[1]} == {}


def test_a_takedown_on_one_worker_clears_the_other(made: World) -> None:
    cluster = made.cluster
    with cluster.as_worker("fetch") as settings, Vault.existing(settings) as vault:
        with vault.database.reading() as connection:
            ids = {row[0] for row in connection.exec_driver_sql("SELECT record_id FROM records ORDER BY 1 LIMIT 5")}
        names = vault.fullnames(ids)
    assert all(naming(cluster.home(name) / "cache", ids) for name in WORKERS)
    request = cluster.folder / "shared" / "requests" / f"{REQUEST}.txt"
    request.write_text("".join(f"{name}\n" for name in names.values()))
    made.airflow.unpause("takedown")
    run = made.airflow.trigger("takedown", conf={"request": REQUEST})
    made.airflow.finish("takedown", run, answers={})
    assert not request.exists()
    for name in WORKERS:
        cluster.run("corpus", "task", "pin", home=name)
        assert naming(cluster.home(name) / "cache", ids) == []


def test_a_release_made_on_one_worker_is_approved_on_any(made: World) -> None:
    made.airflow.unpause("release")
    run = made.airflow.trigger("release", conf={"corpus": "posts", "name": "posts-1", "reason": "complete"})
    made.airflow.finish("release", run, answers={"approve": ("Release", {"why": "complete"})})
    for name in WORKERS:
        assert '"APPROVED"' in made.cluster.run("corpus", "release", "list", home=name)
