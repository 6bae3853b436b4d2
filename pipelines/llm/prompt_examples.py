"""Return the labelled items that a few-shot prompt shows: chosen among validation, or drawn from train.

Those of validation are the choice of the stage ``few_shot`` (CRADLE B); models of kind ``prompted`` that read pictures
are shown pictures of train that cover every label (SPEC 1.2, item 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipelines.core.errors import ConfigError
from pipelines.datasets.example import TRAIN, only
from pipelines.datasets.post import Post
from pipelines.llm.pictures import picture
from pipelines.llm.prompts import PromptExample, choose

if TYPE_CHECKING:
    from pipelines.core.taxonomy.task import Task
    from pipelines.datasets.example import Example, Item
    from pipelines.datasets.items import SplitItems


def chosen(material: SplitItems, *, keys: Sequence[str], posts: Mapping[Item, Post]) -> list[PromptExample]:
    """Return the items that the stage ``few_shot`` chose, with their gold in the categories ``keys``.

    ``posts`` are the items as labellers receive them.
    """
    return [
        PromptExample(item[0], posts[item], {key: tuple(sorted(material.gold[key][item])) for key in keys})
        for item in material.examples
        if item in posts and all(item in material.gold.get(key, {}) for key in keys)
    ]


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
    gold = {key: {task.key: labels} for key, (_, labels) in candidates.items()}
    return [candidates[key][0] for key in choose(gold, count=count, seed=seed)]


def in_prompt(drawn: Sequence[Example], *, task: Task, words: bool) -> list[PromptExample]:
    """Return items of train as prompt examples with picture and labels; ``words``: see :func:`picture`."""
    return [
        PromptExample(
            example.item[0],
            picture(Post(example.item[0], "", example.text, (example.image,) if example.image else ()), words=words),
            {task.key: tuple(sorted(task.seen(example.labels or frozenset())))},
        )
        for example in only(drawn, splits=(TRAIN,))
    ]


def unshown(drawn: Sequence[Example], *, task: Task) -> list[str]:
    """Return the labels of the task that none of the drawn items has, in the scheme's order."""
    seen = {label for example in drawn for label in task.seen(example.labels or frozenset())}
    return [label for label in task.labels if label not in seen]
