"""Build text encoders (FigSIM 5.1: BERT, MentalBERT, RoBERTa) from any sequence classifier of ``transformers``."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoModelForSequenceClassification

from pipelines.core.config.models import TextModel
from pipelines.core.taxonomy.task import Task
from pipelines.models.pretrained.backbones import Built, Headed, Words, opened, recordable


def build(spec: TextModel, *, task: Task, seed: int, folder: Path, max_tokens: int) -> Built:
    """Build a text encoder with a new classification head; the empty text replaces a missing one.

    The head is that of ``transformers`` for each architecture (BERT: dropout and one layer on the pooled first token).
    ``length`` counts tokens.
    """
    with opened(spec.base, revision=spec.revision, seed=seed, folder=folder) as place:
        words = Words(place, base=spec.base, limit=max_tokens)
        module = Headed(AutoModelForSequenceClassification, place, base=spec.base, labels=len(task.labels))
    module.model.config.pad_token_id = words.pad
    return Built(
        module, lambda examples: words([e.text for e in examples]), lambda example: words.count(example.text),
        recordable=recordable(module.model),
    )  # fmt: skip
