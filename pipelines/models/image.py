"""Build image encoders (FigSIM 5.1: ResNet-50, ViT-Base, DINOv2) from any image classifier of ``transformers``."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoModelForImageClassification

from pipelines.core.config.models import ImageModel
from pipelines.core.taxonomy.task import Task
from pipelines.models.pretrained.backbones import Built, Headed, Pixels, opened, recordable


def build(spec: ImageModel, *, task: Task, seed: int, folder: Path, max_tokens: int = 0) -> Built:
    """Build a picture encoder with a new classification head; a grey picture replaces a missing one.

    The head is that of ``transformers`` for each architecture (ResNet: one layer on the pooled map; ViT: on the first
    token; DINOv2: on the first token and the mean of the patches). ``max_tokens`` is ignored.
    """
    with opened(spec.base, revision=spec.revision, seed=seed, folder=folder) as place:
        pixels = Pixels(place, base=spec.base)
        module = Headed(AutoModelForImageClassification, place, base=spec.base, labels=len(task.labels))
    return Built(
        module, lambda examples: pixels([e.image for e in examples]), lambda example: 1, pixels.forget,
        recordable=recordable(module.model),
    )  # fmt: skip
