"""Compare models with three paired tests on the same items, corrected for the number of comparisons.

The paper compares figures without a test (SPEC 1.6). All tests cover all records, count a missing answer as wrong, and
are two-sided:

- *bootstrap*: twice the share of resamples (SPEC 2.5) in which the model with the lower macro-F1 is not worse;
- *randomisation* (approximate; Noreen 1989, Yeh 2000): how often randomly exchanging the two models' answers, a whole
  group of near-duplicates at a time, gives a difference in macro-F1 at least as large as the observed one;
- *mcnemar* (1947, exact): over the items that only one of the two has exactly right. It ignores groups.

Models may have different numbers of runs. The bootstrap uses the difference of the models' mean macro-F1 over runs. The
randomisation uses the mean counts of an item over runs, and computes macro-F1 from the sums of these counts. In
McNemar's test an item is right if more than half of the runs have it right. All three choices are ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from pipelines.evaluate.model_scores import DIGITS, Board, Json, Run, Scored, bounds, counted, number, score
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.metrics.label_sets import Floats

TESTS = ("bootstrap", "randomisation", "mcnemar")
COMPARED = ("macro_f1", "weighted_f1")
EXACT, LABELS = 1, 3  # columns of a tally's rows: exactly right; first column of the counts by label
TIE = 1e-12  # sums of the same parts may differ in the last bit: that is a tie, too


@dataclass(frozen=True)
class Entrant:
    """A model's input to the paired tests: scores on all records, label counts by group, and which items are right.

    ``counts`` (such as true positives) are means over the model's runs, summed by group; ``right`` is 1 for items that
    most runs have exactly right.
    """

    scored: Scored
    counts: Floats
    right: Floats

    @classmethod
    def of(cls, board: Board, *, runs: Sequence[Run], scored: Scored) -> Entrant:
        """Return a model's input to the paired tests; ``scored`` are its scores on all records."""
        rows = np.stack([counted(board, predicted=board.predicted(run), valid=False) for run in runs])
        counts = cluster_sums(rows.mean(axis=0), groups=board.groups)
        return cls(scored, counts, (rows[:, :, EXACT].mean(axis=0) > 0.5).astype(np.float64))


def pairs(board: Board, *, entrants: Mapping[str, Entrant]) -> list[Json]:
    """Test all pairs of models for a difference; return each as ``Pair`` of ``evaluate.json``, ordered by name."""
    named = list(combinations(sorted(entrants), 2))
    compared = [_pair(board, a=entrants[a], b=entrants[b]) for a, b in named]
    corrected = {test: holm([pair["p"][test] for pair in compared]) for test in TESTS}
    return [
        {"a": a, "b": b, **pair, "holm": {test: corrected[test][i] for test in TESTS}}
        for i, ((a, b), pair) in enumerate(zip(named, compared, strict=True))
    ]


def _pair(board: Board, *, a: Entrant, b: Entrant) -> Json:
    a_only, b_only = int((a.right > b.right).sum()), int((b.right > a.right).sum())
    p = {
        "bootstrap": bootstrap(a.scored.drawn["macro_f1"] - b.scored.drawn["macro_f1"]),
        "randomisation": randomisation(board, a=a.counts, b=b.counts),
        "mcnemar": mcnemar(a_only, b_only),
    }
    return {
        **{name: _difference(a.scored, b.scored, name=name) for name in COMPARED},
        "p": {test: round(value, DIGITS) for test, value in p.items()},
        "mcnemar": {"a_only": a_only, "b_only": b_only},
    }


def backtest(board: Board, *, runs: Mapping[str, Sequence[Run]], whole: Mapping[str, Sequence[Run]]) -> Json:
    """Score models that learnt until a month on later items, beside the same ones of all months (``whole``, by name).

    Returns ``Backtest`` of ``evaluate.json``; ``board`` has the later items, where a missing answer is wrong.
    """
    models: Json = {}
    for name, own in sorted(runs.items()) if board.items else ():
        mine = score(board, runs=own, valid=False)
        found: Json = {"runs": len(own), **{key: mine.cell(key) for key in ("exact", "macro_f1")}}
        found |= {"whole": None, "change": None}
        if others := whole.get(name):
            full = score(board, runs=others, valid=False)
            found["whole"], found["change"] = full.cell("macro_f1"), _difference(mine, full, name="macro_f1")
        models[name] = found
    return {"n": len(board.items), "models": models}


