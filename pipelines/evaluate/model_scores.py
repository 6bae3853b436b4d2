"""Score the models of one task on one test set: metrics of every run, with mean, standard deviation and intervals.

A model has several runs (seeds, or repetitions of a prompt). A figure is the mean over its runs with their standard
deviation (ddof 1), and a BCa interval from a bootstrap over items and runs (SPEC 2.5): whole groups of near-duplicates
are drawn, the same for every run, and of R runs R - 1 are drawn, with replacement. Fewer runs than there are give the
mean its true variance over seeds, s²/R; R of R would give (R - 1)/R of it (Rao and Wu 1988). Drawing both counts noise
that runs and items have in common more than once (Owen 2007): the interval is rather too wide than too narrow. With one
run it covers other items only, never other seeds.

A missing answer (refused, malformed, failed) is either left out (``valid``, as in the paper) or counted as wrong
(``all``): an empty prediction that misses every gold label, and for the ordinal figures the class farthest from gold,
the lower of two (ours: the worst possible answer). An F1 that divides by zero is 0, as in scikit-learn with
``zero_division=0``; other undefined figures are NaN.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.core.taxonomy.task import Task
from pipelines.metrics import bootstrap, label_sets
from pipelines.metrics.agreement_coefficients import defined_mean, ratio
from pipelines.metrics.bootstrap import BLOCK, bca, cluster_sums, percentile
from pipelines.metrics.label_sets import Floats, LabelSet, Tally

Item = tuple[str, int]
Json: TypeAlias = dict[str, Any]
Small = npt.NDArray[np.int16]
DIGITS = 8  # ours: finer than 10,000 resamples resolve, above the last bit of a sum; 6 would round .0105499 twice
# outcomes: an answer; not asked (taken down, or without a picture); no row of the item in the run
VOTE, ABSTAINED, MISSING = "vote", "abstained", "missing"
VALID, ALL = "valid", "all"
PARTS = ("f1", "precision", "recall")


@dataclass(frozen=True)
class Sampling:
    """The number of bootstrap resamples (10,000, SPEC 2.5) and their seed."""

    resamples: int = 10_000
    seed: int = 20251001


@dataclass(frozen=True)
class Run:
    """A model's predictions with one seed: an outcome for every item, and a label set for each answered item.

    ``scores`` maps items to the probabilities of the task's labels, in the task's order; answers without probabilities
    have no entry.
    """

    seed: int
    outcomes: Mapping[Item, str]
    answers: Mapping[Item, LabelSet]
    scores: Mapping[Item, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Board:
    """The test set of a task: its items in order, each with its gold label set and its group (drawn as a whole)."""

    task: Task
    items: tuple[Item, ...]
    gold: tuple[LabelSet, ...]
    groups: tuple[str, ...]
    sampling: Sampling = field(default_factory=Sampling)

    @cached_property
    def support(self) -> dict[str, int]:
        """The number of items that have each label in gold."""
        return {label: sum(label in labels for labels in self.gold) for label in self.task.labels}

    def predicted(self, run: Run) -> list[LabelSet | None]:
        """Return a run's label sets in the order of ``items``, with ``None`` for an item without an answer."""
        return [run.answers.get(item) for item in self.items]

    def outcomes(self, run: Run) -> Counter[str]:
        """Count a run's outcomes (``vote``, ``refused`` ...) on the items; one without a row counts as ``missing``."""
        return Counter(run.outcomes.get(item, MISSING) for item in self.items)

    def weights(self) -> Iterator[Floats]:
        """Yield in blocks how often each group of items is drawn, shape (resamples, groups); equal for all models."""
        yield from (block.astype(np.float64) for block in self._drawn)

    def exchanges(self) -> Iterator[Floats]:
        """Yield in blocks which groups the randomisation test exchanges (1) or keeps (0), shape (resamples, groups)."""
        yield from (block.astype(np.float64) for block in self._exchanged)

    def drawn_runs(self, runs: int, *, key: int) -> Iterator[Floats]:
        """Yield in blocks how often each of a model's runs is drawn, shape (resamples, runs), ``runs`` - 1 in all."""
        rng = np.random.default_rng([self.sampling.seed, 2, key])
        for block in bootstrap.weights(runs, resamples=self.sampling.resamples, rng=rng, draws=max(1, runs - 1)):
            yield block.astype(np.float64)

    def resampled(self, rows: Floats, *, blocks: int | None = None) -> Floats:
        """Return each bootstrap resample's sums of ``rows`` (items, runs, columns), shape (resamples, columns).

        The sums are over the groups of items and the runs drawn; ``blocks`` limits the resamples to the first blocks.
        """
        sums = cluster_sums(rows.reshape(len(rows), -1), groups=self.groups)
        chances = self.drawn_runs(rows.shape[1], key=_key(sums))
        parts: list[Floats] = [np.zeros((0, rows.shape[2]))]
        for weights, chosen in islice(zip(self.weights(), chances, strict=True), blocks):
            drawn = (weights @ sums).reshape(len(weights), *rows.shape[1:])
            parts.append(drawn[:, 0] if rows.shape[1] == 1 else np.einsum("brc,br->bc", drawn, chosen))
        return np.concatenate(parts)

    @cached_property
    def _drawn(self) -> list[Small]:
        # drawn once: drawing takes longer than everything that uses it
        rng = np.random.default_rng(self.sampling.seed)
        drawn = bootstrap.weights(len(set(self.groups)), resamples=self.sampling.resamples, rng=rng)
        return [block.astype(np.int16) for block in drawn]

    @cached_property
    def _exchanged(self) -> list[Small]:
        rng = np.random.default_rng([self.sampling.seed, 1])
        groups, resamples = len(set(self.groups)), self.sampling.resamples
        sizes = [min(BLOCK, resamples - start) for start in range(0, resamples, BLOCK)]
        return [rng.integers(2, size=(size, groups)).astype(np.int16) for size in sizes]


