"""Compare candidate and rival on the gate set by macro-F1 and recalls; score them on the rest of the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.config.models import Promote
from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import ABSTAINED, Board, Json, Run, Scored, bounds, number, score
from pipelines.evaluate.paired import TIE
from pipelines.promotion.recall_checks import INFERIOR, NOT_INFERIOR, UNDECIDED, Answers, floor_of, severe_of
from pipelines.promotion.superiority import SLACK, Superiority
from pipelines.taxonomy.task import Task

METRIC = "macro_f1"  # FigSIM selects by it (5.2), CRADLE reports it (T4)
# of a refused version: nothing that says how right its answers are
TOLD = ("floor", "margin", "gold", "groups", "needed", "alert_rate", "champion_alert_rate", "verdict")


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: ``figures`` for the journal, and the ``reasons`` against the candidate by check.

    With a reason, ``figures`` has no scores of the candidate (:func:`withheld`).
    """

    figures: Json
    reasons: Mapping[str, list[str]]


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
) -> Comparison:
    """Score candidate and rival on all items of the gate set and compare the scores; an abstention counts as wrong.

    Args:
        candidate: the candidate's runs; the first is the registered one.
        rival: the answers of the champion or of a baseline.
        alerted: by item, the labels of the candidate's alerts, and the labels that it gives without an alert.
        noticed: by item, the labels that a user of the candidate notices; and the champion's, if it is the rival.
        floors: the recalls that are required or guaranteed (floors), by label.
        tested: the test of superiority.
        terms: the settings of the gate.
    """
    ours, theirs = (score(board, runs=[run], valid=False) for run in (candidate[0], rival))
    candidate_s, champion_s = noticed
    recall = {
        label: floor_of(board, label=label, floor=floor, raised=alerted, champion=champion_s)
        for label, floor in floors.items()
    }
    severe: dict[str, Json] = {}
    if champion_s is not None:
        given = {"candidate": candidate_s, "champion": champion_s}
        severe = {
            label: severe_of(board, label=label, tolerance=terms.tolerance, **given)
            for label in severe_labels(board.task, terms=terms)
        }
    ahead = _ahead(ours, theirs) | {"seeds": [_macro_f1(board, run=run) for run in candidate]}
    figures = {
        METRIC: ahead,
        "exact": {"candidate": _own(ours, "exact"), "other": _own(theirs, "exact")},
        "abstained": {"candidate": _abstained(candidate[0], board=board), "other": _abstained(rival, board=board)},
        "recall": dict(sorted(recall.items())),
        "severe": dict(sorted(severe.items())),
    }
    reasons = {"better": list(_not_better(tested)), "recall": list(_missed(figures, terms=terms))}
    return Comparison(withheld(figures) if any(reasons.values()) else figures, reasons)


def withheld(figures: Json) -> Json:
    """Return the figures of a refused version without its scores, which would guide the choice of the next one.

    The verdicts remain, and what does not depend on the candidate's scores.
    """
    told = {key: value for key, value in figures.items() if key != "reported"}
    told |= {name: {"other": figures[name]["other"]} for name in (METRIC, "exact")}
    for name in ("recall", "severe"):
        told[name] = {
            label: {key: found[key] for key in TOLD if key in found} for label, found in figures[name].items()
        }
    return told


def floors_of(task: Task, *, floors: Mapping[str, float]) -> dict[str, float]:
    """Return the recall that a model must reach (its floor) by label; a floor of 0 removes an entry of ``params.yaml``."""
    wanted = {label: floor for label, floor in floors.items() if floor > 0}
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
        METRIC: {"candidate": _own(ours, METRIC), "low": low, "high": high, "other": _own(theirs, METRIC)},
        "exact": {"candidate": _own(ours, "exact"), "other": _own(theirs, "exact")},
    }


def _ahead(ours: Scored, theirs: Scored) -> Json:
    drawn = ours.drawn[METRIC] - theirs.drawn[METRIC]
    low, high = bounds(drawn)
    # sums of the same parts may differ in the last bit: that counts as a tie
    probability = float(np.mean((drawn > TIE) + 0.5 * (np.abs(drawn) <= TIE)))
    mine, other = _own(ours, METRIC), _own(theirs, METRIC)
    return {
        "candidate": mine,
        "other": other,
        # lists, as the journal returns them
        "intervals": {"candidate": list(bounds(ours.drawn[METRIC])), "other": list(bounds(theirs.drawn[METRIC]))},
        "difference": number(mine - other),
        "low": low,
        "high": high,
        "probability": number(probability),
    }


def _not_better(tested: Superiority) -> Iterator[str]:
    if not tested.better:
        seeds = " over all seeds" if tested.p <= tested.level * (1 + SLACK) else ""
        yield f"its macro-F1 is not shown to be higher: p{seeds} is above {tested.level:.4g}, the level of this look"


def _missed(figures: Json, *, terms: Promote) -> Iterator[str]:
    for label, found in figures["recall"].items():
        if found["verdict"] == "below":
            yield f"recall of {label} is under its floor {found['floor']:.4f} with 95 % confidence"
    for label, found in figures["severe"].items():
        if found["verdict"] == INFERIOR or (found["verdict"] == UNDECIDED and terms.undecided == "refuse"):
            less = (
                "is less than the champion's"
                if found["verdict"] == INFERIOR
                else "is not shown to equal the champion's"
            )
            yield f"recall of severe {label} {less} with a margin of {found['margin']:.4f}"


def undecided(figures: Json) -> Iterator[str]:
    """Yield a sentence for each label that the gate set has too few positives to decide, for the approver."""
    if "candidate" not in figures.get(METRIC, {}):
        return
    for label, found in figures.get("recall", {}).items():
        if found.get("verdict") == "too_few":
            needs = "no number of them" if found["needed"] is None else f"{found['needed']} of them"
            yield (
                f"{label}: {found['groups']} groups with it cannot confirm a recall of {found['floor']:.2f}"
                f" ({needs} could); its bounds are {found['low']:.2f} and {found['high']:.2f}"
            )
    for label, found in figures.get("severe", {}).items():
        if found["verdict"] not in (INFERIOR, NOT_INFERIOR):
            yield (
                f"{label} (severe): with {found['groups']} groups, {found['gained']} gained and {found['lost']} lost,"
                f" the recall may be lower than the champion's by {-found['low']:.2f};"
                f" {-found['margin']:.2f} is tolerated"
            )


def _macro_f1(board: Board, *, run: Run) -> float:
    from pipelines.evaluate.model_scores import plain

    return float(plain(board, predicted=board.predicted(run), valid=False)["figures"][METRIC] or 0.0)


def _own(scored: Scored, name: str) -> float:
    return number(scored.runs[name][0]) or 0.0


def _abstained(run: Run, *, board: Board) -> int:
    return board.outcomes(run)[ABSTAINED]
