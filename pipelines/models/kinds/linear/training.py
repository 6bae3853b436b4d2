"""Fit a linear head by the regression of the offline labeller that reads the same features.

On 300 synthetic posts of four classes with 10 % wrong labels (tests/own, three seeds, five folds by author), words are
right for .65, .63 and .58, the embedding for .44, .41 and .40, the majority for .34, .31 and .32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from pipelines.datasets.example import TRAIN, only, targets
from pipelines.label.offline import WordFeatures, unit_head
from pipelines.metrics.calibration import shares
from pipelines.models.fitting.calibrated_predictor import calibrate
from pipelines.models.kind import Job
from pipelines.models.kinds.linear.predictor import FEATURES, HEAD

HEADS: dict[str, Callable[..., partial[Any]]] = {
    # by hashes, so that no word of a text is in a model
    "words": lambda *given, **more: WordFeatures().fit(*given, **more),
    "embedding": unit_head,
    "shapes": unit_head,
}


def fit(job: Job[Any]) -> dict[str, Any]:
    """Fit the head on train, calibrate it on validation, and write both to ``job.out``.

    Returns:
        ``unseen`` (labels that train does not have), and what :func:`pipelines.metrics.recall_constraints.learned`
        returns.
    """
    # in an order of their own, so that nothing depends on that of train
    train = sorted(only(job.train, splits={TRAIN}), key=lambda example: example.item)
    features = FEATURES[job.spec.features]()
    truth = targets(train, task=job.task) > 0
    head = HEADS[job.spec.features](features.rows(train), targets=truth, seed=job.seed)
    job.out.mkdir(parents=True, exist_ok=True)
    # safetensors writes the bytes of an array in the order in which they are stored
    save_file({name: np.ascontiguousarray(values) for name, values in head.keywords.items()}, job.out / HEAD)
    raw = shares(head(features.rows(job.validation)), kind=job.task.kind)
    unseen = [label for label, column in zip(job.task.labels, truth.T, strict=True) if not column.any()]
    return {"unseen": unseen, **calibrate(raw, job=job)}
