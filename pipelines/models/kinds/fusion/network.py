"""Build encoders of text and picture (FigSIM 5.1: CLIP, BLIP-2) with a classification head on their joint features."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, Blip2ForImageTextRetrieval

from pipelines.models import backbones
from pipelines.models.backbones import DROPOUT, both, scaled, two_layers, two_towers
from pipelines.models.kind import Serving
from pipelines.models.kinds.fusion import Fusion


def build(spec: Fusion, serving: Serving) -> backbones.Built:
    """Build a model of text and picture: a Q-Former for BLIP-2 base models, otherwise two separate encoders.

    A missing text is replaced by the empty text, a missing picture by a grey one. ``length`` counts tokens.
    """
    with backbones.opened(spec.base, revision=spec.revision, seed=serving.seed, folder=serving.folder) as place:
        words = backbones.Words(place, base=spec.base, limit=spec.max_tokens)
        pixels = backbones.Pixels(place, base=spec.base)
        family = backbones.had(AutoConfig, place, base=spec.base).model_type
        blank = {**words([""]), **pixels([None])}
        kind = QFormer if family == "blip-2" else SideBySide
        module = kind(place, base=spec.base, blank=blank, labels=len(serving.task.labels))

    return backbones.Built(
        module, both(words, pixels), lambda example: words.count(example.text), pixels.forget,
        recordable=kind is SideBySide and backbones.recordable(module.model),
    )  # fmt: skip


class SideBySide(nn.Module):  # type: ignore[misc]
    """CLIP and similar models: a head of two layers on concatenated text and picture features (FigSIM E.2).

    The paper gives no further details. Here, the projected features are used, each scaled to a mean square of one.
    Without scaling, the part with the larger numbers dominates the other; at CLIP's own length of one, numbers of about
    .04 would hardly move a new head at a rate of 2e-5. The hidden layer is there because a meme's meaning depends on
    the interaction of its two parts, which one layer on a concatenation cannot model.
    """

    def __init__(self, place: str, *, base: str, blank: backbones.Batch, labels: int) -> None:
        super().__init__()
        self.model = two_towers(place, base=base)
        with torch.no_grad():
            wide = self.features(**blank).shape[-1]
        self.head = two_layers(wide, hidden=wide // 2, labels=labels)

    def features(self, *, pixel_values: Any, **words: Any) -> Any:
        """Return the concatenated features, text first, shape (examples, width of text + width of picture)."""
        parts = self.model.get_text_features(**words), self.model.get_image_features(pixel_values=pixel_values)
        return torch.cat([scaled(part) for part in parts], dim=-1)

    def forward(self, **batch: Any) -> Any:
        return self.head(self.features(**batch))

    def gradient_checkpointing_enable(self) -> None:
        backbones.checkpointed(self.model)


class QFormer(nn.Module):  # type: ignore[misc]
    """BLIP-2 without its language model: the Q-Former processes the text together with the picture's features.

    The paper only names BLIP-2; the design is this project's. It follows BLIP-2's image-text matching: queries and
    words attend to one another, and the queries attend to the picture. One layer computes the labels from the mean of
    the queries' last states. The picture encoder is frozen, as in both stages of BLIP-2's own training. The language
    model, which has most of the weights, is not loaded. Therefore the base model must contain the text embeddings
    (``Salesforce/blip2-itm-vit-g``); a base model saved with a language model lacks them.
    """

    def __init__(self, place: str, *, base: str, blank: backbones.Batch, labels: int) -> None:
        super().__init__()
        whole = backbones.weights(Blip2ForImageTextRetrieval, place, base=base)
        self.vision, self.qformer, self.embeddings = whole.vision_model, whole.qformer, whole.embeddings
        self.queries = whole.query_tokens
        self.vision.requires_grad_(False)
        self.head = nn.Sequential(nn.Dropout(DROPOUT), nn.Linear(self.queries.shape[-1], labels))

    def whole(self, place: str, *, base: str) -> Any:
        """Return the library's model with the trained parts."""
        whole = backbones.weights(Blip2ForImageTextRetrieval, place, base=base)
        whole.vision_model, whole.qformer, whole.embeddings = self.vision, self.qformer, self.embeddings
        whole.query_tokens = self.queries
        return whole

    def train(self, mode: bool = True) -> QFormer:
        """Set training or evaluation mode for all parts except the frozen picture encoder."""
        super().train(mode)
        self.vision.eval()
        return self

    def forward(self, *, input_ids: Any, attention_mask: Any, pixel_values: Any, **_: Any) -> Any:
        """Return the logits, shape (examples, labels)."""
        with torch.no_grad():
            seen = self.vision(pixel_values=pixel_values).last_hidden_state
        queries = self.queries.expand(len(input_ids), -1, -1)
        count = queries.shape[1]
        states = self.qformer(
            query_embeds=self.embeddings(input_ids=input_ids, query_embeds=queries),
            query_length=count,
            attention_mask=torch.cat([attention_mask.new_ones(len(input_ids), count), attention_mask], dim=1),
            encoder_hidden_states=seen,
            encoder_attention_mask=attention_mask.new_ones(seen.shape[:-1]),
        ).last_hidden_state
        return self.head(states[:, :count].mean(dim=1))

    def gradient_checkpointing_enable(self) -> None:
        """Do nothing, because the frozen encoder stores no activations and the Q-Former is small."""
