"""What a model sees of a record, and who may see it; reading the corpus is ``data.py``'s.

Everything that is made of examples (weights, thresholds, examples of a prompt, a fit) asks :func:`only` for the splits
that it is declared for. Nothing here needs a vault or a table, so that a model can be served without them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.taxonomy.task import Task

Item = tuple[str, int]
"""A record and the number of its image."""
LabelSet = frozenset[str]

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


class LeakRefused(DataError):
    """Something was about to see examples, or labels, of a split that it must not see."""

    message = "{items} examples of {found} were refused: {allowed} alone may be seen here."
    remedy = "Nothing was made of them. Hand over examples of {allowed}."


@dataclass(frozen=True)
class Example:
    """A meme as a model sees it. Its ``repr`` has the item, split and group alone, so that no log can quote it.

    Args:
        item: record and image.
        split: one of :data:`SPLITS`.
        text: what was read from the picture, ``""`` where there is none.
        image: the encoded picture, ``None`` where it has none.
        labels: what the task sees of gold; ``None`` where that is hidden, which an empty set is not.
        group: what must stay together (near-duplicates, an author); never in two splits.
    """

    item: Item
    split: str
    text: str = field(repr=False)
    image: bytes | None = field(repr=False)
    labels: LabelSet | None = field(repr=False)
    group: str


def only(examples: Sequence[Example], *, splits: Collection[str]) -> Sequence[Example]:
    """Return ``examples`` as they are, if all are of the splits that the caller is declared for.

    Raises:
        LeakRefused: one is of another split.
    """
    _refuse([e for e in examples if e.split not in splits], allowed=splits)
    return examples


def targets(examples: Sequence[Example], *, task: Task) -> npt.NDArray[np.float32]:
    """Return the labels as an array (examples, labels) of 0 and 1, in the order of the examples.

    Raises:
        LeakRefused: an example's labels are hidden, as those of test are.
        BadParams: gold of a single-label task without exactly one label.
    """
    _refuse([e for e in examples if e.labels is None], allowed=(TRAIN, VALIDATION))
    rows = [task.encode(e.labels) for e in examples if e.labels is not None]
    return np.array(rows, np.float32).reshape(len(rows), len(task.labels))


def _refuse(leaked: Sequence[Example], *, allowed: Collection[str]) -> None:
    if leaked:
        found = ", ".join(sorted({e.split for e in leaked}))
        raise LeakRefused(items=len(leaked), found=found, allowed=" and ".join(sorted(allowed)))
