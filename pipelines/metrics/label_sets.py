"""Compute CRADLE's metrics of label sets (SPEC 26), from label sets or from counts.

Exact is subset accuracy, Jaccard is the mean over records (two empty sets count as 1), micro and macro cover every
label of the category, and a division by zero gives 0, as in the paper. A missing answer (``None``: refused, malformed,
failed) is reported twice, as in CRADLE Table 12: left out (*valid*), and counted as an empty answer that is wrong by
definition (*all*), so that a model cannot gain by refusing hard records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.core.taxonomy import Category
from pipelines.core.taxonomy.scheme import TIERS

Floats = npt.NDArray[np.float64]
LabelSet = frozenset[str]
Key = TypeVar("Key", str, tuple[str, int])
"""What is scored: a record, or an item."""
NAMES = (
    "exact",
    "jaccard",
    "micro_f1",
    "macro_f1",
    "micro_precision",
    "macro_precision",
    "micro_recall",
    "macro_recall",
)


@dataclass(frozen=True)
class Tally:
    """The counts from which metrics of label sets are computed, with leading axes (records, clusters or resamples).

    ``records``, ``exact`` and ``jaccard`` have the leading shape; ``tp``, ``fp`` and ``fn`` have labels as last axis.
    """

    records: Floats
    exact: Floats
    jaccard: Floats
    tp: Floats
    fp: Floats
    fn: Floats

    def flat(self) -> Floats:
        """Return all counts as one array along the last axis, so that one matrix product can add them up."""
        return np.concatenate(
            [np.stack([self.records, self.exact, self.jaccard], axis=-1), self.tp, self.fp, self.fn], axis=-1
        )

    @classmethod
    def of_flat(cls, values: Floats) -> Tally:
        tp, fp, fn = np.split(values[..., 3:], 3, axis=-1)
        return cls(values[..., 0], values[..., 1], values[..., 2], tp, fp, fn)

    def total(self) -> Tally:
        return Tally.of_flat(self.flat().sum(axis=0))


def tally(gold: Sequence[LabelSet], *, predicted: Sequence[LabelSet | None], labels: Sequence[str]) -> Tally:
    """Return each record's counts for the metrics of label sets (exact match, Jaccard, true positives), in order.

    A missing answer (``None``) scores 0 on exact and Jaccard even if gold is empty, and misses every label of gold.
    """
    truth, answer = matrix(gold, labels=labels), matrix([p or frozenset() for p in predicted], labels=labels)
    answered = np.array([p is not None for p in predicted], dtype=bool)
    both, either = (truth & answer).sum(axis=1), (truth | answer).sum(axis=1)
    jaccard = np.where(either > 0, both / np.maximum(either, 1), 1.0)
    return Tally(
        records=np.ones(len(gold)),
        exact=(answered & (both == either)).astype(np.float64),
        jaccard=np.where(answered, jaccard, 0.0),
        tp=(truth & answer).astype(np.float64),
        fp=(answer & ~truth).astype(np.float64),
        fn=(truth & ~answer).astype(np.float64),
    )


def matrix(sets: Sequence[Collection[str]], *, labels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a matrix of shape (sets, labels) that is 1 where a set contains a label."""
    place = {label: i for i, label in enumerate(labels)}
    cells = np.zeros((len(sets), len(labels)), dtype=bool)
    for row, values in enumerate(sets):
        for value in values:
            cells[row, place[value]] = True
    return cells


def violations(sets: Iterable[LabelSet | None], *, category: Category) -> dict[str, int]:
    """Count the label sets that violate each rule of the scheme (SPEC 23), including soft rules."""
    broken: Counter[str] = Counter()
    # there are at most a few hundred distinct sets, however many records
    for labels, times in Counter(labels for labels in sets if labels is not None).items():
        checked = category.check(sorted(labels), mode="strict", tiers=TIERS)
        broken.update(dict.fromkeys(checked.violations, times))
    return dict(sorted(broken.items()))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def per_label(counts: Tally) -> dict[str, Floats]:
    """Return F1, precision and recall of each label (CRADLE Tables 13 to 16); the last axis is the labels."""
    return {
        "f1": _ratio(2 * counts.tp, 2 * counts.tp + counts.fp + counts.fn),
        "precision": _ratio(counts.tp, counts.tp + counts.fp),
        "recall": _ratio(counts.tp, counts.tp + counts.fn),
    }


def figures(counts: Tally) -> dict[str, Floats]:
    """Return the metrics by name, such as ``exact`` and ``macro_f1``, with the leading axes of ``counts``."""
    sums = {part: getattr(counts, part).sum(axis=-1, keepdims=True) for part in ("tp", "fp", "fn")}
    summed = replace(counts, **sums)
    micro = {name: values[..., 0] for name, values in per_label(summed).items()}
    macro = {name: values.mean(axis=-1) for name, values in per_label(counts).items()}
    return {
        "exact": _ratio(counts.exact, counts.records),
        "jaccard": _ratio(counts.jaccard, counts.records),
        **{f"micro_{name}": values for name, values in micro.items()},
        **{f"macro_{name}": values for name, values in macro.items()},
    }


def of_counts(counts: Mapping[str, Sequence[int]], *, exact: int, records: int) -> dict[str, float]:
    """Compute a row of CRADLE's Table 4 from counts in the paper's other tables (SPEC 1.5).

    Jaccard is left out: it is a mean over records and cannot be computed from sums over labels.
    """
    tp, fp, fn = (np.array([each[i] for each in counts.values()], dtype=np.float64) for i in range(3))
    values = figures(Tally(np.array(float(records)), np.array(float(exact)), np.array(0.0), tp, fp, fn))
    return {name: float(values[name]) for name in NAMES if name != "jaccard"}


def score(
    gold: Mapping[Key, LabelSet], *, predicted: Mapping[Key, LabelSet | None], labels: Sequence[str]
) -> dict[str, Any]:
    """Score one labeller as in CRADLE Table 12: metrics over ``valid`` answers and over ``all`` records.

    A gold record that is missing or ``None`` in ``predicted`` has no valid answer. The metrics of ``valid`` are
    ``None`` (undefined, not 0) if no record was answered. Records without gold are ignored.
    """
    records = sorted(gold)
    answers = [predicted.get(record) for record in records]
    counts = tally([gold[r] for r in records], predicted=answers, labels=labels).flat()
    answered = np.array([answer is not None for answer in answers], dtype=bool)
    return {"n": len(records), "n_valid": int(answered.sum()), "valid": _named(counts[answered]), "all": _named(counts)}


def _named(rows: Floats) -> dict[str, float] | None:
    if not len(rows):
        return None
    values = figures(Tally.of_flat(rows.sum(axis=0)))
    return {name: float(values[name]) for name in NAMES}
