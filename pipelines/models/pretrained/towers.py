"""Parts of classifiers that read text and picture: the input of both, encoders with two towers, and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import AutoModel

from pipelines.models.pretrained import backbones

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

# Ours: the dropout of BERT's head.
DROPOUT = 0.1


def both(words: backbones.Words, pixels: backbones.Pixels) -> Callable[[Sequence[Example]], backbones.Batch]:
    """Return a function that converts examples to a model's input: the tensors of their texts and of their pictures."""
    return lambda examples: {**words([e.text for e in examples]), **pixels([e.image for e in examples])}


def two_towers(place: str, *, base: str) -> Any:
    """Load a base model that encodes text and picture separately (two towers)."""
    model = backbones.weights(AutoModel, place, base=base)
    if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
        raise backbones.unfit(base, "it does not encode text and pictures separately")
    return model


def scaled(features: Any) -> Any:
    """Return the projected features of one encoder, scaled to a mean square of 1."""
    pooled = getattr(features, "pooler_output", features)
    return nn.functional.rms_norm(pooled, pooled.shape[-1:])


def two_layers(wide: int, *, hidden: int, labels: int) -> Any:
    """Create a classification head of two layers, because one cannot model the interaction of text and picture."""
    return nn.Sequential(
        nn.Dropout(DROPOUT), nn.Linear(wide, hidden), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(hidden, labels)
    )
