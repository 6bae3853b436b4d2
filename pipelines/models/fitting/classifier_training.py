"""Fit classifiers and write them: to the folder of a fit, and as packages for consumers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_file
from transformers import AutoImageProcessor, AutoTokenizer

from pipelines.models.fitting import loop
from pipelines.models.fitting.classifier import Classifier, PackableClassifier
from pipelines.models.fitting.classifier_serving import HEAD, REST, THRESHOLDS, WEIGHTS
from pipelines.models.fitting.loss_and_optimizer import weigh
from pipelines.models.kind import Job, Say, Serving
from pipelines.models.pretrained.backbones import had, opened


def fit(spec: Classifier, job: Job[Any], *, say: Say) -> dict[str, Any]:
    """Fit a classifier and write it to ``job.out``; see :meth:`Classifier.fit`."""
    task, settings = job.task, spec.settings(job)
    weights = weigh(job.train, task=task, max_pos_weight=settings.max_pos_weight, reweighted=settings.reweighted)
    fitted = loop.fit(
        spec.build(job), train=job.train, validation=job.validation, task=task, settings=settings, seed=job.seed,
        folder=job.folder, weights=weights, say=say,
    )  # fmt: skip
    shutil.copyfile(fitted.state, job.out / WEIGHTS)
    stored = {"labels": task.labels, "thresholds": fitted.thresholds.tolist()}
    (job.out / THRESHOLDS).write_text(json.dumps(stored, indent=1) + "\n")
    best = next(epoch for epoch in fitted.history if epoch["epoch"] == fitted.epoch)
    return {
        "epoch": fitted.epoch,
        "validation_macro_f1": best["validation_macro_f1"],
        "thresholds": dict(zip(task.labels, fitted.thresholds.tolist(), strict=True)),
        "history": list(fitted.history),
        "unseen": list(weights.empty),
    }


def pack(spec: PackableClassifier, folder: Path, *, to: Path, serving: Serving) -> None:
    """Write a classifier to ``to``: the encoder in the format of ``transformers``, beside it head and thresholds."""
    built = spec.build(serving)
    load_model(built.module, str(folder / WEIGHTS))
    with opened(spec.base, revision=spec.revision, seed=serving.seed, folder=serving.folder) as place:
        whole = getattr(built.module, "whole", lambda *_, **__: built.module.model)
        whole(place, base=spec.base).save_pretrained(to)
        if "text" in spec.inputs:
            had(AutoTokenizer, place, base=spec.base).save_pretrained(to)
        if "image" in spec.inputs:
            had(AutoImageProcessor, place, base=spec.base, backend="pil").save_pretrained(to)
    head = {key: value.contiguous() for key, value in built.module.state_dict().items() if key.startswith(HEAD)}
    if head:
        save_file(head, to / REST)
    shutil.copyfile(folder / THRESHOLDS, to / THRESHOLDS)
