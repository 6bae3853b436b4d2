"""A cluster of this host, and the same work done in one home by processes without Airflow."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from crisis_corpus_sandbox.reddit.build import build
from dvc_airflow import command
from dvc_airflow import settings as of_plugin
from dvc_airflow.graph import closure, graph
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.registry.journal import Journal
from pipelines.release.release_store import ReleaseEntry
from pipelines.store.vault.database import marks, records
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from tests import mlflow_database, mlflow_server, stress
from tests.airflow_client import AirflowClient
from tests.distributed.cluster import Cluster, missing, say
from tests.ports import free_port
from tests.small_checkout import checkout

MODEL, RELEASE, REQUEST = "crisis-posts", "posts-1", "request-1"
# The versions of MODEL in the order of `registry`, and their names in the evaluation.
VERSIONS = {1: "tiny-encoder-weak-consensus", 2: "tiny-encoder-consensus"}
EVALUATED = Path("metrics/posts/evaluate.json")
Decision = tuple[str, int | None, int | None, Any]
# What two runs with equal data may have otherwise: measured times, commits, and ids and digests that come of them.
OWN = {"seconds", "seconds_per_record", "data_commit", "run", "calibration.json", "pair"}
# Outs with such values, whose files are compared one by one, and files that print them.
WITH_OWN = ("metrics/posts/", "snapshot/posts/fits/", "snapshot/posts/predictions/", "snapshot/posts/report")
PRINTED = ("report.html", "report.md", "cost-of-prediction.csv", "cost-of-prediction.tex")
# A machine that does much else besides needs long for a task; each fault costs up to two minutes.
PATIENCE = 1200.0


@dataclass(frozen=True)
class Site:
    """A checkout, the offline Reddit and its port; single-host and distributed run share them."""

    folder: Path
    root: Path
    reddit: Path
    port: int


@dataclass
class World:
    """The cluster and a client of its Airflow."""

    cluster: Cluster
    airflow: AirflowClient

    def tasks(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the task instances of all runs of a Dag."""
        return list(self.airflow.get(f"/dags/{dag_id}/dagRuns/~/taskInstances", limit=500)["task_instances"])

    def wait(self, done: Callable[[], object], *, what: str) -> None:
        """Wait until something is done; parts that end by themselves are started again meanwhile."""
        deadline, told = time.monotonic() + PATIENCE, 0.0
        while not done():
            self.cluster.revive()
            assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}; {self.airflow.unfinished()}"
            if time.monotonic() > told + 30:
                told = time.monotonic()
                say(f"waiting for {what}: {', '.join(self.airflow.unfinished()) or 'nothing runs'}")
            time.sleep(1)
        say(f"{what}: done")

    def running(self, dag_id: str, *tasks: str, on: str | None = None) -> bool:
        """Whether one of these tasks (of any, without) runs now, on one worker if ``on`` names it."""
        return any(
            t["state"] == "running" and (not tasks or t["task_id"] in tasks) and on in (None, t["hostname"])
            for t in self.tasks(dag_id)
        )

    def succeed(self, dag_id: str, *, runs: int = 1) -> None:
        """Wait until a Dag has so many runs and all have succeeded."""

        def done() -> bool:
            states = [run["state"] for run in self.airflow.runs(dag_id)]
            assert "failed" not in states, f"{dag_id} failed; {self.airflow.unfinished()}"
            return len(states) >= runs and set(states) == {"success"}

        self.wait(done, what=f"{runs} runs of {dag_id}")

    def digests(self) -> dict[str, str]:
        """Return the digests of everything that the corpus branch has."""
        with self.cluster.as_worker("fetch"):
            return digests()


@dataclass(frozen=True)
class Result:
    """What one host made without Airflow.

    ``keys`` are the records of its vault before the takedown, ``benchmark`` and ``takedown`` the digests of all data
    after either, ``decisions`` those about the models, and ``release`` the digests of its tables.
    """

    keys: list[dict[str, Any]]
    benchmark: dict[str, str]
    decisions: list[Decision]
    takedown: dict[str, str]
    release: dict[str, str]


