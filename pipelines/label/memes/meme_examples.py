"""Draw the labelled memes of a few-shot prompt from train, so that they show every label (SPEC 1.2, item 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.core.errors import ConfigError
from pipelines.datasets.example import TRAIN, only
from pipelines.label.memes.meme_labels import meme
from pipelines.llm.prompting import prompts

if TYPE_CHECKING:
    from pipelines.core.taxonomy.task import Task
    from pipelines.datasets.example import Example


def draw(train: Sequence[Example], *, task: Task, count: int, seed: int) -> list[Example]:
    """Draw ``count`` labelled items with pictures that cover every label of the task, in an order set by ``seed``.

    The empty set counts as a label of its own ("None" of a multi-label task). A label that no item of train has cannot
    be shown; :func:`unshown` lists it.
    """
    candidates = {
        f"{example.item[0]}/{example.item[1]}": (example, task.seen(example.labels))
        for example in only(train, splits=(TRAIN,))
        if example.labels is not None and example.image is not None
    }
    if not count:
        return []
    there = {label for _, labels in candidates.values() for label in labels or {""}}
    if not len(there) <= count <= len(candidates):
        raise ConfigError("TooFewExamples", count=count, labels=len(there), items=len(candidates), task=task.key)
    gold = {key: labels for key, (_, labels) in candidates.items()}
    chosen = prompts.choose(gold, count=count, seed=seed, category=task.category)
    return [candidates[key][0] for key in chosen]


def shown(drawn: Sequence[Example], *, task: Task, words: bool) -> list[prompts.PromptExample]:
    """Return memes of train as prompt examples with picture and labels; with ``words``, also with the OCR text."""
    return [
        prompts.PromptExample(
            example.item[0],
            meme(example, words=words),
            {task.key: tuple(sorted(task.seen(example.labels or frozenset())))},
        )
        for example in only(drawn, splits=(TRAIN,))
    ]


def unshown(drawn: Sequence[Example], *, task: Task) -> list[str]:
    """Return the labels of the task that none of the drawn memes has, in the scheme's order."""
    seen = {label for example in drawn for label in task.seen(example.labels or frozenset())}
    return [label for label in task.labels if label not in seen]
