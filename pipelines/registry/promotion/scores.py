"""Compare candidate and rival on the gate set by macro-F1 and recalls; score them on the rest of the test.

Recalls are judged by confidence bounds, and left to a person where these do not decide:

- A *floor* (``promote.recall_floors``, or the recall that a model's own alert guarantees) is missed if the 95 % upper
  bound of the recall lies below it (:func:`pipelines.metrics.alerts.judged`). A candidate whose true recall is the
  floor is refused one time in twenty at most.
- A *severe* label may be found less often than by the champion by ``promote.tolerance`` at most. Tango's score bounds
  of a paired difference (1998, Statistics in Medicine 17:891-908), one-sided at 95 %, also hold if no answer differs:
  the candidate is *inferior* if the upper bound lies below the margin, *not inferior* if the lower bound does not.

Both count groups of near-duplicates, which are not independent: a group is found if all its positives are.

Whether macro-F1 is higher is tested at the level of a look (``looks.py``). The p-value is the larger of two one-sided
ones. The randomisation test of macro-F1 (Noreen 1989, Yeh 2000) exchanges the answers of both models on whole groups;
it is exact, at any level and size, if the two are exchangeable, but too small for models of equal macro-F1 that reach
it by other means, such as a constant answer. The jackknife over groups divides the difference in macro-F1 by its
standard error (Student's t); that holds for any two models, but only in large samples: ``bench/promotion_gate.py``
measures both. The smaller of the difference and of its value after correction for bias is tested, because F1 of few
positives is biased, and differently at different recalls. The candidate must be better than every rival, and with
several runs (seeds) of it, both the registered one and their mean must be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.core.config.models import Promote
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy.task import Task
from pipelines.evaluate.model_scores import ABSTAINED, Board, Item, Json, Run, Scored, bounds, counted, number, score
from pipelines.evaluate.paired import TIE, exchanged, left_out
from pipelines.evaluate.reliability import found_groups
from pipelines.metrics import alerts
from pipelines.metrics.bootstrap import cluster_sums
from pipelines.metrics.label_sets import Floats, LabelSet
from pipelines.registry.promotion.holdout import macro_f1

SLACK = 1e-9  # of a p-value, which is a ratio of integers


@dataclass(frozen=True)
class Superiority:
    """The result of the test whether a candidate is better than its rival.

    Args:
        p: the p-value of the registered run.
        p_seeds: the p-value of the mean over all runs (seeds); equal to ``p`` with one run.
    """

    p: float
    p_seeds: float
    level: float

    @property
    def better(self) -> bool:
        """Whether both p-values show, at ``level``, that the candidate is better."""
        return max(self.p, self.p_seeds) <= self.level * (1 + SLACK)


def compared(board: Board, *, candidate: Sequence[Run], rivals: Sequence[Run], level: float) -> Superiority:
    """Compare a candidate's runs, of which the first is the registered one, with every rival; the largest p counts."""
    ours, theirs = [_sums(board, run) for run in candidate], [_sums(board, run) for run in rivals]
    p = max(p_value(board, candidate=ours[0], rival=each) for each in theirs)
    mean = np.mean(ours, axis=0)
    p_seeds = max(p_value(board, candidate=mean, rival=each) for each in theirs) if len(ours) > 1 else p
    return Superiority(p, p_seeds, level)


def p_value(board: Board, *, candidate: Floats, rival: Floats) -> float:
    """Return the one-sided p-value of counts by group, the larger one of both tests."""
    apart, drawn = exchanged(board, a=candidate, b=rival)
    # the observed assignment is one of the exchanges
    exchange = (1 + int((drawn >= apart - TIE).sum())) / (1 + len(drawn))
    return max(exchange, jackknife(board, candidate=candidate, rival=rival))


def jackknife(board: Board, *, candidate: Floats, rival: Floats) -> float:
    """Return the one-sided p-value of the difference in macro-F1 in units of its standard error over groups.

    It is 0 or 1 if no group that is left out changes the difference, and 1 with a single group.
    """
    from scipy.stats import t

    apart, without = left_out(board, a=candidate, b=rival)
    groups, mean = len(without), float(without.mean())
    error = math.sqrt((groups - 1) / groups * float(((without - mean) ** 2).sum()))
    ahead = min(apart, groups * apart - (groups - 1) * mean)
    if groups < 2 or error <= TIE:
        return float(groups < 2 or ahead <= TIE)
    return float(t.sf(ahead / error, groups - 1))


def _sums(board: Board, run: Run) -> Floats:
    return cluster_sums(counted(board, predicted=board.predicted(run), valid=False), groups=board.groups)


INFERIOR, NOT_INFERIOR, UNDECIDED = "inferior", "not_inferior", "undecided"
Answers = Mapping[Item, LabelSet]