def smaller(profile: dict[str, Any]) -> None:
    """Make the profile as small as a shard's, with two encoders of different quality to promote."""
    stress.smaller(profile)
    profile["sample"]["posts"] = {"size": 170}
    profile["split"]["posts"] = {name: {"train": 90, "dev": 50, "test": 30} for name in ("ratios", "sizes")}
    ensemble, models = stress.ENSEMBLES[0], profile["models"]
    models["tiny-encoder-weak"] = {**models["tiny-encoder"], "epochs": 4}
    models["words"] = {"kind": "votes", "votes": "words"}
    models["ensemble"] = {"kind": "ensemble", "silver": ensemble}
    fitted = {"ensemble": ensemble, "models": ["tiny-encoder-weak", "tiny-encoder", "knn"]}
    profile["train"]["rows"]["posts"] |= fitted
    profile["predict"]["rows"]["posts"] = ["words", "ensemble"]
    profile["registry"] = {
        MODEL: {
            "candidates": [{"model": name, "subset": "consensus"} for name in ("tiny-encoder-weak", "tiny-encoder")]
        }
    }


def digests() -> dict[str, str]:
    """Return the digests of everything that the corpus branch has, without the values that are each run's ``OWN``."""
    found = stress.digests()
    with workspace(Settings.from_env()) as clone:
        mixed = [path for path in found if path.startswith(WITH_OWN)]
        clone.checkout(*(path for path in mixed if path.startswith("snapshot/")))
        for out in mixed:
            del found[out]
            path = clone.path / out
            for file in [path] if path.is_file() else path.rglob("*"):
                if file.is_file() and not file.name.endswith(PRINTED):
                    found[file.relative_to(clone.path).as_posix()] = _digest(file)
    return found


def _digest(file: Path) -> str:
    data = file.read_bytes()
    if file.suffix == ".json":
        data = json.dumps(_without_own(json.loads(data))).encode()
    return hashlib.sha256(data).hexdigest()


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_own(member) for key, member in value.items() if key not in OWN}
    return [_without_own(member) for member in value] if isinstance(value, list) else value


def decisions() -> list[Decision]:
    """Return what the journal has of the models: event, versions and scores."""
    with Journal.of(Settings.from_env()) as journal:
        journal.verify(MODEL)
        rows = journal.rows(MODEL)
    figures = [_without_own(row.metrics.get("figures", {}).get("scores")) for row in rows]
    return [(row.event, row.from_version, row.to_version, shown) for row, shown in zip(rows, figures, strict=True)]


def by_score(evaluated: Path) -> list[int]:
    """Return the numbers of both versions, the one with the lower score first."""
    models = json.loads(evaluated.read_text())["tasks"]["labels"]["models"]
    scores = {version: models[name]["valid"]["figures"]["macro_f1"]["mean"] for version, name in VERSIONS.items()}
    return sorted(scores, key=lambda version: (scores[version], version))


def released() -> dict[str, str]:
    """Return the digests of the tables of the release; what depends on its random key or on the commit is left out."""
    state = ReleaseEntry.of(Settings.from_env(), RELEASE).state()
    return {file: value for file, value in state["files"].items() if file.endswith(".csv") and file != "fetch.csv"}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("distributed")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # PostgreSQL is another user
    port = free_port()
    root = checkout(folder / "checkout", smaller=smaller)
    sandbox = load(root, profile="sandbox").sandbox
    assert sandbox is not None
    build(folder / "reddit", sandbox=sandbox.model_copy(update={"port": port}))
    return Site(folder, root, folder / "reddit", port)


