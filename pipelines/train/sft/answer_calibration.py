"""Calibrate a tuned causal model on dev's gold, and fit its alerts (flags that guarantee a label's recall) there."""

from __future__ import annotations

import gc
from typing import Any

import torch

from pipelines.metrics import calibration, recall_constraints
from pipelines.train.predictors.generate import Generator
from pipelines.train.sft.sft import SftJob

# Ours: posts that are read together; the stage knows the batch of training only.
TOGETHER = 8


def fit(job: SftJob) -> dict[str, Any]:
    """Fit a model's calibration and alerts on dev; write them to the folder that ``sft.fit`` wrote the model to.

    Returns:
        The report of :func:`pipelines.metrics.recall_constraints.learned`: alerts, exact match, losses on dev.

    Raises:
        NothingToCalibrate: dev has no gold.
        BadParams: a recall floor names a label of no scheme.
    """
    # the trained model is in a cycle of references, and still on the accelerator
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    generator = Generator.open(
        job.out, task=job.task, scheme=job.scheme, max_length=job.spec.max_length,
        max_new_tokens=job.settings.max_new_tokens, batch=TOGETHER, folder=job.folder,
    )  # fmt: skip
    found = generator.posteriors([example.text for example in job.validation])
    raw = found @ generator.member
    fitted = calibration.fit(raw, examples=job.validation, task=job.task)
    alerts, metrics = recall_constraints.learned(
        fitted(raw), raw=raw, examples=job.validation, task=job.task, floors=job.settings.recall_floors,
        sets=[generator.sets[best] for best in found.argmax(axis=1)] if job.task.kind == "multi" else None,
    )  # fmt: skip
    recall_constraints.save(job.out, task=job.task, alerts=alerts, calibration=fitted.as_json())
    return metrics
