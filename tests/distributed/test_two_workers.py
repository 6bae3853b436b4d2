"""Posts from dumps to release on two workers: whatever fails on the way, the data is that of one host.

The tests build on one another. Each breaks one part while a task that needs it runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.registry.versions import Registry
from pipelines.takedown.redaction import Gone
from pipelines.workspace.clone import workspace
from tests.distributed.cluster import WORKERS
from tests.distributed.conftest import (
    EVALUATED,
    MODEL,
    RELEASE,
    REQUEST,
    Result,
    World,
    by_score,
    decisions,
    released,
    requested,
)

pytestmark = pytest.mark.faults
MONTHS = ("2022-11", "2022-12")
COLLECT, DATASET, LABEL, BENCHMARK = "posts_collect", "posts_dataset", "posts_label", "posts_benchmark"


def differing(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    pairs = {path: (wanted.get(path), found.get(path)) for path in wanted.keys() | found.keys()}
    return {path: digests for path, digests in pairs.items() if digests[0] != digests[1]}


def naming(folder: Path, ids: set[str]) -> list[Path]:
    gone = Gone(ids)
    return [path for path in (folder / "files").rglob("*") if path.is_file() and gone.within(path)]


@pytest.fixture(scope="module")
def collected(world: World) -> World:
    """A backfill of both months; a worker was killed and PostgreSQL was restarted."""
    world.airflow.unpause(COLLECT)
    period = ("--from-date", f"{MONTHS[0]}-01", "--to-date", f"{MONTHS[-1]}-01")
    world.cluster.run("airflow", "backfill", "create", "--dag-id", COLLECT, *period, home="control")
    world.wait(lambda: world.running(COLLECT, "texts", "partition", on="gpu"), what="a task on the worker gpu")
    world.cluster.kill("gpu")
    world.cluster.start("gpu")
    world.wait(lambda: world.running(COLLECT), what="a further task of the months")
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


@pytest.fixture(scope="module")
def benchmarked(labelled: World) -> World:
    """The report about models that were fitted on the labels; the worker was killed in its training."""
    labelled.airflow.unpause(BENCHMARK)
    labelled.airflow.trigger(BENCHMARK, partition_key="snapshot")
    training = "train__labels-tiny-encoder-consensus-20251001"
    labelled.wait(lambda: labelled.running(BENCHMARK, training), what="a training on the worker gpu")
    labelled.cluster.kill("gpu")
    labelled.cluster.start("gpu")
    labelled.succeed(BENCHMARK)
    # the takedown of a record on which a model was trained starts a run of it
    labelled.cluster.run("airflow", "dags", "pause", BENCHMARK, home="control")
    return labelled


def test_a_killed_worker_costs_only_time(collected: World) -> None:
    assert max(t["try_number"] for t in collected.tasks(COLLECT)) >= 2
    subjects = {run["partition_key"] for run in collected.airflow.runs(COLLECT) if run["state"] == "success"}
    assert subjects == set(MONTHS)


def test_both_workers_had_tasks(made: World) -> None:
    assert {t["hostname"] for t in made.tasks(COLLECT)} == set(WORKERS)
    assert {t["hostname"] for t in made.tasks(COLLECT) if t["queue"] == "internet"} == {"fetch"}


def test_the_data_is_that_of_one_host(benchmarked: World, alone: Result) -> None:
    assert {"silver", "fits", "predictions", "report"} <= {part for path in alone.benchmark for part in path.split("/")}
    assert differing(benchmarked.digests(), alone.benchmark) == {}


def test_models_are_promoted_and_rolled_back_as_on_one_host(benchmarked: World, alone: Result) -> None:
    cluster, airflow = benchmarked.cluster, benchmarked.airflow
    with cluster.as_worker("gpu") as settings, workspace(settings) as clone:
        order = by_score(clone.path / EVALUATED)
    airflow.unpause("promote")
    for version in order:
        run = airflow.trigger("promote", conf={"name": MODEL, "version": version, "reason": "complete"})
        airflow.finish("promote", run, answers={"approve": ("Promote", {"why": "complete"})})
    cluster.run("corpus", "rollback", MODEL, "--who", "tests", "--why", "complete", home="gpu")
    with cluster.as_worker("fetch") as settings:
        assert decisions() == alone.decisions
        assert Registry.open(settings).alias(MODEL) == order[0]


def test_a_takedown_on_one_worker_clears_the_other(benchmarked: World, alone: Result) -> None:
    cluster, airflow = benchmarked.cluster, benchmarked.airflow
    with cluster.as_worker("fetch") as settings:
        names = requested(settings)
    ids = set(names)
    assert all(naming(cluster.home(name) / "cache", ids) for name in WORKERS)
    request = cluster.folder / "shared" / "requests" / f"{REQUEST}.txt"
    request.write_text("".join(f"{name}\n" for name in names.values()))
    airflow.unpause("takedown")
    run = airflow.trigger("takedown", conf={"request": REQUEST})
    airflow.finish("takedown", run, answers={})
    assert not request.exists()
    for name in WORKERS:
        cluster.run("corpus", "task", "pin", home=name)
        assert naming(cluster.home(name) / "cache", ids) == []
    assert differing(benchmarked.digests(), alone.takedown) == {}


def test_a_release_made_on_one_worker_is_approved_on_any(benchmarked: World, alone: Result) -> None:
    cluster, airflow = benchmarked.cluster, benchmarked.airflow
    airflow.unpause("release")
    run = airflow.trigger("release", conf={"corpus": "posts", "name": RELEASE, "reason": "complete"})
    airflow.finish("release", run, answers={"approve": ("Release", {"why": "complete"})})
    for name in WORKERS:
        assert '"APPROVED"' in cluster.run("corpus", "release", "list", home=name)
    with cluster.as_worker("gpu"):
        assert released() == alone.release != {}