def floor_of(board: Board, *, label: str, floor: float, raised: Answers, champion: Answers | None = None) -> Json:
    """Return the recall of a label with its bounds and the verdict on its floor, as JSON.

    Args:
        floor: the recall that is required or guaranteed.
        raised: by item, the labels whose alert the model raises or, without alerts, the labels that it gives.
        champion: what a consumer of the champion notices, if it is the rival.
    """
    groups = list(found_groups(board, label=label, raised=raised).values())
    hits, n = sum(groups), len(groups)
    bounds = alerts.lower(hits, n), alerts.upper(hits, n)
    return _figures(board, label=label, groups=n, bounds=bounds, candidate=raised, champion=champion) | {
        "floor": floor,
        "verdict": alerts.judged(hits, n, guaranteed=floor),
        "needed": None if math.isinf(needed := alerts.needed(floor)) else needed,
    }


def severe_of(board: Board, *, label: str, candidate: Answers, champion: Answers, tolerance: float) -> Json:
    """Return as JSON the recall of a severe label, candidate minus champion, with bounds and whether it is inferior."""
    ours, theirs = (found_groups(board, label=label, raised=raised) for raised in (candidate, champion))
    gained = sum(ours[group] and not theirs[group] for group in ours)
    lost = sum(theirs[group] and not ours[group] for group in ours)
    low, high = bounds = paired_bounds(gained, lost, of=len(ours))
    verdict = INFERIOR if high < -tolerance else NOT_INFERIOR if low >= -tolerance else UNDECIDED
    return _figures(board, label=label, groups=len(ours), bounds=bounds, candidate=candidate, champion=champion) | {
        "champion": _recall(board, label=label, raised=champion),
        "gained": gained,
        "lost": lost,
        "margin": -tolerance,
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


def _figures(
    board: Board, *, label: str, groups: int, bounds: tuple[float, float], candidate: Answers, champion: Answers | None
) -> Json:
    """Return a label's recall, and the shares of items that a person would have to read.

    Without these shares a recall can be had for nothing.
    """
    models = {"alert_rate": candidate} | ({"champion_alert_rate": champion} if champion is not None else {})
    return (
        {"gold": board.support[label], "groups": groups, "recall": _recall(board, label=label, raised=candidate)}
        | {name: number(np.float64(bound)) for name, bound in zip(("low", "high"), bounds, strict=True)}
        | {
            name: number(sum(label in raised.get(item, frozenset()) for item in board.items) / max(1, len(board.items)))
            for name, raised in models.items()
        }
    )


def _recall(board: Board, *, label: str, raised: Answers) -> float | None:
    rows = zip(board.items, board.gold, strict=True)
    hits = [label in raised.get(item, frozenset()) for item, gold in rows if label in gold]
    return number(np.float64(np.mean(hits))) if hits else None


METRIC = "macro_f1"  # FigSIM selects by it (5.2), CRADLE reports it (T4)
# of a refused version: nothing that says how right its answers are
SHOWN = ("floor", "margin", "gold", "groups", "needed", "alert_rate", "champion_alert_rate", "verdict")


def compare(
    board: Board,
    *,
    candidate: Sequence[Run],
    rival: Run,
    alerted: Answers,
    noticed: tuple[Answers, Answers | None],
    floors: Mapping[str, float],
    tested: Superiority,
    terms: Promote,
) -> Json:
    """Score candidate and rival on all items of the gate set and compare the scores; an abstention counts as wrong.

    The figures are for the journal, with the ``reasons`` against the candidate by check; with a reason, they have no
    scores of the candidate (:func:`withheld`).

    Args:
        candidate: the candidate's runs; the first is the registered one.
        alerted: by item, the labels of the candidate's alerts, and the labels that it gives without an alert.
        noticed: by item, the labels that a user of the candidate notices; and the champion's, if it is the rival.
    """
    ours, theirs = (score(board, runs=[run], valid=False) for run in (candidate[0], rival))
    candidate_s, champion_s = noticed
    recall = {
        label: floor_of(board, label=label, floor=floor, raised=alerted, champion=champion_s)
        for label, floor in floors.items()
    }
    severe: dict[str, Json] = {}
    if champion_s is not None:
        noticed_by = {"candidate": candidate_s, "champion": champion_s}
        severe = {
            label: severe_of(board, label=label, tolerance=terms.tolerance, **noticed_by)
            for label in severe_labels(board.task, terms=terms)
        }
    ahead = _ahead(ours, theirs) | {"seeds": [number(macro_f1(board, run=run)) for run in candidate]}
    figures = {
        METRIC: ahead,
        "exact": _both(ours, theirs, "exact"),
        "abstained": {
            name: board.outcomes(run)[ABSTAINED] for name, run in (("candidate", candidate[0]), ("other", rival))
        },
        "recall": dict(sorted(recall.items())),
        "severe": dict(sorted(severe.items())),
    }
    reasons = {"better": list(_not_better(tested, board=board)), "recall": list(_missed(figures, terms=terms))}
    return (withheld(figures) if any(reasons.values()) else figures) | {"reasons": reasons}


def withheld(figures: Json) -> Json:
    """Return the figures of a refused version without its scores, which would guide the choice of the next one.

    The verdicts remain, and what does not depend on the candidate's scores.
    """
    kept = {key: value for key, value in figures.items() if key != "reported"}
    kept |= {name: {"other": figures[name]["other"]} for name in (METRIC, "exact")}
    for name in ("recall", "severe"):
        kept[name] = {
            label: {key: figure[key] for key in SHOWN if key in figure} for label, figure in figures[name].items()
        }
    return kept


def floors_of(task: Task, *, floors: Mapping[str, float] | None) -> dict[str, float]:
    """Return by label the recall that a model must reach: ``floors``, by default the scheme's; 0 removes a floor."""
    chosen = task.category.recall_floors if floors is None else floors
    wanted = {label: floor for label, floor in chosen.items() if floor > 0}
    if unknown := sorted(wanted.keys() - set(task.labels)):
        raise BadParams(
            where="promote.recall_floors", detail=f"{', '.join(unknown)} not among the labels of {task.key}"
        )
    return wanted


def severe_labels(task: Task, *, terms: Promote) -> list[str]:
    """Return the labels that the candidate may not find less often than the champion."""
    severities = task.category.severities
    return [label for label in task.labels if severities.get(label, 0) >= terms.severe]


def reported(board: Board, *, candidate: Run, rival: Run) -> Json:
    """Return both scores on the test items outside the gate set, which did not decide; ``n`` is the number of items."""
    if not board.items:
        return {"n": 0}
    ours, theirs = (score(board, runs=[run], valid=False) for run in (candidate, rival))
    low, high = bounds(ours.drawn[METRIC])
    return {
        "n": len(board.items),
        METRIC: _both(ours, theirs, METRIC) | {"low": low, "high": high},
        "exact": _both(ours, theirs, "exact"),
    }


def _ahead(ours: Scored, theirs: Scored) -> Json:
    drawn = ours.drawn[METRIC] - theirs.drawn[METRIC]
    low, high = bounds(drawn)
    # sums of the same parts may differ in the last bit: that counts as a tie
    probability = float(np.mean((drawn > TIE) + 0.5 * (np.abs(drawn) <= TIE)))
    both = _both(ours, theirs, METRIC)
    return both | {
        # lists, as the journal returns them
        "intervals": {"candidate": list(bounds(ours.drawn[METRIC])), "other": list(bounds(theirs.drawn[METRIC]))},
        "difference": number(both["candidate"] - both["other"]),
        "low": low,
        "high": high,
        "probability": number(probability),
    }


def _not_better(tested: Superiority, *, board: Board) -> Iterator[str]:
    if not tested.better:
        seeds = " over all seeds" if tested.p <= tested.level * (1 + SLACK) else ""
        rarest = min(board.support, key=board.support.__getitem__)
        yield (
            f"its macro-F1 is not shown to be higher: p{seeds} is above {tested.level:.4g}, the level of this look, on"
            f" {len(board.items)} items by {len(set(board.groups))} authors or groups, {board.support[rarest]} of them"
            f" with {rarest}, the rarest label"
        )


def _missed(figures: Json, *, terms: Promote) -> Iterator[str]:
    for label, recall in figures["recall"].items():
        if recall["verdict"] == "below":
            yield f"recall of {label} is under its floor {recall['floor']:.4f} with 95 % confidence"
    for label, recall in figures["severe"].items():
        if recall["verdict"] == INFERIOR or (recall["verdict"] == UNDECIDED and terms.undecided == "refuse"):
            less = "less than" if recall["verdict"] == INFERIOR else "not shown to equal"
            yield f"recall of severe {label} is {less} the champion's with a margin of {recall['margin']:.4f}"


def undecided(figures: Json) -> Iterator[str]:
    """Yield a sentence for each label that the gate set has too few positives to decide, for the approver."""
    if "candidate" not in figures.get(METRIC, {}):
        return
    for label, recall in figures.get("recall", {}).items():
        if recall.get("verdict") == "too_few":
            needs = "no number of them" if recall["needed"] is None else f"{recall['needed']} of them"
            yield (
                f"{label}: {recall['groups']} groups with it cannot confirm a recall of {recall['floor']:.2f}"
                f" ({needs} could); its bounds are {recall['low']:.2f} and {recall['high']:.2f}"
            )
    for label, recall in figures.get("severe", {}).items():
        if recall["verdict"] not in (INFERIOR, NOT_INFERIOR):
            yield (
                f"{label} (severe): with {recall['groups']} groups, {recall['gained']} gained and"
                f" {recall['lost']} lost, the recall may be lower than the champion's by {-recall['low']:.2f};"
                f" {-recall['margin']:.2f} is tolerated"
            )


def _both(ours: Scored, theirs: Scored, name: str) -> Json:
    return {"candidate": number(ours.runs[name][0]) or 0.0, "other": number(theirs.runs[name][0]) or 0.0}
