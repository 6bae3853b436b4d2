"""M3H (Mazhar et al. 2025), a text model that reads an item's words, its rationale and similar labelled items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from pipelines.core.config.base import Positive
from pipelines.core.config.models import Revision
from pipelines.models.fitting.classifier import Classifier
from pipelines.models.kind import Serving

if TYPE_CHECKING:
    from pipelines.models.backbones import Built


class M3h(Classifier):
    """A text model that reads an item's words, its rationale and similar labelled items.

    Args:
        text: the encoder-decoder with the classification head.
        text_revision: its commit on the hub.
        embedder: the model of the sentence embeddings by which similar items are found.
        embedder_revision: its commit on the hub.
        open_layers: how many of the last layers of encoder and decoder are trained; the others are frozen.
        examples: the number of similar labelled items of train in the prompt.
        words: the number of words of an item's text that the prompt has at most.
        max_tokens: the number of tokens of a prompt at most; the end of a longer one is cut.
    """

    compares: ClassVar[bool] = True
    packable: ClassVar[str | None] = "it needs a labeller's rationales and items of train, which consumers do not have"
    rationales: str
    text: str
    text_revision: Revision | None = None
    embedder: str
    embedder_revision: Revision | None = None
    open_layers: Positive
    examples: Annotated[int, Field(ge=0)]
    words: Positive
    max_tokens: Positive = 1024

    @property
    def bases(self) -> tuple[tuple[str, str | None], ...]:
        return ((self.text, self.text_revision), (self.embedder, self.embedder_revision))

    def build(self, serving: Serving) -> Built:
        from pipelines.models.kinds.m3h.network import build

        return build(self, serving)
