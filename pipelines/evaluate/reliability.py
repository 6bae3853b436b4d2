"""Measure the calibration of a model's probabilities, and the alerts of labels that have a recall floor.

A recall floor is the least recall that a label requires; its alert is a flag, raised at a threshold that keeps it.

Calibration is measured per label: of the items to which a model gives a label with probability .3, three in ten should
have the label. The expected calibration error of a rare label is small for any model. The Brier score is therefore
given too, and for comparison the Brier score of always predicting the label's frequency. The shapes in
``evaluate.json``::

    Calibration = {                                   # over test answers with probabilities
      "n": int,                                       # answers, over all runs
      "ece": float, "brier": float,                   # means over the labels
      "intervals": {"ece" | "brier": [low, high]},    # 95 %, see ResampledErrors
      "noise": float,                                 # the ECE that perfectly calibrated answers of this number have
      "labels": {label: {"ece", "interval", "noise", "brier", "base": float}},      # interval: of the ECE; base: the
                                                      # Brier score of always saying its frequency
      "risk": {"aurc": float,                         # mean share of wrong label sets over all coverages
               "coverage": {".2" | ".4" | ".6" | ".8" | "1": float}},     # that share among the most confident answers
      "bins": [{"low", "high": float, "n": int, "said": float | null, "seen": float | null}]   # all labels together
    }
    Floor = {
      "floor": float,
      "recall": Rate, "precision": Rate,              # of the label sets, which no floor changes, over all test
                                                      # records: a missing answer is a miss
      "alert": {                                      # of the run of the first seed; null: no probabilities on dev
        "dev": metrics.alerts.Alert,                  # positives, threshold, guaranteed recall, alert rate on dev
        "recall": Rate, "precision": Rate, "alert_rate": Rate,      # on test; an item without probabilities raises none
        "groups": {"found", "of": int},             # of test with positives; found if all their positives are
        "verdict": "below" | "not_below" | "too_few" | null         # metrics.alerts.judged of the groups; null: no
                                                    # guaranteed recall
      } | null
    }
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from pipelines.evaluate.label_errors import Rates, gather
from pipelines.evaluate.model_scores import DIGITS, Board, Item, Json, Run, bounds, number
from pipelines.metrics.alerts import alert, judged
from pipelines.metrics.bootstrap import CONFIDENCE
from pipelines.metrics.calibration import SUREST
from pipelines.metrics.label_sets import Floats, LabelSet, matrix
from pipelines.metrics.recall_constraints import evidence

Bools = npt.NDArray[np.bool_]
COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
BINS = 10  # of equal width, as in Guo et al. (2017); fewer than their 15, for 600 posts (ours)
BLOCKS = 2  # of 1,000 resamples (ours): ten columns a label are expensive, and the ends of an interval need no more
SCALES = np.linspace(0, 3, 13)  # the multiples t that are tried; between them, ranges are interpolated


@dataclass(frozen=True)
class _Probabilities:
    """The items with probabilities in one run: ``known`` (items,), ``said`` and ``true`` (items, labels).

    ``evidence`` (known items, labels) is what alerts compare with thresholds.
    """

    known: Bools
    said: Floats
    true: Bools
    evidence: Floats

    @classmethod
    def of(cls, board: Board, *, run: Run) -> _Probabilities:
        nothing = (math.nan,) * len(board.task.labels)
        said = np.array([run.scores.get(item, nothing) for item in board.items], dtype=np.float64)
        known = np.asarray(~np.isnan(said).any(axis=1))
        values = evidence(said[known], task=board.task, rows=int(known.sum()))
        return cls(known, said, matrix(board.gold, labels=board.task.labels), values)


def calibration(board: Board, *, runs: Sequence[Run]) -> Json | None:
    """Return a model's calibration errors (``Calibration`` of ``evaluate.json``); ``None`` without probabilities."""
    scored = [_Probabilities.of(board, run=run) for run in runs]
    said = np.concatenate([s.said[s.known] for s in scored])
    true = np.concatenate([s.true[s.known] for s in scored]).astype(np.float64)
    if not len(said):
        return None
    briers, seen = ((said - true) ** 2).mean(axis=0), true.mean(axis=0)
    sums = [_sums(said[:, i], true=true[:, i]) for i in range(said.shape[1])]
    eces = [float(np.abs(p - y).sum() / len(said)) for _, p, y in sums]
    errors = resampled(board, said=np.stack([s.said for s in scored]), bins=BINS)
    ends, chance = errors.intervals(), noise(said, runs=len(runs), bins=BINS)
    labels = {
        label: {
            "ece": number(eces[i]),
            "interval": ends[i],
            "noise": number(chance[i]),
            "brier": number(briers[i]),
            "base": number(seen[i] * (1 - seen[i])),
        }
        for i, label in enumerate(board.task.labels)
    }
    return {
        "n": len(said),
        "ece": number(np.mean(eces)),
        "brier": number(briers.mean()),
        "intervals": {"ece": ends[-1], "brier": list(bounds(errors.brier))},
        "noise": number(chance.mean()),
        "labels": labels,
        "risk": _risk(board, runs=runs, said=said),
        "bins": _bins(said.ravel(), true=true.ravel()),
    }


