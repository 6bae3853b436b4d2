"""Build a text-picture encoder that attends to generated remarks on memes before it classifies them (ours).

The idea of remarks under three heads (cause and effect, figurative understanding, mental state) is that of M3H (Mazhar
et al. 2025), whose own model, without the picture, is :mod:`pipelines.models.kinds.m3h.network`. All else is ours:

* Backbone: a multimodal encoder with a tower for text and one for pictures (params.yaml: CLIP), fine-tuned.
* Each remark passes through the text tower separately: CLIP reads 77 tokens, and three remarks and the words have more.
* Infusion: the features of text and picture attend to the three remarks, each marked with its head, and a gate decides
  how much of the result is added. Attention needs at least one key, so a learned vector is added to the remarks; a meme
  that the labeller refused attends to it alone. The mean of the remarks also reaches the head directly.
* Head: two layers, as for CLIP alone (``fusion``), so that the two models differ only in the remarks.
* Loss, weights and schedule are FigSIM's (its Table 9).

A remark is an explanation of a meme under one head. The stage ``rationales`` generates the remarks, and
:mod:`pipelines.datasets.features` reads them. Without remarks the model is not built: there is no silent substitute.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pipelines.datasets.features import HEADS, by_labeller
from pipelines.models.backbones import (
    DROPOUT,
    Batch,
    Built,
    Pixels,
    Words,
    both,
    checkpointed,
    opened,
    scaled,
    two_layers,
    two_towers,
    unfit,
)
from pipelines.models.kind import Serving
from pipelines.models.kinds.infused import Infused

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

# Ours: the maximum number of attention heads; fewer if it does not divide the width.
ATTENTION_HEADS = 8
# BERT's and CLIP's standard deviation of new vectors.
SPREAD = 0.02
CUE = "cue_"


def build(spec: Infused, serving: Serving) -> Built:
    """Return the model, not yet trained, with new infusion layers and head.

    A missing text is replaced by the empty text, a missing picture by a grey one. ``length`` counts the tokens of text
    and remarks. ``serving.cues`` has the remarks on every item of the data; the built model's ``prepare`` raises
    ``NoCues`` for any other.
    """
    cues = by_labeller(serving.cues, labeller=spec.rationales)
    with opened(spec.base, revision=spec.revision, seed=serving.seed, folder=serving.folder) as place:
        words, pixels = Words(place, base=spec.base, limit=spec.max_tokens), Pixels(place, base=spec.base)
        model = two_towers(place, base=spec.base)
        module = InfusedNetwork(model, blank={**words([""]), **pixels([None])}, labels=len(serving.task.labels))

    def remarks(example: Example) -> tuple[str, ...]:
        return cues.remarks(example.item) or ("",) * len(HEADS)

    def prepare(examples: Sequence[Example]) -> Batch:
        said = [remarks(example) for example in examples]
        tokens = words([remark for three in said for remark in three])
        return {
            **both(words, pixels)(examples),
            **{f"{CUE}{name}": flat.view(len(said), len(HEADS), -1) for name, flat in tokens.items()},
            f"{CUE}said": torch.tensor([[bool(remark) for remark in three] for three in said]),
        }

    def length(example: Example) -> int:
        return words.count(example.text) + sum(words.count(remark) for remark in remarks(example))

    return Built(module, prepare, length)


class InfusedNetwork(nn.Module):  # type: ignore[misc]
    """The network: text and picture features attend to the remarks on a meme before the classification head."""

    def __init__(self, model: Any, *, blank: Batch, labels: int) -> None:
        super().__init__()
        self.model = model
        with torch.no_grad():
            text, image = self._parts(**blank)
        wide = text.shape[-1]
        if image.shape[-1] != wide:
            raise unfit(model.name_or_path, "its text and picture features have different widths")
        self.kinds = nn.Parameter(torch.randn(len(HEADS), wide) * SPREAD)
        self.silence = nn.Parameter(torch.randn(1, wide) * SPREAD)
        self.attention = nn.MultiheadAttention(wide, gcd(wide, ATTENTION_HEADS), dropout=DROPOUT, batch_first=True)
        self.gate = nn.Linear(2 * wide, wide)
        self.norm = nn.LayerNorm(wide)
        self.head = two_layers(3 * wide, hidden=wide, labels=labels)

    def forward(self, *, cue_said: Any, **batch: Any) -> Any:
        """Return the logits, shape (examples, labels); ``cue_said`` (examples, 3) is false for missing remarks."""
        cues = {name.removeprefix(CUE): batch.pop(name) for name in list(batch) if name.startswith(CUE)}
        parts = torch.stack(self._parts(**batch), dim=1)
        remarks = self._text(**{name: each.flatten(0, 1) for name, each in cues.items()}).view(*cue_said.shape, -1)
        known = cue_said.unsqueeze(-1)
        mean = (remarks * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
        heard = self._heard(parts, remarks=remarks, said=cue_said)
        gate = torch.sigmoid(self.gate(torch.cat([parts, heard], dim=-1)))
        return self.head(torch.cat([self.norm(parts + gate * heard).flatten(1), mean], dim=-1))

    def gradient_checkpointing_enable(self) -> None:
        checkpointed(self.model)

    def _heard(self, parts: Any, *, remarks: Any, said: Any) -> Any:
        """Return each part's attention output over the remarks, (examples, 2, width)."""
        silence = self.silence.expand(len(remarks), 1, -1)
        keys = torch.cat([remarks + self.kinds, silence], dim=1)
        hidden = torch.cat([~said, said.new_zeros(len(said), 1)], dim=1)
        heard, _ = self.attention(parts, keys, keys, key_padding_mask=hidden, need_weights=False)
        return heard

    def _parts(self, *, pixel_values: Any, **words: Any) -> tuple[Any, Any]:
        return self._text(**words), scaled(self.model.get_image_features(pixel_values=pixel_values))

    def _text(self, **words: Any) -> Any:
        return scaled(self.model.get_text_features(**words))
