"""Posts of the sandbox's own writer, labelled as a careful labeller would, for what is tuned on silver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import TEST, TRAIN, Example, LabelSet
from tests.label.offline_posts import written

TASK = task_of(load("cradle"), "labels")
# every way in which examples of one split can be handed over as another part of the training material
leaks = pytest.mark.parametrize(
    ("part", "split"), [("train", "validation"), ("train", "test"), ("validation", "train"), ("validation", "test")]
)
# of the labels of train that are another post's
WRONG = 0.1


def floored(task: Task, **floors: float) -> Task:
    """Return the task with other recall floors of its labels."""
    return replace(task, category=replace(task.category, recall_floors=floors))


def posts(count: int, *, split: str, seed: int, words: int = 40) -> tuple[list[Example], list[LabelSet]]:
    """Return the posts of a split and what is true of them; in train some labels are wrong, in test all are hidden."""
    made, rng = written(count, seed=seed, words=words), Random(seed)
    truth = [labels for _, labels in made]
    seen = [rng.choice(truth) if split == TRAIN and rng.random() < WRONG else labels for labels in truth]
    examples = [
        Example((post.record_id, 0), split, post.text, None, None if split == TEST else labels, post.record_id)
        for (post, _), labels in zip(made, seen, strict=True)
    ]
    return examples, truth


def unlabelled(texts: Iterable[str]) -> list[Example]:
    """Return texts as examples to label."""
    return [Example((f"{n:04}", 0), TEST, text, None, None, "") for n, text in enumerate(texts)]


def exact(answered: list[LabelSet], truth: list[LabelSet]) -> float:
    """Return the share of label sets that are right."""
    return sum(a == b for a, b in zip(answered, truth, strict=True)) / len(truth)


def majority(truth: list[LabelSet]) -> float:
    """Return the share that the most frequent label set has."""
    return max(truth.count(labels) for labels in truth) / len(truth)
