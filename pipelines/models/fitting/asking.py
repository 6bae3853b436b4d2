"""Ask a model in this process about examples, and measure what that costs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pipelines.core.process import reporter
from pipelines.datasets.example import Example, Item
from pipelines.models.prediction import Prediction, Predictor, Spent


def ask(predictor: Predictor, examples: Sequence[Example], *, name: str) -> tuple[dict[Item, Prediction], Spent]:
    """Return a model's predictions for all examples, and what they cost on this machine."""
    began = time.monotonic()
    answers = predictor.predict(examples, progress=reporter(name, total=len(examples)))
    spent = Spent.of(answers, seconds=time.monotonic() - began)
    return {example.item: said for example, said in zip(examples, answers, strict=True)}, spent
