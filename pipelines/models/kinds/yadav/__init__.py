"""The depression-symptom model for memes by Yadav et al. (2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pipelines.core.config.models import Revision
from pipelines.models.fitting.classifier import Classifier
from pipelines.models.kind import Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class Yadav(Classifier):
    """A text and a picture encoder whose features are gated and made orthogonal."""

    inputs: ClassVar[tuple[str, ...]] = ("text", "image")
    packable: ClassVar[str | None] = "it has two base models, and a package can hold only one"
    note: ClassVar[str | None] = (
        "built from the abstract of Yadav et al. (2023): the text of the paper could not be read"
    )
    text: str
    image: str
    text_revision: Revision | None = None
    image_revision: Revision | None = None

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        return ((self.text, self.text_revision), (self.image, self.image_revision))

    def build(self, serving: Serving) -> Built:
        from pipelines.models.kinds.yadav.network import build

        return build(self, serving)
