"""Represent records as models receive them: the examples of each split, with the labels that may be seen.

This module, not its callers, decides which labels are visible: :func:`material` hides those of test. Code that derives
something from examples (weights, thresholds, few-shot prompts, fits) calls :func:`only` with the splits that it may
use. This module needs neither vault nor tables, so that a model can be served without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import ConfigError, DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.post import Post

Item = tuple[str, int]
"""A record id and the number of an image."""
LabelSet = frozenset[str]

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


class NoGold(ConfigError):
    """The current folder, a clone of the corpus, lacks the table of splits or the gold labels."""


@dataclass(frozen=True)
class Example:
    """A post or meme as the input of a model; ``repr`` shows only item, split and group, so that logs have no content.

    ``labels`` are ``None`` if they are hidden, as opposed to an empty set. A ``group`` (near-duplicates, one author)
    must be in one split. ``weight`` is that of a training loss.
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

    ``without`` and ``taken_down`` count by split the items that are left out: without labels of this task, or taken
    down; ``examples`` those of validation whose answers the prompt shows. ``validation_name`` is the corpus's name of
    that split.
    """

    task: Task
    train: tuple[Example, ...] = field(repr=False)
    validation: tuple[Example, ...] = field(repr=False)
    test: tuple[Example, ...] = field(repr=False)
    without: Mapping[str, int]
    taken_down: Mapping[str, int]
    examples: int
    validation_name: str
    placed: Mapping[Item, tuple[str, str]] = field(repr=False)
    posts: Mapping[Item, Post] = field(repr=False)
    _truth: Mapping[str, Mapping[Item, LabelSet]] = field(repr=False)
    later: tuple[Example, ...] | None = field(default=None, repr=False)

    def named(self, split: str) -> str:
        """Return the name that the corpus gives to a split."""
        return self.validation_name if split == VALIDATION else split

    @property
    def asked(self) -> tuple[Example, ...]:
        """The examples that models predict: those of validation and test, or the later ones of a backtest."""
        return (*self.validation, *self.test) if self.later is None else self.later

    def known(self, *, until: str, months: Mapping[str, str]) -> Material:
        """Return what a model may know at the end of the month ``until``, for a backtest.

        It learns from train and is selected by validation of months until then, and is asked about the ``later`` items
        of validation, whose labels are hidden, without those of a group that it is selected by. Test takes no part, nor
        an item whose month (``months``, by record) is not known.
        """
        train, validation = (
            tuple(e for e in part if "" < months.get(e.item[0], "") <= until) for part in (self.train, self.validation)
        )
        groups = {example.group for example in validation}
        later = (e for e in self.validation if months.get(e.item[0], "") > until and e.group not in groups)
        asked = tuple(replace(example, labels=None) for example in later)
        return replace(self, train=train, validation=validation, test=(), later=asked)

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
    posts: Mapping[Item, Post],
    text: Callable[[Post], str],
    gone: Collection[str],
    validation_name: str = VALIDATION,
    examples: int = 0,
) -> Material:
    """Return decrypted items as examples by split; the labels of test are hidden.

    ``posts`` are those of all items with labels, ``text`` is what a model of text reads of a post, and ``gone`` are
    records that were taken down: their items are left out and counted.
    """
    live = {item: split for item, (split, _) in sorted(placed.items()) if item[0] not in gone}
    truth = {s: {item: gold[item] for item, split in live.items() if split == s and item in gold} for s in SPLITS}

    def example(item: Item, *, split: str) -> Example:
        post, labels = posts[item], None if split == TEST else gold[item]
        return Example(item, split, text(post), next(iter(post.images), None), labels=labels, group=placed[item][1])

    without = _counts([split for item, split in live.items() if item not in gold])
    return Material(
        task=task,
        **{split: tuple(example(item, split=split) for item in known) for split, known in truth.items()},
        without={**without, VALIDATION: without[VALIDATION] - examples},
        taken_down=_counts([split for item, (split, _) in placed.items() if item[0] in gone]),
        examples=examples,
        validation_name=validation_name,
        placed=placed,
        posts=posts,
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
