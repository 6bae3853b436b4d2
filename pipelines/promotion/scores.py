"""Compare candidate and champion on the frozen test: macro-F1 with its uncertainty, and recall of severe labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.config.models import Promote
from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import ABSTAINED, Board, Json, Run, Scored, bounds, number, score
from pipelines.evaluate.paired import TIE
from pipelines.promotion.holdout import Frozen

METRIC = "macro_f1"  # FigSIM selects by it (5.2), CRADLE reports it (T4)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: ``figures`` for the journal, and the ``reasons`` against the candidate by check."""

    figures: Json
    reasons: Mapping[str, list[str]]


def compare(
    frozen: Frozen, *, candidate: Run, other: Run, champion: int | None, floors: Mapping[str, float], terms: Promote
) -> Comparison:
    """Score candidate and champion on all items and compare the scores; an abstention counts as wrong.

    Args:
        frozen: the test, with at least one item.
        candidate: the candidate's answers.
        other: the champion's answers; without a champion, the most frequent label set for every item.
        champion: the champion's version.
        floors: the recall floors by label that are configured for this model.
        terms: the other settings of the gate.

    Raises:
        BadParams: a floor names a label that the task does not have.
    """
    # as in train/floors.py, a floor of 0 removes an entry of params.yaml
    floors = {label: floor for label, floor in floors.items() if floor > 0}
    if unknown := sorted(floors.keys() - set(frozen.task.labels)):
        raise BadParams(
            where="promote.recall_floors", detail=f"{', '.join(unknown)} not among the labels of {frozen.task.key}"
        )
    ours, theirs = (score(frozen.board, runs=[run], valid=False) for run in (candidate, other))
    ahead, reasons = _ahead(ours, theirs, terms=terms)
    wanted = dict(floors)
    if champion is not None:
        wanted = _relative(frozen, theirs=theirs, terms=terms) | wanted
    recall = {label: _recall(label, ours, floor=floor, board=frozen.board) for label, floor in wanted.items()}
    for found in recall.values():
        found["judged"] = found["gold"] >= terms.min_positives
    figures = {
        METRIC: ahead,
        "exact": {"candidate": _own(ours, "exact"), "other": _own(theirs, "exact")},
        "abstained": {"candidate": _abstained(candidate), "other": _abstained(other)},
        "recall": dict(sorted(recall.items())),
    }
    return Comparison(figures, {"better": reasons, "recall": list(_missed(figures["recall"]))})


def _ahead(ours: Scored, theirs: Scored, *, terms: Promote) -> tuple[Json, list[str]]:
    drawn = ours.drawn[METRIC] - theirs.drawn[METRIC]
    low, high = bounds(drawn)
    # sums of the same parts may differ in the last bit: that counts as a tie
    probability = float(np.mean((drawn > TIE) + 0.5 * (np.abs(drawn) <= TIE)))
    mine, other = _own(ours, METRIC), _own(theirs, METRIC)
    figures = {
        "candidate": mine,
        "other": other,
        "difference": number(mine - other),
        "low": low,
        "high": high,
        "probability": number(probability),
    }
    if probability >= terms.min_probability:
        return figures, []
    return figures, [
        f"macro-F1 {mine:.4f} against {other:.4f} is better in {probability:.1%} of resamples,"
        f" but {terms.min_probability:.1%} are required"
    ]


def _relative(frozen: Frozen, *, theirs: Scored, terms: Promote) -> dict[str, float]:
    """Return the floors of severe labels that follow from the champion's recall."""
    severe = [label for label, s in frozen.task.category.severities.items() if s >= terms.severe]
    return {
        label: max(0.0, _own(theirs, f"{label}/recall") - terms.tolerance)
        for label in severe
        if label in frozen.task.labels
    }


def _recall(label: str, ours: Scored, *, floor: float, board: Board) -> Json:
    low, high = bounds(ours.drawn[f"{label}/recall"])
    found = {"recall": _own(ours, f"{label}/recall"), "low": low, "high": high}
    return found | {"floor": number(np.float64(floor)), "gold": board.support[label]}


def _missed(recall: Mapping[str, Json]) -> Iterator[str]:
    for label, found in recall.items():
        if found["judged"] and found["recall"] < found["floor"] - TIE:
            yield f"recall of {label} is {found['recall']:.4f} of {found['gold']}, below its floor {found['floor']:.4f}"


def _own(scored: Scored, name: str) -> float:
    return number(scored.runs[name][0]) or 0.0


def _abstained(run: Run) -> int:
    return sum(outcome == ABSTAINED for outcome in run.outcomes.values())
