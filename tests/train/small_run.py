"""A run that takes a second: captions whose label shows in a word, a small network that reads it, and a way to die.

As a script it is tries of runs, one after another: ``small_run.py <folder> <pass to be killed in, or 0> ...``; it
prints how each ended.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.models.backbones import Batch, Built
from pipelines.models.fitting.loop import FittedClassifier, fit
from pipelines.models.fitting.loss_and_optimizer import weigh
from pipelines.models.fitting.recipe import TrainingSettings

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("lamp", "tea", "rain", "sock", "bus", "cake")
# of the labels in the order of the task
SIGNS = ("river", "bell", "stone", "kite", "moss")
WIDTH = 64

SETTINGS = TrainingSettings(mode="improved", epochs=6, batch=8, learning_rate=0.02, checkpoint_steps=3)


def a_task(key: str) -> Task:
    return task_of(load_scheme("figsim"), key)


def captions(count: int, *, split: str, task: Task) -> list[Example]:
    """Return captions of four to nine words, one of which gives each label away."""
    chance = random.Random(f"{split}{task.key}")
    made = []
    for n in range(count):
        kept = [k for k in range(len(task.labels)) if chance.random() < 0.3]
        if task.kind == "single":
            kept = [chance.randrange(len(task.labels))]
        words = [SIGNS[k] for k in kept] + chance.choices(WORDS, k=chance.randint(4, 6))
        chance.shuffle(words)
        labels = frozenset(task.labels[k] for k in kept)
        made.append(Example((f"{split}{n:04}", 0), split, " ".join(words), None, labels, f"{split}{n}"))
    return made


class Bag(torch.nn.Module):
    """Counts of words, with what makes a run depend on every state there is: dropout and batch normalisation."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.read = torch.nn.Linear(WIDTH, 24)
        self.norm = torch.nn.BatchNorm1d(24)
        self.drop = torch.nn.Dropout(0.2)
        self.head = torch.nn.Linear(24, labels)

    def forward(self, counts: Any) -> Any:
        return self.head(self.drop(self.norm(torch.relu(self.read(counts)))))


def prepare(examples: Sequence[Example]) -> Batch:
    counts = torch.zeros(len(examples), WIDTH)
    for row, example in enumerate(examples):
        for word in example.text.split():
            counts[row, crc32(word.encode()) % WIDTH] += 1
    return {"counts": counts}


def a_model(task: Task, *, seed: int = 1) -> Built:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = Bag(len(task.labels))
    return Built(module, prepare, lambda example: len(example.text.split()))


def plain(task: Task) -> Built:
    """Return a model that does the same whatever else is in the batch."""
    built = a_model(task)
    built.module.norm, built.module.drop = torch.nn.Identity(), torch.nn.Identity()
    return built


def a_run(folder: Path, *, task: Task, say: Any = lambda line: None, seed: int = 1, **changes: Any) -> FittedClassifier:
    """Fit the small model, from ``built`` if given, with ``train``, ``validation`` and changed settings."""
    built = changes.pop("built", None) or a_model(task)
    train = changes.pop("train", None) or captions(75, split="train", task=task)
    validation = changes.pop("validation", None) or captions(30, split="validation", task=task)
    settings = SETTINGS.model_copy(update=changes)
    weights = weigh([e for e in train if e.split == "train"], task=task, max_pos_weight=20)
    return fit(
        built, train=train, validation=validation, task=task, settings=settings, seed=seed, folder=folder,
        weights=weights, say=say,
    )  # fmt: skip


def attempt(folder: Path, *, die_at: int) -> None:
    """Run, or be killed by the kernel in forward pass ``die_at``; save the result beside the weights."""
    task = a_task("figurative")
    built = a_model(task)
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1
        if passes == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    built.module.register_forward_hook(count)
    fitted = a_run(folder, task=task, built=built)
    made = {"history": fitted.history, "thresholds": fitted.thresholds.tolist(), "resumed": fitted.resumed}
    (folder / "made.json").write_text(json.dumps(made))


if __name__ == "__main__":
    # each try is a process of its own; the libraries are imported once
    for folder, moment in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        pid = os.fork()
        if not pid:
            attempt(Path(folder), die_at=int(moment))
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
