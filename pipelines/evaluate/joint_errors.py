"""Count a model's joint errors in two tasks, and estimate the second task's errors if the first label were right.

Declared in ``evaluate.joint``. Only items are counted that have gold and an answer in both tasks, and only runs of the
same seed. The estimate is a standardisation: where the first label is wrong, the second is taken to be wrong as often
as among items of the same gold labels (of the second task) whose first label is right. Of gold labels without such
items the second task's errors stay. It assumes that the first label's error, not what makes an item hard for both
tasks, causes the second's: where one item is hard for both, it promises too much. The shape in ``evaluate.json``::

    Joint = {
      "first": task, "second": task, "items": int,    # with gold in both
      "models": {model: {
        "runs": int, "answers": int,                  # answered in both tasks, over all runs
        "both" | "first_only" | "second_only": Rate,  # wrong, of the answers
        "if_wrong" | "if_right": Rate,                # second wrong, of the answers whose first label is wrong or right
        "observed" | "corrected" | "change": {"value", "low", "high"},   # share of answers whose second label is wrong
        "unmatched": int                              # first wrong, and no item of the same gold has it right
      }}
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipelines.evaluate.inputs import without_items
from pipelines.evaluate.label_errors import Rates, gather
from pipelines.evaluate.model_scores import Board, Json, Run, bounds, number
from pipelines.metrics.agreement_coefficients import ratio
from pipelines.metrics.label_sets import Floats

PARTS = ("observed", "corrected", "change")
Runs = Mapping[str, Sequence[Run]]


def joint(first: Board, second: Board, *, runs: tuple[Runs, Runs]) -> Json:
    """Return the joint errors of all models that answered both tasks, as ``Joint`` of ``evaluate.json``."""
    shared = {*first.items} & {*second.items}
    first, second = (without_items(board, items={*board.items} - shared) for board in (first, second))
    models = {}
    for name in sorted(runs[0].keys() & runs[1].keys()) if shared else ():
        by_seed = [{run.seed: run for run in each[name]} for each in runs]
        if seeds := sorted(by_seed[0].keys() & by_seed[1].keys()):
            models[name] = _model(first, second, runs=[[each[seed] for seed in seeds] for each in by_seed])
    return {"first": first.task.key, "second": second.task.key, "items": len(shared), "models": models}


def _model(first: Board, second: Board, *, runs: Sequence[Sequence[Run]]) -> Json:
    answers = [gather(board, runs=each) for board, each in zip((first, second), runs, strict=True)]
    known = answers[0].answered & answers[1].answered
    a, b = (each.wrong & known for each in answers)
    rates = Rates(runs=len(known))
    model: Json = {
        "runs": len(known),
        "answers": int(known.sum()),
        "both": rates.add(a & b, known),
        "first_only": rates.add(a & ~b, known),
        "second_only": rates.add(b & ~a, known),
        "if_wrong": rates.add(b, a),
        "if_right": rates.add(b, known & ~a),
    }
    rates.draw(second)
    sets = sorted(set(second.gold), key=sorted)
    own = np.array([[gold == each for each in sets] for gold in second.gold], dtype=bool)
    cells = np.stack([known & ~a, known & ~a & b, a, a & b], axis=-1).swapaxes(0, 1)
    rows = (own[:, None, :, None] & cells[:, :, None]).astype(np.float64).reshape(*cells.shape[:2], -1)
    sums = rows.sum(axis=(0, 1))
    values, drawn = (_standardised(each.reshape(-1, len(sets), 4)) for each in (sums, second.resampled(rows)))
    right, _, wrong, _ = sums.reshape(-1, 4).T
    for i, part in enumerate(PARTS):
        low, high = bounds(drawn[i])
        model[part] = {"value": number(values[i][0]), "low": low, "high": high}
    return {**model, "unmatched": int(wrong[right == 0].sum())}


def _standardised(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the observed and the standardised error of the second task, and their difference, by resample.

    ``counts`` (resamples, sets of gold, 4): first right, of these second wrong; first wrong, of these second wrong.
    """
    right, right_wrong, wrong, both = np.moveaxis(counts, -1, 0)
    expected = np.where(right > 0, wrong * np.nan_to_num(ratio(right_wrong, right)), both)
    whole = (right + wrong).sum(axis=1)
    observed, corrected = (ratio((right_wrong + each).sum(axis=1), whole) for each in (both, expected))
    return observed, corrected, corrected - observed