def transfer(name: str, scored: Mapping[str, Scored], *, labels: Collection[str], fitted: Sequence[str]) -> Json:
    """Return the macro-F1 of the labels that a model of another corpus can give, beside the best model fitted here."""

    def part(model: str) -> Scored:
        own = scored[model]
        means = (
            {"macro_f1": np.mean([values[f"{label}/f1"] for label in sorted(labels)], axis=0)}
            for values in (own.runs, own.drawn, own.without)
        )
        return Scored(*means)

    mine, others = part(name), {model: part(model) for model in fitted}
    here = min(others, key=lambda model: (-others[model].runs["macro_f1"].mean(), model), default=None)
    return {
        "labels": sorted(labels),
        "macro_f1": mine.cell("macro_f1"),
        "here": here,
        "here_macro_f1": others[here].cell("macro_f1") if here else None,
        "change": _difference(mine, others[here], name="macro_f1") if here else None,
    }


def _difference(a: Scored, b: Scored, *, name: str) -> Json:
    low, high = bounds(a.drawn[name] - b.drawn[name])
    return {"value": number(a.runs[name].mean() - b.runs[name].mean()), "low": low, "high": high}


def bootstrap(differences: Floats) -> float:
    """Return the bootstrap's two-sided p-value: twice the smaller share of resampled differences on one side of 0.

    Ties count on both sides. The result is at least one resample's share and at most 1.
    """
    if not len(differences):
        return 1.0
    less, more = float(np.mean(differences <= TIE)), float(np.mean(differences >= -TIE))
    return min(1.0, max(2 * min(less, more), 1 / len(differences)))


def randomisation(board: Board, *, a: Floats, b: Floats) -> float:
    """Return the p-value of the randomisation test of two models' macro-F1, from their counts (groups, columns)."""
    apart, drawn = exchanged(board, a=a, b=b)
    hits = int((np.abs(drawn) >= abs(apart) - TIE).sum())
    # the observed assignment is one of the exchanges
    return (1 + hits) / (1 + len(drawn))


def exchanged(board: Board, *, a: Floats, b: Floats) -> tuple[float, Floats]:
    """Return two models' difference in macro-F1, ``a`` minus ``b``, and those after random exchanges of groups."""
    first, second = (_of_labels(board, counts=counts) for counts in (a, b))
    whole, other = first.sum(axis=0), second.sum(axis=0)
    moved = [block @ (second - first) for block in board.exchanges()]
    drawn = [_macro(whole + each) - _macro(other - each) for each in moved]
    return float(_macro(whole) - _macro(other)), np.concatenate(drawn) if drawn else np.zeros(0)


def left_out(board: Board, *, a: Floats, b: Floats) -> tuple[float, Floats]:
    """Return the difference in macro-F1, ``a`` minus ``b``, and the differences without one group each (jackknife)."""
    first, second = (_of_labels(board, counts=counts) for counts in (a, b))
    whole, other = first.sum(axis=0), second.sum(axis=0)
    return float(_macro(whole) - _macro(other)), _macro(whole - first) - _macro(other - second)


def _of_labels(board: Board, *, counts: Floats) -> Floats:
    return counts[:, LABELS : LABELS + 3 * len(board.task.labels)]


def _macro(counts: Floats) -> Floats:
    """Return macro-F1 of concatenated true positives, false positives and false negatives, over leading axes."""
    tp, fp, fn = np.split(counts, 3, axis=-1)
    whole = 2 * tp + fp + fn
    f1: Floats = np.divide(2 * tp, whole, out=np.zeros(whole.shape), where=whole > TIE)
    means: Floats = f1.mean(axis=-1)
    return means


def mcnemar(a_only: int, b_only: int) -> float:
    """Return the exact two-sided p-value of McNemar's test, from how many items only model a or only b gets right."""
    n = a_only + b_only
    tail = sum(comb(n, k) for k in range(min(a_only, b_only) + 1))
    # integers until the end: a float cannot hold 2^n from n = 1,024 on
    return min(1.0, (2 * tail * 10**DIGITS >> n) / 10**DIGITS) if n else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm (1979), in the given order."""
    adjusted = [0.0] * len(p)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = round(largest, DIGITS)
    return adjusted