@dataclass(frozen=True)
class Scored:
    """A model's scores by name, such as ``macro_f1``, with what their intervals need.

    ``runs`` has a score for each run, ``drawn`` for each bootstrap resample, ``without`` for each group that is left
    out. The scores in ``drawn`` and ``without`` are means over runs.
    """

    runs: Mapping[str, Floats]
    drawn: Mapping[str, Floats]
    without: Mapping[str, Floats]

    def cell(self, name: str) -> Json:
        """Return the score ``name`` (mean, deviation) and its BCa interval as a ``Cell`` of ``evaluate.json``."""
        values = self.runs[name][~np.isnan(self.runs[name])]
        drawn, without = (part[~np.isnan(part)] for part in (self.drawn[name], self.without[name]))
        low = high = None
        if len(values) and len(drawn):
            units = [without]
            if len(values) > 1:
                units.append((values.sum() - values) / (len(values) - 1))
            low, high = (number(end) for end in bca(float(values.mean()), resampled=drawn, without=units))
        return {
            "mean": number(values.mean()) if len(values) else None,
            "std": number(values.std(ddof=1)) if len(values) > 1 else None,
            "n": len(values),
            "low": low,
            "high": high,
        }


def number(value: float | np.floating[Any]) -> float | None:
    """Round a score for JSON; an undefined score becomes ``None``."""
    return None if np.isnan(value) else round(float(value), DIGITS) + 0.0


def bounds(values: Floats) -> tuple[float | None, float | None]:
    """Return the percentile interval (low, high) of those resampled values that are defined."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None, None
    low, high = percentile(known)
    return number(low), number(high)


def counted(board: Board, *, predicted: Sequence[LabelSet | None], valid: bool) -> Floats:
    """Return each item's counts for :func:`figures`, (items, columns); with ``valid``, 0 for an unanswered item."""
    labels = board.task.labels
    rows = label_sets.tally(board.gold, predicted=predicted, labels=labels).flat()
    if board.task.kind == "single":
        rows = np.concatenate([rows, _cells(board, predicted=predicted)], axis=1)
    if valid:
        rows[[answer is None for answer in predicted]] = 0
    return rows


def _cells(board: Board, *, predicted: Sequence[LabelSet | None]) -> Floats:
    place = {label: i for i, label in enumerate(board.task.labels)}
    classes = len(place)
    cells = np.zeros((len(board.items), classes, classes))
    for row, (gold, answer) in enumerate(zip(board.gold, predicted, strict=True)):
        true = place[min(gold)]
        cells[row, true, place[min(answer)] if answer else (0 if 2 * true >= classes - 1 else classes - 1)] = 1
    return cells.reshape(len(cells), -1)


def confusion(board: Board, *, runs: Sequence[Run]) -> list[list[int]]:
    """Count gold labels (rows) by answers (columns) over all runs of a single-label task."""
    classes = len(board.task.labels)
    total = np.zeros((classes, classes))
    for run in runs:
        rows = counted(board, predicted=board.predicted(run), valid=True)
        total += rows[:, -classes * classes :].sum(axis=0).reshape(classes, classes)
    return [[int(n) for n in row] for row in total]


