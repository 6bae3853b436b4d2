"""A CLIP that reads remarks: the remarks of a labeller affect the prediction, and nothing replaces missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example, Item
from pipelines.datasets.features import Cues, Remarks
from pipelines.models import build
from tests.refusals import refused
from tests.train.models.fitting import fitted, logits, right
from tests.train.models.test_build import INFUSED as TINY


def cued(examples: Sequence[Example], remarks: Sequence[Remarks | None], *, labeller: str = "gpt") -> Cues:
    of: dict[Item, Remarks | None] = {e.item: r for e, r in zip(examples, remarks, strict=True)}
    return Cues(of=of, outcomes={}, labeller=labeller)


def plain(number: int, split: str = "train", severity: str | None = None) -> Example:
    labels = None if severity is None else frozenset({severity})
    return Example((f"r{number}", 0), split, "a long week", None, labels, str(number))


@pytest.fixture
def task() -> Task:
    return task_of(load("figsim"), "severity")


def made(folder: Path, task: Task, cues: Cues | None, *, seed: int = 1) -> Any:
    return build(TINY, task=task, seed=seed, folder=folder, max_tokens=32, cues=cues)


def test_without_remarks_nothing_is_built(tmp_path: Path, task: Task) -> None:
    with refused("NoCues", match="were not loaded"):
        build(TINY, task=task, seed=1, folder=tmp_path)
    with refused("NoCues", match="'claude'"):
        made(tmp_path, task, cued([], [], labeller="claude"))
    built = made(tmp_path, task, cued([plain(1)], [None]))
    with refused("NoCues", match="r2"):
        built.prepare([plain(1), plain(2)])


def test_rows_follow_the_examples_and_refused_memes_have_logits(tmp_path: Path, task: Task) -> None:
    examples = [plain(n) for n in range(4)]
    cues = cued(examples, [("rain", "a boat", "calm"), None, ("", "a boat", ""), ("", "", "")])
    built = made(tmp_path, task, cues)
    forth, back = logits(built, examples), logits(built, examples[::-1])
    assert forth.shape == (4, len(task.labels))
    assert torch.isfinite(forth).all()
    assert torch.allclose(forth, back.flip(0), atol=1e-5)
    assert torch.allclose(forth[1], forth[3], atol=1e-5)
    assert not torch.allclose(forth[0], forth[1])
    assert not torch.allclose(forth[0], forth[2])
    alone = logits(built, examples[2:3])
    assert torch.allclose(alone[0], forth[2], atol=1e-5)
    assert built.length(examples[0]) > built.length(examples[1])


def test_head_of_a_remark_matters(tmp_path: Path, task: Task) -> None:
    one, other = plain(1), plain(2)
    cues = cued([one, other], [("rain", "", ""), ("", "", "rain")])
    first, second = logits(made(tmp_path, task, cues), [one, other])
    assert not torch.allclose(first, second)


def test_what_only_the_remarks_tell_is_learnt(tmp_path: Path, task: Task) -> None:
    words = dict(zip(task.labels, ("monday", "fog", "cloud", "calendar", "door"), strict=True))
    truth = [task.labels[n % len(task.labels)] for n in range(80)]
    examples = [plain(n, severity=label) for n, label in enumerate(truth)]
    cues = cued(examples, [("when", f"the {words[label]} {n % 7}", "here") for n, label in enumerate(truth)])
    built = made(tmp_path, task, cues)
    train, held = examples[:60], [replace(example, labels=None) for example in examples[60:]]
    fitted(built, train, task=task, steps=20)
    assert right(built, held, task=task, truth=truth[60:]) > max(Counter(truth[60:]).values()) + 4
