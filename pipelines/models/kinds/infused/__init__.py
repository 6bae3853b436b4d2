"""A text and image encoder whose features attend to a labeller's rationales of the item."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pipelines.models.fitting.classifier import Classifier
from pipelines.models.kind import Based, Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class Infused(Classifier, Based):
    """A text and image encoder whose features attend to a labeller's rationales of the item."""

    inputs: ClassVar[tuple[str, ...]] = ("text", "image")
    packable: ClassVar[str | None] = "it needs a labeller's rationales for every item, which consumers do not have"
    rationales: str

    def build(self, serving: Serving) -> Built:
        from pipelines.models.kinds.infused.network import build

        return build(self, serving)
