"""Represent a record as a model receives it, and check the record's split before use.

Code that derives something from examples (weights, thresholds, few-shot prompts, fits) calls :func:`only` with the
splits that it may use. This module needs neither vault nor tables, so that a model can be served without them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, DataError
from pipelines.taxonomy.task import Task

Item = tuple[str, int]
"""A record id and the number of an image."""
LabelSet = frozenset[str]

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


class LeakRefused(DataError):
    """Examples or labels were passed to code that must not use their split, such as those of test to training."""

    message = "{items} examples of {found} were refused: only {allowed} may be passed to this function."
    remedy = "Nothing was computed from them. Correct the calling code: pass examples of {allowed} only."


class NoGold(ConfigError):
    """The current folder, a clone of the corpus, lacks the table of splits or the gold labels."""

    message = "snapshot/{corpus}/split, gold or few_shot is missing in the current folder."
    remedy = (
        "Run the command in a clone of the corpus: `corpus clone FOLDER && cd FOLDER && dvc pull --allow-missing`. If "
        "the files are missing there too, run `dvc repro few_shot@{corpus}` first."
    )


class NoSplit(NoGold):
    """The current folder, a clone of the corpus, lacks the table of splits."""

    message = "snapshot/{corpus}/split is missing in the current folder."


@dataclass(frozen=True)
class Example:
    """A post or meme as the input of a model; ``repr`` shows only item, split and group, so that logs have no content.

    Args:
        item: record id and number of the image.
        split: one of :data:`SPLITS`.
        text: text of the post, or text read from the picture, ``""`` if there is none.
        image: the encoded picture, or ``None``.
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


def only(examples: Sequence[Example], *, splits: Collection[str]) -> Sequence[Example]:
    """Return ``examples`` unchanged after a check that all of them are from the given splits.

    Raises:
        LeakRefused: an example is of another split.
    """
    _refuse([e for e in examples if e.split not in splits], allowed=splits)
    return examples


def targets(examples: Sequence[Example], *, task: Task) -> npt.NDArray[np.float32]:
    """Return the labels of examples as an array (examples, labels) of 0 and 1, in the order of the examples.

    Raises:
        LeakRefused: an example's labels are hidden, as those of test are.
        BadParams: the gold of an example of a single-label task is not exactly one label.
    """
    _refuse([e for e in examples if e.labels is None], allowed=(TRAIN, VALIDATION))
    rows = [task.encode(e.labels) for e in examples if e.labels is not None]
    return np.array(rows, np.float32).reshape(len(rows), len(task.labels))


def _refuse(leaked: Sequence[Example], *, allowed: Collection[str]) -> None:
    if leaked:
        found = ", ".join(sorted({e.split for e in leaked}))
        raise LeakRefused(items=len(leaked), found=found, allowed=" and ".join(sorted(allowed)))
