"""One real deployment for the tier: a small sandbox, MLflow, Airflow's four components, a fresh checkout and home."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crisis_corpus_sandbox import audit, component
from crisis_corpus_sandbox.reddit.build import build
from pipelines.annotate.label_studio.server import start
from pipelines.core.components import down
from pipelines.core.config.params import load
from pipelines.core.config.settings import ADMIN, Settings
from pipelines.operate.services.services import LocalDeployment
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.airflow.by_heart import DAG, NAME, SCORING, WHY, Decided, context_of, put
from tests.airflow.kills import kill_first
from tests.airflow_client import AirflowClient
from tests.ports import free_port
from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[2]
LABEL_STUDIO_PORT = free_port()
MONTHS = ("2022-11", "2022-12")
DAGS = ("memes_collect", "memes_dataset", "posts_collect", "posts_dataset", "posts_label")
# Nothing waits so long where all is well: two cores that do much else besides took 430 s for both backfills.
PATIENCE = 900.0
# Seconds between two looks: each takes the API server's processor time from the tasks.
POLL = 2.0
# Seconds within which the scheduler makes the run of a schedule whose Dag was unpaused.
SCHEDULED = 20.0


@dataclass
class World:
    root: Path
    settings: Settings
    deployment: LocalDeployment
    airflow: AirflowClient

    def run(self, *argv: str) -> str:
        """Run ``python -m <argv>`` in the deployment's environment."""
        how = {"cwd": self.root, "env": self.deployment.environment, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, "-m", *argv], **how, check=False)
        assert done.returncode == 0, f"{argv[:3]} exited with {done.returncode}"
        return done.stdout

    def head(self, corpus: str = "") -> str:
        grep = ["--fixed-strings", f"--grep=({corpus})"] if corpus else []
        return git("--git-dir", self.settings.repo, "log", "-1", "--format=%H", *grep, "corpus")

    def subjects(self, corpus: str = "") -> list[str]:
        lines = git("--git-dir", self.settings.repo, "log", "--format=%s", "corpus").splitlines()
        return [line for line in lines if f"({corpus}" in line]

    def trigger(self, dag_id: str, *, partition_key: str | None) -> str:
        return self.airflow.trigger(dag_id, partition_key=partition_key)

    def questions(self) -> list[dict[str, Any]]:
        path = self.settings.sandbox / "vendors.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["answered"] and line["key"]]

    def run_now(self, dag_id: str) -> str:
        """Unpause a Dag and wait for the run that its schedule makes at once, else for one that is triggered."""
        self.airflow.unpause(dag_id)
        deadline = time.monotonic() + SCHEDULED
        while not (runs := self.airflow.runs(dag_id)) and time.monotonic() < deadline:
            time.sleep(POLL)
        run_id = str(runs[0]["dag_run_id"]) if runs else self.airflow.trigger(dag_id)
        self.airflow.finish(dag_id, run_id, answers={})
        return run_id

    def pause(self, dag_id: str) -> None:
        place = f"{self.airflow.base}/api/v2/dags/{dag_id}"
        self.airflow.session.patch(place, json={"is_paused": True}, timeout=30).raise_for_status()

    def state(self, dag_id: str, run_id: str) -> str:
        return str(self.airflow.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(self.airflow.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])

    def wait(self, done: Callable[[], object], *, what: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not done():
            assert time.monotonic() < deadline, f"waited {patience:.0f} s for: {what}; {self.airflow.unfinished()}"
            time.sleep(POLL)

    def quiet(self, corpus: str = "") -> bool:
        runs = [r for dag_id in DAGS if dag_id.startswith(corpus) for r in self.airflow.runs(dag_id)]
        return all(r["state"] in {"success", "failed"} for r in runs)

    def backfill(self, corpus: str, *more: str, months: tuple[str, ...] = MONTHS) -> None:
        self.run(
            "airflow", "backfill", "create", "--dag-id", f"{corpus}_collect", *more,
            "--from-date", f"{months[0]}-01", "--to-date", f"{months[-1]}-01",
        )  # fmt: skip

    def naming(self, needles: Collection[bytes]) -> tuple[int, list[str]]:
        """Return the number of files of checkout and home, and those with a needle in bytes or in a plain column.

        Left out are the sandbox's own files, and the sources of its generator, which name the canaries.
        """
        checked, hits = 0, []
        for path in [*self.settings.home.rglob("*"), *self.root.rglob("*")]:
            if not path.is_file() or self.settings.sandbox in path.parents or ".git" in path.parts:
                continue
            if self.root in path.parents and path.relative_to(self.root).parts[0] in {"pipelines", "sandbox", "tests"}:
                continue
            checked, data = checked + 1, path.read_bytes()
            if data[:4] == b"PAR1":
                table = pq.read_table(path)
                plain = [c for c in table.column_names if pa.types.is_string(table.schema.field(c).type)]
                data += " ".join(value for c in plain for value in table[c].to_pylist() if value).encode()
            data = data.lower()
            if any(needle in data for needle in needles):
                hits.append(str(path.relative_to(self.settings.home.parent)))
        return checked, hits

    def settle(self, corpus: str = "") -> None:
        calm = 0
        deadline = time.monotonic() + PATIENCE
        while calm < 3:
            assert time.monotonic() < deadline, "the Dags did not come to rest"
            calm = calm + 1 if self.quiet(corpus) else 0
            time.sleep(1)


def smaller(profile: dict[str, Any]) -> None:
    profile["sandbox"]["submissions"] = 120
    profile["collect"]["shard_size"] = 50
    profile["sample"]["memes"]["size"] = 60
    profile["sandbox"]["posts"] = 260
    profile["sample"]["posts"]["size"] = 170
    profile["split"]["posts"] = {name: {"train": 60, "dev": 70, "test": 40} for name in ("ratios", "sizes")}
    for split in (profile["split"]["posts"], profile["split"].setdefault("memes", {})):
        split["proposals"] = 100_000
    # the offline ensemble labels in the demo and in tests/label; here batches do
    profile["votes"] |= {
        "labellers": {"posts": ["gpt", "claude", "gemini"]},
        "batch": True,
        "shard_size": 100,
        "budget_usd": 200,
    }
    profile["silver"]["ensembles"] = {"posts": ["cradle"]}
    profile["injection_test"]["size"] = 40
    # one model that is fitted, one that is asked, and a vendor's moderation: what `estimate` adds up for memes
    profile["models"]["tiny-text"] |= {"tasks": ["severity"], "epochs": 1}
    profile["models"]["gpt-5-mini-zero"]["tasks"] = ["severity"]
    profile["train"]["rows"]["memes"]["models"] = ["tiny-text"]
    for name in ("meme-severity", "meme-figurative", "meme-related"):
        profile["registry"][name]["candidates"] = []
    profile["moderation"] |= {"systems": {"memes": ["openai"]}, "items": 10}
    profile["evaluate"]["resamples"] = 100


@contextmanager
def deployed(folder: Path, *, smaller: Callable[[dict[str, Any]], None]) -> Iterator[World]:
    """Start a deployment of the working tree below ``folder``; stop it and restore the environment at the end."""
    before = dict(os.environ)
    root = checkout(folder / "checkout", smaller=smaller)
    os.environ["CORPUS_HOME"] = str(folder / "var")
    os.environ["CORPUS_SANDBOX_PORT"] = str(free_port())
    os.environ["CORPUS_LABEL_STUDIO_ENV"] = str(ROOT / ".label-studio")
    settings = Settings.from_env()
    try:
        params = load(root, profile="sandbox")
        build(settings.sandbox, sandbox=component.with_port(params, settings))
        repository.init(settings, checkout=root, profile="sandbox")
        deployment = LocalDeployment(settings, root=root, profile="sandbox", added=component.added(settings, params))
        laptops = f"{folder.parent}/*/laptop*"
        # the address of the embedded Label Studio is in its own folder, not in the environment
        known = deployment.environment | {"label_studio": f"http://127.0.0.1:{LABEL_STUDIO_PORT}"}
        os.environ |= audit.begin(settings, environment=known, root=root, people=laptops)
        deployment.up(say=lambda _: None)
        base = f"http://127.0.0.1:{deployment.ports.airflow}"
        airflow = AirflowClient(base, login=deployment.login(ADMIN))
        Settings.from_env()  # sets the login of MLflow for the clients of this process
        yield World(root, settings, deployment, airflow)
        assert [audit.told(each) for each in audit.outside(settings)] == []
    finally:
        down(settings)
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(tmp_path_factory.mktemp("deployment"), smaller=smaller) as world:
        yield world


@pytest.fixture(scope="session")
def begun(world: World) -> list[int]:
    """Backfills of both corpora, side by side; the first `ask` of posts is killed.

    Returns the number of the killed process.
    """
    killed: list[int] = []
    wanted = {"args": ("label",), "kwargs": {"root": world.root, "killed": killed, "patience": PATIENCE}}
    threading.Thread(target=kill_first, daemon=True, **wanted).start()
    for dag_id in DAGS:
        world.airflow.unpause(dag_id)
    # as the demo does it, and as a person does
    months = {"from_date": f"{MONTHS[0]}-01T00:00:00Z", "to_date": f"{MONTHS[-1]}-01T00:00:00Z"}
    world.airflow.post("/backfills", {"dag_id": "posts_collect", **months})
    world.backfill("memes")
    return killed


@pytest.fixture(scope="session")
def backfilled(world: Any, begun: list[int]) -> str:
    """The head of the memes after an undisturbed backfill of both months; posts are worked on beside them."""
    world.wait(lambda: len(world.airflow.runs("memes_collect")) == 2, what="two runs of the backfill")
    world.wait(
        lambda: (
            len(world.subjects("memes")) >= 3
            and world.subjects("memes")[0].startswith("snapshot(")
            and world.quiet("memes")
        ),
        what="both months and the snapshot over them",
    )
    world.settle("memes")
    return str(world.head("memes"))


@pytest.fixture(scope="session")
def labelled(world: Any, begun: list[int]) -> str:
    world.wait(
        lambda: world.subjects("posts") and world.subjects("posts")[0].startswith("snapshot(posts): injection_test@"),
        what="silver of both months",
    )
    world.settle()
    assert begun, "no labelling task was killed"
    return str(world.head("posts"))


@pytest.fixture(scope="session")
def label_studio(world: Any, labelled: str) -> Future[Any]:
    return ThreadPoolExecutor(1).submit(start, world.settings, port=LABEL_STUDIO_PORT)


@pytest.fixture(scope="session")
def labelling_again(world: Any, labelled: str, label_studio: Future[Any]) -> tuple[str, int]:
    """A run of `posts_label` on what is labelled already; how much was asked before it."""
    before = len(world.questions())
    return str(world.trigger("posts_label", partition_key="snapshot")), before


@pytest.fixture(scope="session")
def decided(world: Any, labelled: str, tmp_path_factory: pytest.TempPathFactory) -> Decided:
    """A good version was approved, though the first `promote` was killed; then a worse one was judged."""
    with context_of(world) as context:
        models = {"good": 1.0, "worse": 0.2}.items()
        versions = [put(context, share=of, folder=tmp_path_factory.mktemp("model") / name) for name, of in models]
    assert versions == [1, 2]
    killed: list[int] = []
    how = {"root": world.root, "killed": killed, "patience": PATIENCE}
    threading.Thread(target=kill_first, daemon=True, args=("promote",), kwargs=how).start()
    for dag_id in (SCORING, DAG):
        world.airflow.unpause(dag_id)
    runs = []
    for version in versions:
        runs.append(world.airflow.trigger(DAG, conf={"name": NAME, "version": version}))
        world.airflow.finish(DAG, runs[-1], answers={"approve": ("Promote", {"why": WHY})})
    return Decided(good=runs[0], worse=runs[1], killed=killed)
