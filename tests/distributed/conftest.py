"""A cluster of this host, and the digests of the same work done by one process after another in one home."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dvc_airflow import command
from dvc_airflow import settings as of_plugin
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.sandbox.reddit.build import build
from pipelines.vault.database import marks, records
from pipelines.vault.vault import Vault
from pipelines.workspace import repository
from tests import stress
from tests.airflow_client import AirflowClient
from tests.distributed.cluster import Cluster, missing, say
from tests.ports import free_port
from tests.small_checkout import checkout

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
            assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}; {self.unfinished()}"
            if time.monotonic() > told + 30:
                told = time.monotonic()
                say(f"waiting for {what}: {', '.join(self.unfinished()) or 'nothing runs'}")
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
            assert "failed" not in states, f"{dag_id} failed; {self.unfinished()}"
            return len(states) >= runs and set(states) == {"success"}

        self.wait(done, what=f"{runs} runs of {dag_id}")

    def unfinished(self) -> list[str]:
        """Return every task that has begun and not succeeded."""
        _, tasks = self.airflow.runs_and_tasks()
        return [
            f"{t['dag_id']}.{t['task_id']} {t['state']} on {t['hostname']}, try {t['try_number']}"
            for t in tasks
            if t["state"] not in {None, "success", "skipped"}
        ]

    def digests(self) -> dict[str, str]:
        """Return the digests of everything that the corpus branch has."""
        with self.cluster.as_worker("fetch"):
            return stress.digests(None)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("distributed")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # PostgreSQL is another user
    port = free_port()
    root = checkout(folder / "checkout", smaller=stress._smaller)
    sandbox = load(root, profile="sandbox").sandbox
    assert sandbox is not None
    build(folder / "reddit", sandbox=sandbox.model_copy(update={"port": port}))
    return Site(folder, root, folder / "reddit", port)


@pytest.fixture(scope="session")
def alone(site: Site) -> Iterator[tuple[dict[str, str], list[dict[str, Any]]]]:
    """The digests of the labelled posts of both months, made on one host without Airflow, and the keys of its vault."""
    before = dict(os.environ)
    kept = of_plugin.ROOT, of_plugin.HOME, of_plugin.PROFILE, command.subprocess
    first, then = stress.STAGES["posts"]
    try:
        # no Dag of these runs the stage, which reads rounds of annotators
        stress.STAGES["posts"] = tuple(stage for stage in first if stage != "agreement"), then
        world = stress.World(site.folder / "alone", checkout=site.root, sandbox=site.reddit, port=site.port)
        repository.init(Settings.from_env(), checkout=site.root, profile="sandbox")
        tasks = [task for task in world.tasks() if task.name.startswith("posts")]
        say(f"{len(tasks)} tasks on one host")
        stress.Scheduler(tasks, chaos=stress.Chaos(None), hopeless=world.hopeless).run()
        with (
            Vault.existing(Settings.from_env()) as vault,
            vault.database.reading() as connection,
        ):
            rows = [dict(row._mapping) for row in connection.execute(sa.select(records))]
        yield stress.digests(world), rows
    finally:
        stress.STAGES["posts"] = first, then
        os.environ.clear()
        os.environ.update(before)
        of_plugin.ROOT, of_plugin.HOME, of_plugin.PROFILE, command.subprocess = kept


@pytest.fixture(scope="session")
def world(site: Site, alone: tuple[dict[str, str], list[dict[str, Any]]]) -> Iterator[World]:
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
            connection.execute(sa.insert(records), alone[1])
            assert connection.scalar(sa.select(sa.func.count()).select_from(marks))
        yield World(cluster, cluster.client())
    finally:
        cluster.down()
