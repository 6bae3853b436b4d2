"""One real deployment for the tier: a small sandbox, MLflow, Airflow's four components, a fresh checkout and home."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.params import Settings, load
from pipelines.sandbox.build import build
from pipelines.sandbox.demo import Airflow
from pipelines.sandbox.services import Deployment, down
from pipelines.store import repository
from pipelines.store.workspace import git

ROOT = Path(__file__).resolve().parents[2]
MONTHS = ("2022-11", "2022-12")
DAGS = ("memes_collect", "memes_dataset", "posts_collect", "posts_dataset", "posts_label")
PATIENCE = 420.0


@dataclass
class World:
    """What a test of this tier works with."""

    root: Path
    settings: Settings
    deployment: Deployment
    airflow: Airflow

    def run(self, *argv: str) -> str:
        """Run ``python -m <argv>`` in the deployment's environment."""
        done = subprocess.run(
            [sys.executable, "-m", *argv],
            cwd=self.root,
            env=self.deployment.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{argv[:3]} exited with {done.returncode}"
        return done.stdout

    def head(self) -> str:
        return git("--git-dir", self.settings.repo, "rev-parse", "corpus")

    def subjects(self) -> list[str]:
        return git("--git-dir", self.settings.repo, "log", "--format=%s", "corpus").splitlines()

    def trigger(self, dag_id: str, *, partition_key: str | None) -> str:
        answer = self.airflow.session.post(
            f"{self.airflow.base}/api/v2/dags/{dag_id}/dagRuns",
            json={"logical_date": None, "partition_key": partition_key},
            timeout=30,
        )
        assert answer.ok, answer.status_code
        return str(answer.json()["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        return str(self.airflow.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(self.airflow.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])

    def wait(self, done: Callable[[], object], *, what: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not done():
            assert time.monotonic() < deadline, f"waited {patience:.0f} s for: {what}"
            time.sleep(0.5)

    def quiet(self) -> bool:
        """Whether no run of any Dag is queued or running, and no consumer is about to be woken."""
        runs = [r for dag_id in DAGS for r in self.airflow.runs(dag_id)]
        return all(r["state"] in {"success", "failed"} for r in runs)

    def settle(self) -> None:
        """Wait until nothing runs, and has not for longer than the scheduler takes to wake a consumer."""
        calm = 0
        deadline = time.monotonic() + PATIENCE
        while calm < 6:
            assert time.monotonic() < deadline, "the Dags did not come to rest"
            calm = calm + 1 if self.quiet() else 0
            time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def checkout(folder: Path) -> Path:
    """Commit the working tree as it is, with a smaller sandbox, into a checkout of its own."""
    names = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    path = folder / "profiles" / "sandbox.yaml"
    profile = yaml.safe_load(path.read_text())
    profile["sandbox"]["submissions"] = 150
    profile["collect"]["shard_size"] = 25
    profile["sample"]["memes"]["size"] = 60
    profile["sandbox"]["posts"] = 260
    profile["sample"]["posts"]["size"] = 170
    profile["split"]["posts"] = {name: {"train": 60, "dev": 70, "test": 40} for name in ("ratios", "sizes")}
    # the offline ensemble labels in the demo and in tests/label; here batches do
    profile["votes"] |= {"labellers": ["gpt", "claude", "gemini"], "batch": True, "shard_size": 100, "budget_usd": 200}
    profile["silver"]["ensembles"] = ["cradle"]
    profile["probe"]["size"] = 40
    path.write_text(yaml.safe_dump(profile))
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "the working tree", cwd=folder)
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("deployment")
    root = checkout(folder / "checkout")
    os.environ["CORPUS_HOME"] = str(folder / "var")
    os.environ["CORPUS_SANDBOX_PORT"] = str(free_port())
    settings = Settings.from_env()
    sandbox = load(root, profile="sandbox").sandbox
    assert sandbox is not None and settings.sandbox_port is not None
    sandbox = sandbox.model_copy(update={"port": settings.sandbox_port})
    build(settings.sandbox, sandbox=sandbox)
    repository.init(settings, checkout=root, profile="sandbox")
    deployment = Deployment(settings, root=root, profile="sandbox", sandbox_port=sandbox.port)
    try:
        deployment.up(say=lambda _: None)
        airflow = Airflow(f"http://127.0.0.1:{deployment.ports.airflow}")
        for dag_id in ("memes_dataset", "memes_collect"):
            airflow.unpause(dag_id)
        yield World(root, settings, deployment, airflow)
    finally:
        down(settings)
        for name in ("CORPUS_HOME", "CORPUS_SANDBOX_PORT"):
            os.environ.pop(name, None)
