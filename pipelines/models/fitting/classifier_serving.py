"""Load fitted classifiers, from the folder of a fit or a package for consumers, and predict with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, load_model

from pipelines.core.errors import ConfigError, DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.metrics.decoding import decide
from pipelines.models.backbones import Built
from pipelines.models.fitting import inference
from pipelines.models.kind import Serving
from pipelines.models.prediction import VOTE, Prediction, Progress

WEIGHTS, THRESHOLDS = "weights.safetensors", "thresholds.json"
# Of a package: the encoder's configuration, and the weights of the head, which the library does not save with it.
CONFIG, REST, HEAD = "config.json", "rest.safetensors", "head."


def opened(spec: Any, folder: Path, *, serving: Serving) -> ClassifierPredictor:
    """Load a classifier from the folder of its fit or its package; ``spec`` is a ``Classifier``."""
    stored = json.loads((folder / THRESHOLDS).read_text())
    if tuple(stored["labels"]) != serving.task.labels:
        found, wanted = len(stored["labels"]), len(serving.task.labels)
        raise DataError("OtherLabels", found=found, wanted=wanted, task=serving.task.key)
    if (folder / CONFIG).is_file():
        built = spec.model_copy(update={"base": str(folder)}).build(serving)
        rest = load_file(folder / REST) if (folder / REST).is_file() else {}
        if {name for name in built.module.state_dict() if name.startswith(HEAD)} != set(rest):
            raise ConfigError("BaseUnfit", base=folder.name, detail=f"{REST} does not have the weights of its head")
        built.module.load_state_dict(rest, strict=False)
    else:
        built = spec.build(serving)
        load_model(built.module, str(folder / WEIGHTS))
    return ClassifierPredictor(built, task=serving.task, thresholds=stored["thresholds"], batch=spec.batch)


class ClassifierPredictor:
    """A fitted classifier that predicts labels by thresholds, or the most probable one of a single-label task."""

    def __init__(self, built: Built, *, task: Task, thresholds: Sequence[float], batch: int) -> None:
        self._built, self._task, self._batch = built, task, batch
        # float64: see ``decide``
        self._thresholds = np.array(thresholds, np.float64)

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        """Return one prediction per example; each split is batched apart, so that its numbers depend on no other."""
        found: dict[int, Prediction] = {}
        for split in dict.fromkeys(example.split for example in examples):
            rows = [row for row, example in enumerate(examples) if example.split == split]
            part = [examples[row] for row in rows]
            scores = inference.predict(self._built, examples=part, task=self._task, batch=self._batch)
            sets = decide(scores, task=self._task, thresholds=self._thresholds)
            made = (Prediction(VOTE, labels, tuple(row)) for labels, row in zip(sets, scores.tolist(), strict=True))
            found |= dict(zip(rows, made, strict=True))
            if progress is not None:
                progress(len(found))
        return [found[row] for row in range(len(examples))]

    def forget(self) -> None:
        self._built.forget()
