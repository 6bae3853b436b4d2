"""Check a candidate's recalls on the gate set by confidence bounds; leave undecided ones to a person.

- A *floor* (``promote.recall_floors``, or the recall that a model's own alert guarantees) is missed if the 95 % upper
  bound of the recall lies below it (:func:`pipelines.metrics.alerts.judged`). A candidate whose true recall is the
  floor is refused one time in twenty at most.
- A *severe* label may be found less often than by the champion by ``promote.tolerance`` at most. Tango's score bounds
  of a paired difference (1998, Statistics in Medicine 17:891-908), one-sided at 95 %, also hold if no answer differs:
  the candidate is *inferior* if the upper bound lies below the margin, *not inferior* if the lower bound does not.

Both count groups of near-duplicates, which are not independent: a group is found if all its positives are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pipelines.evaluate.model_scores import Board, Item, Json, number
from pipelines.evaluate.reliability import found_groups
from pipelines.metrics import alerts
from pipelines.metrics.label_sets import LabelSet

INFERIOR, NOT_INFERIOR, UNDECIDED = "inferior", "not_inferior", "undecided"
Answers = Mapping[Item, LabelSet]


def floor_of(board: Board, *, label: str, floor: float, raised: Answers, champion: Answers | None = None) -> Json:
    """Return the recall of a label with its bounds and the verdict on its floor, as JSON.

    Args:
        label: the label.
        floor: the recall that is required or guaranteed.
        raised: by item, the labels whose alert the model raises or, without alerts, the labels that it gives.
        champion: what a consumer of the champion notices, if it is the rival.
    """
    groups = list(found_groups(board, label=label, raised=raised).values())
    hits, of = sum(groups), len(groups)
    return {
        "floor": floor,
        "gold": board.support[label],
        "groups": of,
        "recall": _recall(board, label=label, raised=raised),
        "low": number(np.float64(alerts.lower(hits, of))),
        "high": number(np.float64(alerts.upper(hits, of))),
        "verdict": alerts.judged(hits, of, guaranteed=floor),
        "needed": None if math.isinf(needed := alerts.needed(floor)) else needed,
        **_rates(board, label=label, candidate=raised, champion=champion),
    }


def severe_of(board: Board, *, label: str, candidate: Answers, champion: Answers, tolerance: float) -> Json:
    """Return as JSON the recall of a severe label, candidate minus champion, with bounds and whether it is inferior."""
    ours, theirs = (found_groups(board, label=label, raised=raised) for raised in (candidate, champion))
    gained = sum(ours[group] and not theirs[group] for group in ours)
    lost = sum(theirs[group] and not ours[group] for group in ours)
    low, high = paired_bounds(gained, lost, of=len(ours))
    verdict = INFERIOR if high < -tolerance else NOT_INFERIOR if low >= -tolerance else UNDECIDED
    return {
        "gold": board.support[label],
        "groups": len(ours),
        "recall": _recall(board, label=label, raised=candidate),
        "champion": _recall(board, label=label, raised=champion),
        "gained": gained,
        "lost": lost,
        "low": number(np.float64(low)),
        "high": number(np.float64(high)),
        "margin": -tolerance,
        **_rates(board, label=label, candidate=candidate, champion=champion),
        "verdict": verdict,
    }


def paired_bounds(gained: int, lost: int, *, of: int, confidence: float = alerts.CONFIDENCE) -> tuple[float, float]:
    """Return Tango's one-sided lower and upper bound of the paired difference (gained - lost) / of."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    if not of:
        return -1.0, 1.0
    z, apart = float(norm.ppf(confidence)), (gained - lost) / of
    edge = 1 - 1e-12

    def score(delta: float) -> float:
        b = -gained - lost + (2 * of - gained + lost) * delta
        c = -lost * delta * (1 - delta)
        q = (math.sqrt(max(0.0, b * b - 8 * of * c)) - b) / (4 * of)
        return (gained - lost - of * delta) / math.sqrt(max(1e-12, of * (2 * q + delta * (1 - delta))))

    low = -1.0 if apart <= -edge or score(-edge) < z else brentq(lambda d: score(d) - z, -edge, apart)
    high = 1.0 if apart >= edge or score(edge) > -z else brentq(lambda d: score(d) + z, apart, edge)
    return float(low), float(high)


def _rates(board: Board, *, label: str, candidate: Answers, champion: Answers | None) -> Json:
    """Return the shares of items that a person would have to read, without which a recall can be had for nothing."""
    models = {"alert_rate": candidate} | ({"champion_alert_rate": champion} if champion is not None else {})
    return {
        name: number(sum(label in raised.get(item, frozenset()) for item in board.items) / max(1, len(board.items)))
        for name, raised in models.items()
    }


def _recall(board: Board, *, label: str, raised: Answers) -> float | None:
    rows = zip(board.items, board.gold, strict=True)
    hits = [label in raised.get(item, frozenset()) for item, gold in rows if label in gold]
    return number(np.float64(np.mean(hits))) if hits else None