def figures(sums: Floats, *, task: Task) -> dict[str, Floats]:
    """Compute all scores from summed rows of :func:`counted`; a label's scores are named ``label/part``.

    Macro-F1 is the mean F1 over the task's labels; weighted-F1 weighs each label by its support. Severity-weighted
    recall weighs gold labels by the severities of the scheme (ours), so that a missed plan to die costs more than a
    missed past event. It is computed if the scheme has severities, and is NaN if no gold label has one. Without any
    record, all figures are NaN.
    """
    size = 3 + 3 * len(task.labels)
    tally = Tally.of_flat(sums[..., :size])
    whole, parts = label_sets.figures(tally), label_sets.per_label(tally)
    support = tally.tp + tally.fn
    # without any gold label the weights are 0, and so is the figure, as in scikit-learn
    weighted = (parts["f1"] * support).sum(axis=-1) / np.maximum(support.sum(axis=-1), 1)
    result = {"macro_f1": whole["macro_f1"], "weighted_f1": weighted, "exact": whole["exact"]}
    result |= {name: whole[name] for name in ("macro_precision", "macro_recall")}
    if task.kind == "multi":
        result |= {name: whole[name] for name in ("jaccard", "micro_f1", "micro_precision", "micro_recall")}
    severities = np.array([task.category.severities.get(label, 0) for label in task.labels], dtype=np.float64)
    if severities.any():
        result["severity_recall"] = ratio(tally.tp @ severities, support @ severities)
    if task.ordinal and task.kind == "single":
        result |= _ordinal(sums[..., size:], classes=len(task.labels))
    result |= {f"{label}/{part}": parts[part][..., i] for i, label in enumerate(task.labels) for part in PARTS}
    return {name: np.where(tally.records > 0, values, np.nan) for name, values in result.items()}


def _ordinal(cells: Floats, *, classes: int) -> dict[str, Floats]:
    table = cells.reshape(*cells.shape[:-1], classes, classes)
    place = np.arange(classes, dtype=np.float64)
    n = table.sum(axis=(-1, -2))
    cost = (place[:, None] - place) ** 2
    # counts stay integers, so that "no disagreement expected" is exactly 0
    expected = np.einsum("...i,ij,...j->...", table.sum(axis=-1), cost, table.sum(axis=-2))
    observed = n * np.einsum("...ij,ij->...", table, cost)
    away = np.einsum("...ij,ij->...", table, np.abs(place[:, None] - place))
    return {"kappa": 1 - ratio(observed, expected), "mae": ratio(away, n)}


def score(board: Board, *, runs: Sequence[Run], valid: bool) -> Scored:
    """Return the scores of one model's runs on the test set, with the resamples for their intervals."""
    rows = np.stack([counted(board, predicted=board.predicted(run), valid=valid) for run in runs], axis=1)
    sums = cluster_sums(rows.reshape(len(rows), -1), groups=board.groups)
    # by content: models with the same answers get the same draws, so that their difference is 0
    chances = board.drawn_runs(len(runs), key=_key(sums))
    blocks = []
    for weights, chosen in zip(board.weights(), chances, strict=True):
        resampled = figures((weights @ sums).reshape(len(weights), *rows.shape[1:]), task=board.task)
        blocks.append({name: _mean_of(values, chosen=chosen) for name, values in resampled.items()})
    own = figures(rows.sum(axis=0), task=board.task)
    drawn = {name: np.concatenate([block[name] for block in blocks]) if blocks else np.zeros(0) for name in own}
    left = figures((sums.sum(axis=0) - sums).reshape(len(sums), *rows.shape[1:]), task=board.task)
    return Scored(runs=own, drawn=drawn, without={name: defined_mean(values) for name, values in left.items()})


def _key(sums: Floats) -> int:
    return zlib.crc32((sums.round(6) + 0.0).tobytes())


def _mean_of(values: Floats, *, chosen: Floats) -> Floats:
    if values.shape[1] == 1:
        return values[:, 0]
    known = ~np.isnan(values)
    return ratio(np.where(known, values * chosen, 0.0).sum(axis=1), (known * chosen).sum(axis=1))


def shaped(values: Mapping[str, Any], *, task: Task) -> Json:
    """Return scores that are keyed by name as the nested fields ``figures`` and ``labels`` of ``evaluate.json``."""
    return {
        "figures": {name: value for name, value in values.items() if "/" not in name},
        "labels": {label: {part: values[f"{label}/{part}"] for part in PARTS} for label in task.labels},
    }


def scores(scored: Scored, *, board: Board) -> Json:
    """Return a model's scores as ``Scores`` of ``evaluate.json``; a label without items has no interval."""
    nested = shaped({name: scored.cell(name) for name in scored.runs}, task=board.task)
    for label, support in board.support.items():
        for cell in nested["labels"][label].values() if not support else ():
            cell.update(low=None, high=None)
    return nested


def plain(board: Board, *, predicted: Sequence[LabelSet | None], valid: bool) -> Json:
    """Return the scores of one run or of a baseline as ``Figures`` of ``evaluate.json``."""
    own = figures(counted(board, predicted=predicted, valid=valid).sum(axis=0), task=board.task)
    return shaped({name: number(value.item()) for name, value in own.items()}, task=board.task)
