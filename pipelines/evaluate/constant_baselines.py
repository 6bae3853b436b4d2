"""Score baselines that give every item the same answer, which any model must beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipelines.evaluate.model_scores import Board, Json, plain
from pipelines.metrics.label_sets import LabelSet


def baselines(board: Board, *, train: Sequence[LabelSet]) -> Json:
    """Return the scores of constant answers to the test set by name, as ``baselines`` of ``evaluate.json``.

    ``majority`` answers train's most frequent class (single-label task), or all labels that over half of train's items
    have. For multi-label tasks, ``every_label`` predicts all labels, which macro-F1 rewards more, and ``majority_set``
    the most frequent set, which exact match rewards more (both ours). On a tie between classes or sets, the first in
    the scheme's order is taken.
    """
    labels = board.task.labels
    counts = {label: sum(label in values for values in train) for label in labels}
    if board.task.kind == "single":
        most = frozenset({max(labels, key=lambda label: (counts[label], -labels.index(label)))})
    else:
        most = frozenset(label for label in labels if 2 * counts[label] > len(train))
    constant = {"majority": most}
    if board.task.kind == "multi":
        sets = Counter(train)
        often = min(sets, key=lambda s: (-sets[s], sorted(map(labels.index, s))), default=frozenset())
        constant |= {"every_label": frozenset(labels), "majority_set": often}
    return {name: plain(board, predicted=[answer] * len(board.items), valid=False) for name, answer in constant.items()}
