"""Predict with a fitted text encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipelines.config.base import Section
from pipelines.datasets.example import TEST, Example
from pipelines.metrics import calibration, recall_constraints
from pipelines.models.backbones import opened
from pipelines.models.built import Built
from pipelines.models.encoder import EncoderWords, Saved, built
from pipelines.taxonomy.task import Task
from pipelines.train.classifiers import inference

Floats = npt.NDArray[np.float64]

# FigSIM's Table 9, as for every model that the loop fits.
CLIP = 1.0
# Ours: posts between two progress reports.
CHUNK = 512


class Recipe(Section):
    """Settings of ``loop.py`` for one fit: an encoder's entry in ``params.models``, completed with defaults."""

    mode: Literal["paper", "improved"] = "improved"
    base: str
    max_tokens: int
    epochs: int
    batch: int
    learning_rate: float
    warmup: float
    weight_decay: float
    clip: float = CLIP
    min_positives: int = recall_constraints.MIN_POSITIVES
    checkpoint_steps: int


class EncoderPredictor:
    """A fitted encoder for inference; create it with :meth:`open`."""

    def __init__(
        self, model: Built, *, words: EncoderWords, task: Task, calibrated: calibration.Calibration, thresholds: Floats,
        recipe: Recipe,
    ) -> None:  # fmt: skip
        """Use :meth:`open`."""
        self._built, self._words, self._task, self._recipe = model, words, task, recipe
        self._calibration, self._thresholds = calibrated, thresholds

    @classmethod
    def open(cls, out: Path, *, task: Task) -> EncoderPredictor:
        """Load what :func:`fit` wrote.

        Raises:
            OtherLabels: the encoder was fitted for other labels than the task's.
            BaseMissing, BaseUnfit: files are missing.
        """
        thresholds, stored = recall_constraints.load(out, task=task)
        calibrated = calibration.Calibration.of_json(stored["calibration"])
        with opened(str(out), seed=0, folder=out) as place:
            words = EncoderWords(place, base=out.name, limit=None)
            model = built(Saved(place, base=out.name), words=words)
        recipe = Recipe.model_validate(stored["recipe"])
        return cls(model, words=words, task=task, calibrated=calibrated, thresholds=thresholds, recipe=recipe)

    def probabilities(self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None) -> Floats:
        """Return calibrated probabilities, shape (texts, labels), in the order of texts and of the task's labels.

        ``progress`` is called with the number of texts that are done.
        """
        rows: list[Floats] = [np.zeros((0, len(self._task.labels)))]
        for start in range(0, len(texts), CHUNK):
            some = [
                Example((str(n), 0), TEST, text, None, None, "") for n, text in enumerate(texts[start : start + CHUNK])
            ]
            raw = inference.predict(self._built, examples=some, task=self._task, settings=self._recipe)
            rows.append(self._calibration(raw))
            if progress is not None:
                progress(start + len(some))
        return np.concatenate(rows)

    def labels(self, scores: Floats) -> list[frozenset[str]]:
        """Return the label set of each row of :meth:`probabilities`; see ``recall_constraints``."""
        return recall_constraints.decide(scores, task=self._task, thresholds=self._thresholds)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens that are read of each text, special ones included."""
        return [self._words.count(text) for text in texts]