def _risk(board: Board, *, runs: Sequence[Run], said: Floats) -> Json:
    """Return the share of wrong label sets by coverage, from the most confident answers on (Geifman, El-Yaniv 2017).

    The confidence of an answer is the probability of its label; of a set, the product of the probabilities of all
    decisions for and against a label. Answers of the same confidence are in random order: each counts as their mean.
    """
    gold = dict(zip(board.items, board.gold, strict=True))
    answers = [(item, run.answers[item]) for run in runs for item in board.items if item in run.scores]
    chosen = matrix([labels for _, labels in answers], labels=board.task.labels)
    wrong = np.array([labels != gold[item] for item, labels in answers], np.float64)
    chances = np.where(chosen, said, 1 - said if board.task.kind == "multi" else 1.0)
    confidence = np.log(np.maximum(chances, SUREST)).sum(axis=1).round(DIGITS)
    values, place = np.unique(-confidence, return_inverse=True)
    wrong = (np.bincount(place, weights=wrong) / np.bincount(place, minlength=len(values)))[np.sort(place)]
    risks = np.cumsum(wrong) / np.arange(1, len(wrong) + 1)
    at = {f"{share:g}".lstrip("0"): number(risks[math.ceil(share * len(wrong)) - 1]) for share in COVERAGES}
    return {"aurc": number(risks.mean()), "coverage": at}


def _sums(said: Floats, *, true: Floats) -> tuple[Floats, Floats, Floats]:
    columns = (np.ones(len(said)), said, true)
    n, p, y = (np.bincount(place(said, bins=BINS), weights=c, minlength=BINS).astype(np.float64) for c in columns)
    return n, p, y


def _bins(said: Floats, *, true: Floats) -> list[Json]:
    n, p, y = _sums(said, true=true)
    return [
        {
            "low": i / BINS,
            "high": (i + 1) / BINS,
            "n": int(n[i]),
            "said": number(p[i] / n[i]) if n[i] else None,
            "seen": number(y[i] / n[i]) if n[i] else None,
        }
        for i in range(BINS)
    ]


def floors(
    board: Board, *, runs: Sequence[Run], dev: Board | None, dev_runs: Sequence[Run], wanted: Mapping[str, float]
) -> Json:
    """Return, for each label of ``wanted`` (label -> floor), recall and precision of the answers, and its alert."""
    answers = gather(board, runs=runs)
    by_label: Json = {}
    for label, floor in wanted.items():
        i = board.task.labels.index(label)
        rates = Rates()
        true, said = answers.true[..., i], answers.said[..., i]
        recall, precision = rates.add(said, true), rates.add(true, said)
        rates.draw(board)
        by_label[label] = {
            "floor": floor,
            "recall": recall,
            "precision": precision,
            "alert": _alert(board, runs=runs, dev=dev, dev_runs=dev_runs, label=i, floor=floor) if dev else None,
        }
    return by_label


def _alert(
    board: Board, *, runs: Sequence[Run], dev: Board, dev_runs: Sequence[Run], label: int, floor: float
) -> Json | None:
    by_seed = {run.seed: run for run in dev_runs if run.scores}
    both = sorted((run for run in runs if run.scores and run.seed in by_seed), key=lambda run: run.seed)
    if not both:
        return None
    on_dev, on_test = _Probabilities.of(dev, run=by_seed[both[0].seed]), _Probabilities.of(board, run=both[0])
    groups = [group for group, known in zip(dev.groups, on_dev.known, strict=True) if known]
    chosen = alert(on_dev.evidence[:, label], truth=on_dev.true[on_dev.known, label], floor=floor, groups=groups)
    flags = np.zeros(len(board.items), np.bool_)
    if chosen.threshold is not None:
        flags[on_test.known] = on_test.evidence[:, label].astype(np.float32) >= chosen.threshold
    true, rates = on_test.true[:, label], Rates()
    parts = {"recall": (flags, true), "precision": (true, flags), "alert_rate": (flags, np.ones_like(flags))}
    rates_by_name = {name: rates.add(part[None], whole[None]) for name, (part, whole) in parts.items()}
    rates.draw(board)
    name = board.task.labels[label]
    raised = {item: frozenset({name}) for item, alerted in zip(board.items, flags, strict=True) if alerted}
    groups_found = list(found_groups(board, label=name, raised=raised).values())
    hits, positives, guaranteed = sum(groups_found), len(groups_found), chosen.guaranteed_recall
    verdict = None if guaranteed is None else judged(hits, positives, guaranteed=guaranteed)
    return {"dev": asdict(chosen), **rates_by_name, "groups": {"found": hits, "of": positives}, "verdict": verdict}


