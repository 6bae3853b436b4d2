"""``corpus train`` in two processes over gloo, as a person runs it: each holds half, and a kill leaves no trace.

Five runs of the command take minutes, so they are in the slow tier.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from pipelines.core import rows
from pipelines.core.config.params import by_file, overlay, read_params, validate
from pipelines.models.kinds.sft import launch
from pipelines.models.kinds.sft.trainer import WHOLE
from tests.small_corpus import ROOT, SECRET
from tests.train import small_posts as small

pytestmark = pytest.mark.faults

RECIPE = {
    "kind": "sft", "base": "tiny:qwen3", "tuning": "full", "batch": 4, "accumulation": 1, "max_length": 1536,
    "learning_rate": 0.002, "warmup": 0.1, "weight_decay": 0.0, "epochs": 3, "packing": True,
}  # fmt: skip
WORKER = "pipelines.models.kinds.sft.sft"
ROW = "labels-shared-consensus-1"
TRAIN = {
    "rows": {"posts": {"models": ["shared"], "subsets": ["consensus"], "ensemble": "cradle", "seeds": [1]}},
    "keep": [f"posts-{ROW}"],
    "checkpoint_steps": 1,
}


@dataclass(frozen=True)
class Place:
    """A corpus and a home of its own, in which the command runs."""

    folder: Path

    @property
    def checkpoints(self) -> Path:
        return self.folder / f"home/train/posts/{ROW}/checkpoints"

    def start(self, processes: int, **entry: Any) -> subprocess.Popen[bytes]:
        root = self.folder / "root"
        sandbox = yaml.safe_load((ROOT / "profiles/sandbox.yaml").read_text())
        own = {"models": {"shared": RECIPE | entry}, "train": TRAIN}
        values = overlay(overlay(read_params(ROOT), sandbox), own)
        for name, sections in by_file(values).items():
            (root / name).write_text(yaml.safe_dump(sections))
        (root / rows.FILE).write_text(rows.text(validate(values, where="params.yaml"), root=root))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CORPUS_", "MLFLOW_"))}
        env |= {
            "CORPUS_HOME": str(self.folder / "home"), "CORPUS_SECRET": SECRET, "PYTHONPATH": str(ROOT),
            "CORPUS_VAULT_URL": f"sqlite:///{root}/vault.sqlite", "CORPUS_FINETUNE_PROCESSES": str(processes),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "pipelines", "train", "posts", "--row", ROW]
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            return subprocess.Popen(command, cwd=root, env=env, stdout=out, stderr=err, start_new_session=True)

    def said(self, stream: str) -> str:
        return (self.folder / stream).read_text()

    def run(self, processes: int, **entry: Any) -> dict[str, Any]:
        """Run the command and return the metrics that it commits."""
        return self.observed(processes, **entry)[0]

    def observed(self, processes: int, **entry: Any) -> tuple[dict[str, Any], set[int]]:
        """Run the command and return its metrics and the steps of the checkpoints that it wrote."""
        before, written = set(self.checkpoints.glob("checkpoint-*")), set[int]()
        with self.start(processes, **entry) as command:
            while command.poll() is None:
                written |= {number(path) for path in set(self.checkpoints.glob("checkpoint-*")) - before}
                time.sleep(0.02)
        assert command.returncode == 0, self.said("err")[-3000:]
        found: dict[str, Any] = json.loads((self.folder / f"root/metrics/posts/train-{ROW}.json").read_text())
        printed = json.loads(self.said("out"))
        assert printed.keys() >= {"kind", "task", "train", "score"} and printed.items() <= found.items()
        return found, written

    def weights(self) -> dict[str, Any]:
        return dict(load_file(self.folder / f"root/snapshot/posts/fits/{ROW}/model.safetensors"))


def number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    original = small.made()

    def make(name: str) -> Place:
        folder = tmp_path_factory.mktemp(name)
        with small.copied(original, to=folder / "root"):
            pass
        (folder / "home").mkdir()
        return Place(folder)

    yield make


@pytest.fixture(scope="module")
def two(place: Any) -> tuple[Place, dict[str, Any]]:
    made = place("two")
    return made, made.run(2)


def test_each_of_two_processes_holds_half_and_both_learn_what_one_does(
    place: Any, two: tuple[Place, dict[str, Any]]
) -> None:
    alone = place("one")
    one, shared = alone.run(1)["fit"], two[1]["fit"]
    assert one["held"] == [one["parameters"]]
    assert shared["parameters"] == one["parameters"] == sum(shared["held"]) == 639808
    assert shared["held"] == [319904, 319904]
    for line, expected in zip(shared["history"], one["history"], strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    weights = two[0].weights()
    for name, tensor in alone.weights().items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=2e-4)


def test_a_process_that_is_killed_ends_the_command_and_a_retry_resumes_on_both(
    place: Any, two: tuple[Place, dict[str, Any]]
) -> None:
    killed = place("killed")
    with killed.start(2) as command:
        # a checkpoint within the second epoch, of 5 steps
        while not (killed.checkpoints / "checkpoint-7" / WHOLE).is_file():
            assert command.poll() is None, killed.said("err")[-3000:]
            time.sleep(0.02)
        [second] = [
            child for child in psutil.Process(command.pid).children(recursive=True)
            if WORKER in child.cmdline() and child.environ().get("RANK") == "1"
        ]  # fmt: skip
        second.send_signal(signal.SIGKILL)
        assert command.wait(timeout=120) == 75
    assert json.loads(killed.said("out"))["error"] == "GroupFailed"
    left = sorted(path.parent.name for path in killed.checkpoints.glob(f"*/{WHOLE}"))
    assert left, "a retry needs a whole checkpoint"
    newest = max((killed.checkpoints / name for name in left), key=number)
    for folder in (launch.WEIGHTS, launch.OPTIMIZER):
        sizes = {path.name: path.stat().st_size for path in (newest / folder).glob("*.distcp")}
        assert sorted(sizes) == ["__0_0.distcp", "__1_0.distcp"], "each process writes its own part"
        assert max(sizes.values()) < 1.1 * min(sizes.values())
    again, written = killed.observed(2)
    assert min(written) == number(newest) + 1, "it goes on and does not begin again"
    assert again["fit"]["history"] == two[1]["fit"]["history"]
    weights = two[0].weights()
    assert all(torch.equal(weights[name], tensor) for name, tensor in killed.weights().items())


def test_a_recipe_that_is_offloaded_computes_the_same(place: Any, two: tuple[Place, dict[str, Any]]) -> None:
    found = place("offloaded").run(1, offload="cpu")["fit"]
    assert found["held"] == [found["parameters"]]
    for line, expected in zip(found["history"], two[1]["fit"]["history"], strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
