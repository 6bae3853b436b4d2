"""Represent records as models receive them: the examples of each split, with the labels that may be seen.

This module, not its callers, decides which labels are visible: :func:`material` hides those of test. Code that derives
something from examples (weights, thresholds, few-shot prompts, fits) calls :func:`only` with the splits that it may
use. This module needs neither vault nor tables, so that a model can be served without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import ConfigError, DataError
from pipelines.core.taxonomy.task import Task

Item = tuple[str, int]
"""A record id and the number of an image."""
LabelSet = frozenset[str]

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


class NoGold(ConfigError):
    """The current folder, a clone of the corpus, lacks the table of splits or the gold labels."""


@dataclass(frozen=True)
class Example:
    """A post or meme as the input of a model; ``repr`` shows only item, split and group, so that logs have no content.

    Args:
        text: text of the post, or text read from the picture, ``""`` if there is none.
        labels: the gold or silver labels in the task's label space; ``None`` if the labels are hidden, as opposed to an
            empty set.
        group: the group of items (near-duplicates, one author) that must be in one split.
        weight: how much the example counts in a training loss, relative to the others.
    """

    item: Item
    split: str
    text: str = field(repr=False)
    image: bytes | None = field(repr=False)
    labels: LabelSet | None = field(repr=False)
    group: str
    weight: float = 1.0


@dataclass(frozen=True)
class Material:
    """The examples of one task in train, validation and test, sorted by item.

    ``without`` counts, by split, the items without gold of this task; ``taken_down`` those whose record was taken down.
    Neither are among the examples.
    """

    task: Task
    train: tuple[Example, ...] = field(repr=False)
    validation: tuple[Example, ...] = field(repr=False)
    test: tuple[Example, ...] = field(repr=False)
    without: Mapping[str, int]
    taken_down: Mapping[str, int]
    _truth: Mapping[str, Mapping[Item, LabelSet]] = field(repr=False)

    def truth(self, split: str) -> Mapping[Item, LabelSet]:
        """Return the true labels of a split's examples by item, even of test; only evaluation may use them."""
        return self._truth[split]


def only(examples: Sequence[Example], *, splits: Collection[str]) -> Sequence[Example]:
    """Return ``examples`` unchanged after a check that all of them are from the given splits."""
    _refuse([e for e in examples if e.split not in splits], allowed=splits)
    return examples


def targets(examples: Sequence[Example], *, task: Task) -> npt.NDArray[np.float32]:
    """Return the labels of examples as an array (examples, labels) of 0 and 1, in the order of the examples."""
    _refuse([e for e in examples if e.labels is None], allowed=(TRAIN, VALIDATION))
    rows = [task.encode(e.labels) for e in examples if e.labels is not None]
    return np.array(rows, np.float32).reshape(len(rows), len(task.labels))


def _refuse(leaked: Sequence[Example], *, allowed: Collection[str]) -> None:
    if leaked:
        splits = ", ".join(sorted({e.split for e in leaked}))
        raise DataError("LeakRefused", items=len(leaked), found=splits, allowed=" and ".join(sorted(allowed)))


def material(
    task: Task,
    *,
    placed: Mapping[Item, tuple[str, str]],
    gold: Mapping[Item, LabelSet],
    opened: Mapping[Item, tuple[str, bytes | None]],
    gone: Collection[str],
) -> Material:
    """Return decrypted items as examples by split; the labels of test are hidden.

    Args:
        placed: split, one of :data:`SPLITS`, and group of every item.
        opened: decrypted text and picture by item, for all items with labels.
        gone: records that were taken down; their items are left out and counted.
    """
    live = {item: split for item, (split, _) in sorted(placed.items()) if item[0] not in gone}
    truth = {s: {item: gold[item] for item, split in live.items() if split == s and item in gold} for s in SPLITS}
    examples = {
        split: tuple(
            Example(item, split, *opened[item], labels=None if split == TEST else labels, group=placed[item][1])
            for item, labels in known.items()
        )
        for split, known in truth.items()
    }
    return Material(
        task=task,
        **examples,
        without=_counts([split for item, split in live.items() if item not in gold]),
        taken_down=_counts([split for item, (split, _) in placed.items() if item[0] in gone]),
        _truth=MappingProxyType({split: MappingProxyType(known) for split, known in truth.items()}),
    )


def groups_apart(rows: Sequence[Mapping[str, object]], *, corpus: str) -> dict[Item, tuple[str, str]]:
    """Return the split and the group of each item in rows of the table ``splits``, after a check for conflicts."""
    placed = {(str(r["record_id"]), int(str(r["image"]))): (str(r["split"]), str(r["group"])) for r in rows}
    groups = {group: split for split, group in placed.values()}
    straddling = sum(groups[group] != split for split, group in placed.values()) + len(rows) - len(placed)
    if straddling:
        detail = f"{straddling} items are in two splits, or their group is"
        raise DataError("SplitConflict", corpus=corpus, detail=detail)
    return placed


def _counts(splits: Sequence[str]) -> dict[str, int]:
    return dict.fromkeys(SPLITS, 0) | Counter(splits)
