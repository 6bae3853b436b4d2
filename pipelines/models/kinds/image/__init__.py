"""An image encoder with a classification head (FigSIM 5.1: ResNet-50, ViT, DINOv2), of any in ``transformers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pipelines.models.fitting.classifier import PackableClassifier
from pipelines.models.kind import Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class Image(PackableClassifier):
    """An image encoder with a classification head; ``max_tokens`` is ignored."""

    inputs: ClassVar[tuple[str, ...]] = ("image",)

    def build(self, serving: Serving) -> Built:
        """Build a picture encoder with a new classification head; a grey picture replaces a missing one.

        The head is that of ``transformers`` for each architecture (ResNet: one layer on the pooled map; ViT: on the
        first token; DINOv2: on the first token and the mean of the patches).
        """
        from transformers import AutoModelForImageClassification

        from pipelines.models.backbones import Built, Headed, Pixels, opened, recordable

        with opened(self.base, revision=self.revision, seed=serving.seed, folder=serving.folder) as place:
            pixels = Pixels(place, base=self.base)
            labels = len(serving.task.labels)
            module = Headed(AutoModelForImageClassification, place, base=self.base, labels=labels)
        return Built(
            module, lambda examples: pixels([e.image for e in examples]), lambda example: 1, pixels.forget,
            recordable=recordable(module.model),
        )  # fmt: skip