@pytest.fixture(scope="session")
def alone(site: Site) -> Iterator[Result]:
    """The posts of both months, from dumps to release, made on one host without Airflow."""
    before = dict(os.environ)
    kept = of_plugin.ROOT, of_plugin.HOME, of_plugin.PROFILE, command.subprocess
    first, then = stress.STAGES["posts"]
    mlflow = site.folder / "alone-mlflow"
    mlflow_database.place(mlflow)
    try:
        # the stage is part of the benchmark's Dag
        stress.STAGES["posts"] = tuple(stage for stage in first if stage != "agreement"), then
        world = stress.World(site.folder / "alone", checkout=site.root, sandbox=site.reddit, port=site.port)
        repository.init(Settings.from_env(), checkout=site.root, profile="sandbox")
        tasks = [*(task for task in world.tasks() if task.name.startswith("posts")), *_benchmark(world)]
        say(f"{len(tasks)} tasks on one host")
        stress.Scheduler(tasks, chaos=stress.Chaos(None), hopeless=world.hopeless).run()
        command.subprocess = kept[-1]
        with mlflow_server.serving(mlflow, files=mlflow / "artifacts") as address:
            os.environ["MLFLOW_TRACKING_URI"] = address
            yield _decided(world)
    finally:
        stress.STAGES["posts"] = first, then
        os.environ.clear()
        os.environ.update(before)
        of_plugin.ROOT, of_plugin.HOME, of_plugin.PROFILE, command.subprocess = kept


def _benchmark(world: stress.World) -> list[stress.Task]:
    """Return the tasks of the Dag ``posts_benchmark``."""
    stages = graph(world.checkout, profile="sandbox")
    below = [f"silver@posts-{ensemble}" for ensemble in stress.ENSEMBLES]
    given = {stage.name for stage in closure(stages, targets=below)}
    rest = [stage.name for stage in closure(stages, targets=["report@posts"]) if stage.name not in given]
    return world.snapshot("posts", "benchmark", rest, after=["posts label publish"], below=below)


def _decided(world: stress.World) -> Result:
    """Promote both versions, roll back, take posts down and release the rest, by the commands of a person."""
    settings, person = Settings.from_env(), ("--who", "tests", "--why", "complete")
    benchmark = digests()
    with workspace(settings) as clone:
        order = by_score(clone.path / EVALUATED)
    command.run("register", "--corpus", "posts")
    for version in order:
        command.run("promote", MODEL, str(version), *person)
    command.run("rollback", MODEL, *person)
    found = decisions()
    with Vault.existing(settings) as vault, vault.database.reading() as connection:
        keys = [dict(row._mapping) for row in connection.execute(sa.select(records))]
    request = world.home / "requested.txt"
    request.write_text("".join(f"{name}\n" for name in requested(settings).values()))
    command.run("takedown", "--file", str(request), "--reason", REQUEST, "--who", "tests", "--yes")
    left = digests()
    command.run("release", "make", "posts", RELEASE)
    return Result(keys, benchmark, found, left, released())


def requested(settings: Settings) -> dict[str, str]:
    """Return the names of the posts that are taken down by record id."""
    with Vault.existing(settings) as vault:
        with vault.database.reading() as connection:
            ids = {row[0] for row in connection.exec_driver_sql("SELECT record_id FROM records ORDER BY 1 LIMIT 5")}
        return vault.fullnames(ids)


@pytest.fixture(scope="session")
def world(site: Site, alone: Result) -> Iterator[World]:
    """The cluster, with the keys of the single host: sealed tables are equal under equal keys only."""
    cluster = Cluster(
        site.folder / "cluster", root=site.root, reddit=site.reddit, secret=stress.SECRET, sandbox_port=site.port
    )
    try:
        cluster.up()
        with (
            cluster.as_worker("fetch") as settings,
            Vault.existing(settings) as vault,
            vault.database.writing() as connection,
        ):
            connection.execute(sa.insert(records), alone.keys)
            assert connection.scalar(sa.select(sa.func.count()).select_from(marks))
        yield World(cluster, cluster.client())
    finally:
        cluster.down()
