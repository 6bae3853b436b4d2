"""A killed run that is started again ends as if nothing had happened; what is half-written or foreign is not taken."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model

from pipelines.models.fitting import checkpoint
from tests.train.small_run import SETTINGS, a_model, a_run, a_task, captions

ROOT = Path(__file__).resolve().parents[2]
# 75 captions in batches of 8, and 30 in one of 32 after every epoch and in the end
PASSES = SETTINGS.epochs * (10 + 1) + 1
TASK = a_task("figurative")


class Killed(BaseException):
    """Simulates a kill inside this process."""


def dying(folder: Path, *, epoch: int, **changes: Any) -> None:
    """Run until the end of an epoch, whose numbers are said but not yet kept."""

    def die(line: dict[str, float]) -> None:
        if line["epoch"] == epoch:
            raise Killed

    with pytest.raises(Killed):
        a_run(folder, task=TASK, say=die, **changes)


def tried(*tries: tuple[Path, int]) -> list[str]:
    """Do tries of runs in processes of their own and return their exit statuses."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = ROOT / "tests" / "train" / "small_run.py"
    arguments = [str(part) for one in tries for part in one]
    done = subprocess.run([sys.executable, str(script), *arguments], env=env, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().split()


def made(folder: Path) -> tuple[bytes, list[Any], list[float]]:
    found = json.loads((folder / "made.json").read_text())
    return (folder / checkpoint.MODEL).read_bytes(), found["history"], found["thresholds"]


@pytest.mark.faults
def test_a_run_that_was_killed_at_random_steps_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    # passes of training and of validation alike, from the one after the first checkpoint on
    moment = random.SystemRandom().randint(SETTINGS.checkpoint_steps + 1, PASSES)
    assert tried((whole, 0), (broken, moment), (broken, 0)) == ["0", "-9", "0"], f"killed in pass {moment}"
    assert json.loads((broken / "made.json").read_text())["resumed"] > 0, f"killed in pass {moment}"
    assert made(broken) == made(whole), f"killed in pass {moment}"


@pytest.mark.parametrize("epoch", [1, 4, SETTINGS.epochs])
def test_a_run_that_ended_between_an_epoch_and_its_checkpoint_repeats_what_was_lost(tmp_path: Path, epoch: int) -> None:
    whole = a_run(tmp_path / "whole", task=TASK)
    dying(tmp_path / "broken", epoch=epoch)
    said: list[dict[str, float]] = []
    again = a_run(tmp_path / "broken", task=TASK, say=said.append)
    assert again.resumed > 0
    assert [line["epoch"] for line in said] == list(range(epoch, SETTINGS.epochs + 1))
    assert again.history == whole.history
    assert again.state.read_bytes() == whole.state.read_bytes()


def test_nothing_but_the_weights_is_left_in_the_end(tmp_path: Path) -> None:
    (tmp_path / f"{checkpoint.HALF}of-a-killed-process").mkdir()
    fitted = a_run(tmp_path, task=TASK)
    assert list(tmp_path.iterdir()) == [fitted.state]


def test_other_people_cannot_read_a_checkpoint(tmp_path: Path) -> None:
    dying(tmp_path, epoch=2)
    (kept,) = tmp_path.glob("checkpoint-*")
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", [checkpoint.STATE, checkpoint.POSITION, checkpoint.MODEL])
def test_a_broken_checkpoint_is_not_gone_on_from(tmp_path: Path, name: str) -> None:
    dying(tmp_path, epoch=3)
    (kept,) = tmp_path.glob("checkpoint-*")
    file = kept / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert a_run(tmp_path, task=TASK).resumed == 0


def test_no_code_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path / "ran").touch, ()

    dying(tmp_path / "run", epoch=3)
    (kept,) = (tmp_path / "run").glob("checkpoint-*")
    torch.save({"optimizer": Bomb(), "randoms": [Bomb()]}, kept / checkpoint.STATE)
    assert a_run(tmp_path / "run", task=TASK).resumed == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"learning_rate": 0.01},
        {"mode": "paper"},
        {"train": captions(80, split="train", task=TASK)[5:]},
        {"validation": captions(29, split="validation", task=TASK)},
        {"built": a_model(TASK, seed=2)},
        {"built": replace(a_model(TASK), inputs="other remarks")},
    ],
)
def test_a_checkpoint_of_other_inputs_is_not_gone_on_from(tmp_path: Path, other: dict[str, Any]) -> None:
    dying(tmp_path, epoch=1)
    assert a_run(tmp_path, task=TASK, **other).resumed == 0


def test_tied_tensors_are_named_in_one_order(tmp_path: Path) -> None:
    """The library names them in an order that differs between processes, and digests of weights are committed."""
    tied = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in "hgfedcba"})
    for layer in tied.values():
        layer.weight = tied["h"].weight
    state = {"step": 1, "position": {}, "optimizer": torch.optim.SGD(tied.parameters()), "randoms": [], "best": True}
    path = checkpoint.save(tmp_path, key="k", module=tied, **state) / checkpoint.MODEL
    size = int.from_bytes(path.read_bytes()[:8], "little")
    named = list(json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"])
    assert len(named) == 7 and named == sorted(named)
    load_model(tied, path)
