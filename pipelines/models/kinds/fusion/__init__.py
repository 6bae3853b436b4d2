"""A text and image encoder with a classification head on the joint features (FigSIM 5.1: CLIP, BLIP-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pipelines.models.fitting.classifier import PackableClassifier
from pipelines.models.kind import Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class Fusion(PackableClassifier):
    """A text and image encoder with a classification head on the joint features."""

    inputs: ClassVar[tuple[str, ...]] = ("text", "image")

    def build(self, serving: Serving) -> Built:
        from pipelines.models.kinds.fusion.network import build

        return build(self, serving)
