"""A text encoder with a classification head (FigSIM 5.1: BERT, MentalBERT, RoBERTa), of any in ``transformers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.models.fitting.classifier import PackableClassifier
from pipelines.models.kind import Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class Text(PackableClassifier):
    """A text encoder with a classification head."""

    def build(self, serving: Serving) -> Built:
        """Build a text encoder with a new classification head; the empty text replaces a missing one.

        The head is that of ``transformers`` for each architecture (BERT: dropout and one layer on the pooled first
        token). ``length`` counts tokens.
        """
        from transformers import AutoModelForSequenceClassification

        from pipelines.models.backbones import Built, Headed, Words, opened, recordable

        with opened(self.base, revision=self.revision, seed=serving.seed, folder=serving.folder) as place:
            words = Words(place, base=self.base, limit=self.max_tokens)
            labels = len(serving.task.labels)
            module = Headed(AutoModelForSequenceClassification, place, base=self.base, labels=labels)
        module.model.config.pad_token_id = words.pad
        return Built(
            module, lambda examples: words([e.text for e in examples]), lambda example: words.count(example.text),
            recordable=recordable(module.model),
        )  # fmt: skip