def found_groups(board: Board, *, label: str, raised: Mapping[Item, LabelSet]) -> dict[str, bool]:
    """Return for each near-duplicate group with gold items of a label whether the model finds all of these items."""
    groups: dict[str, bool] = {}
    for item, group, gold in zip(board.items, board.groups, board.gold, strict=True):
        if label in gold:
            groups[group] = groups.get(group, True) and label in raised.get(item, frozenset())
    return groups


@dataclass(frozen=True)
class ResampledErrors:
    """The differences of predicted and observed frequency by label and bin, (labels, bins), as shares of all answers.

    The ECE of few answers is too high, because chance alone moves frequencies off their probabilities (:func:`noise`),
    and a resample adds that chance once more: percentiles of resampled ECEs can lie above the truth altogether. The
    interval therefore inverts a test. Let the true differences of predicted and observed frequency be t times the
    observed ones, t from 0 (calibrated), and let chance add the deviations of the resamples from the data: the interval
    has all t times ECE whose 95 % range of possible ECEs contains the measured one. It is widened to contain that one.
    Coverage is simulated in ``bench/intervals.py``.

    ``gaps`` are those of the data, ``drawn`` those of each resample, and ``brier`` the resampled mean Brier scores.
    """

    gaps: Floats
    drawn: Floats
    brier: Floats

    def eces(self, gaps: Floats) -> Floats:
        """Return the ECE of each label and, as the last column, their mean; ``gaps`` has shape (..., labels, bins)."""
        errors = np.abs(gaps).sum(axis=-1)
        return np.concatenate([errors, errors.mean(axis=-1, keepdims=True)], axis=-1)

    def intervals(self) -> list[list[float | None]]:
        """Return the 95 % interval (low, high) of each label's ECE and, last, of the labels' mean ECE."""
        values = self.eces(self.gaps)
        if not len(self.drawn):
            return [[None, None] for _ in values]
        chance = self.drawn - self.gaps
        tail = 100 * (1 - CONFIDENCE) / 2
        ranges = [np.percentile(self.eces(t * self.gaps + chance), [tail, 100 - tail], axis=0) for t in SCALES]
        lowest, highest = np.maximum.accumulate(np.array(ranges), axis=0).swapaxes(0, 1)
        ends = []
        for i, value in enumerate(values):
            low, high = np.interp(value, highest[:, i], SCALES), np.interp(value, lowest[:, i], SCALES)
            ends.append([number(low * value), number(max(1.0, high) * value)])
        return ends


def resampled(board: Board, *, said: Floats, bins: int) -> ResampledErrors:
    """Resample a model's calibration errors over groups of items and over runs (one for each seed).

    ``said`` are probabilities, shape (runs, items, labels), NaN for an answer without; ``bins`` have equal width.
    """
    true = matrix(board.gold, labels=board.task.labels)
    runs, items, labels = said.shape
    rows = np.zeros((items, runs, labels * bins + 2))
    for run, values in enumerate(said):
        known = np.flatnonzero(~np.isnan(values).any(axis=1))
        off = values[known] - true[known]
        columns = np.arange(labels) * bins + place(values[known], bins=bins)
        rows[known[:, None], run, columns] = off
        rows[known, run, -2], rows[known, run, -1] = (off**2).mean(axis=1), 1
    sums = np.concatenate([rows.sum(axis=(0, 1))[None], board.resampled(rows, blocks=BLOCKS)])
    sums = sums[sums[:, -1] > 0]
    shares = sums[:, :-1] / sums[:, -1:]
    gaps = shares[:, :-1].reshape(len(shares), labels, bins)
    return ResampledErrors(gaps[0], gaps[1:], shares[1:, -1])


def noise(said: Floats, *, runs: int, bins: int) -> Floats:
    """Return the ECE of each label that chance alone causes if all probabilities are right.

    The normal approximation is used in each bin. ``said`` are the probabilities, shape (answers, labels); the answers
    of several runs to an item share its chance.
    """
    where = place(said, bins=bins)
    errors = np.zeros(said.shape[1])
    for i in range(said.shape[1]):
        p, others, variance = (
            np.bincount(where[:, i], weights=part[:, i], minlength=bins) for part in (said, 1 - said, said * (1 - said))
        )
        # of less than one expected event, the mean deviation is at most twice that expectation
        errors[i] = np.minimum(np.sqrt(2 * runs * variance / np.pi), 2 * np.minimum(p, others)).sum() / len(said)
    return errors


def place(said: Floats, *, bins: int) -> npt.NDArray[np.int64]:
    """Return the bin of each probability; one on an edge is in the bin above it, except 1, which is in the last."""
    return np.minimum((said * bins).astype(np.int64), bins - 1)
