"""Read how an item's annotators answered, without who they are: for training on soft targets, and for a release."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Item, LabelSet
from pipelines.store import tables

COLUMNS = ["record_id", "image", "annotator", "category", "outcome", "labels", "answered"]
LEAST = 2  # ours: one person's answer is no distribution
Answers = dict[Item, tuple[LabelSet, ...]]


def answers_of(corpus: str, *, root: Path) -> dict[str, Answers]:
    """Return by category and item the label sets of its annotators, of items that two or more answered.

    Of an annotator who answered a question in several rounds, the last answer counts. Adjudications are not among them.
    """
    paths = sorted((root / "annotations" / corpus).glob("*/annotations.parquet"))
    rows = tables.concat(paths, name="annotations", columns=COLUMNS).to_pylist() if paths else []
    last: dict[tuple[str, Item], dict[str, LabelSet]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["answered"]):
        if row["outcome"] == "answered":
            question = (row["category"], (row["record_id"], row["image"]))
            last[question][row["annotator"]] = frozenset(row["labels"] or ())
    found: dict[str, Answers] = defaultdict(dict)
    for (category, item), sets in sorted(last.items()):
        if len(sets) >= LEAST:
            # sorted by content, so that the order tells nothing of the annotators
            found[category][item] = tuple(sorted(sets.values(), key=sorted))
    return dict(found)


def soft_targets(answers: Answers, *, task: Task) -> dict[Item, tuple[float, ...]]:
    """Return by item the share of annotators who gave each label of the task, in its order.

    Answers that the task cannot have, such as a label that it leaves out, are not counted; an item with fewer than two
    others has none.
    """
    found = {}
    for item, sets in answers.items():
        seen = [labels for labels in map(task.seen, sets) if task.kind == "multi" or len(labels) == 1]
        if len(seen) >= LEAST:
            found[item] = tuple(np.mean([task.encode(labels) for labels in seen], axis=0).tolist())
    return found
