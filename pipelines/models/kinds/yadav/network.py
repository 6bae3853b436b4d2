"""Build the depression-symptom model for memes of Yadav et al. 2023 (ACL 2023, long 495), for FigSIM's severity.

The paper is "Towards Identifying Fine-Grained Depression Symptoms from Memes" (pages 8890 to 8905). This model rests on
its abstract and not on its text, of which no copy could be read (2026-11-25): catalogues and a mirror of the anthology
have the abstract alone, and no repository of code by its authors was found. The report says so beside the figure
(``Yadav.note``). The abstract says that symptoms are detected from the words and the picture of a
meme together, and that orthogonal constraints on the textual and visual features make the model learn non-redundant and
decorrelated ones. FigSIM 5.1 adds only that it tried the model on severity. Ours, where these give no answer:

* Encoders: any BERT-like encoder and any picture encoder (params.yaml: BERT-base and ResNet-50), both fine-tuned. Their
  summary is the first token's last state, or the mean of the last map of a network without tokens; poolers are left
  out, as some checkpoints have none and a new one would only be another random layer.
* Both summaries pass through a layer of the text's width and a layer norm, so that neither dominates the other.
* Gates: each side is weighted by a sigmoid gate of both sides (the fusion is conditional), since in some memes the
  words carry the meaning and in others the picture.
* The constraint is hard and applies to each meme: the component of the picture's features along the text's is removed
  (one step of Gram-Schmidt), so the picture can add only what the words do not say. A penalty on their correlation
  would be the soft form; it needs a weight that no source states, and a separate loss in the loop.
* Head: two layers on the concatenation, because one layer cannot model the interaction of the two parts.
* Loss, weights and schedule are FigSIM's (its Table 9), not Yadav's: the table compares models, not recipes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from pipelines.models.backbones import Batch, Built, Pixels, Words, both, checkpointed, opened, two_layers, weights
from pipelines.models.kind import Serving
from pipelines.models.kinds.yadav import Yadav

# Keeps the projection finite if the text's features vanish; far below any square sum of a layer norm's output.
TINY = 1e-6


def build(spec: Yadav, serving: Serving) -> Built:
    """Return the model of Yadav et al. (2023), not yet trained, with new fusion layers and head.

    A missing text is replaced by the empty text, a missing picture by a grey one. ``length`` counts tokens.
    """
    given: dict[str, Any] = {"seed": serving.seed, "folder": serving.folder}
    with (
        opened(spec.text, revision=spec.text_revision, **given) as text,
        opened(spec.image, revision=spec.image_revision, **given) as image,
    ):
        words, pixels = Words(text, base=spec.text, limit=spec.max_tokens), Pixels(image, base=spec.image)
        sides = (
            weights(AutoModel, text, base=spec.text, fresh=pooling),
            weights(AutoModel, image, base=spec.image, fresh=pooling),
        )
        module = Orthogonal(*sides, blank={**words([""]), **pixels([None])}, labels=len(serving.task.labels))

    return Built(module, both(words, pixels), lambda example: words.count(example.text))


def pooling(_: Any, name: str) -> bool:
    """Return whether the weight ``name`` is a pooler's, which is removed and so may be missing in a checkpoint."""
    return "pooler." in name


class Orthogonal(nn.Module):  # type: ignore[misc]
    """The network of Yadav et al.: gated features of text and picture, the latter made orthogonal to the former."""

    def __init__(self, text: Any, image: Any, *, blank: Batch, labels: int) -> None:
        """``text`` and ``image`` are encoders of the library; ``blank`` is a batch of one, to learn their widths."""
        super().__init__()
        self.text, self.image = without_pooler(text), without_pooler(image)
        with torch.no_grad():
            of_text, of_image = (part.shape[-1] for part in self._summaries(**blank))
        self.of_text = nn.Sequential(nn.Linear(of_text, of_text), nn.LayerNorm(of_text))
        self.of_image = nn.Sequential(nn.Linear(of_image, of_text), nn.LayerNorm(of_text))
        self.gates = nn.Linear(2 * of_text, 2 * of_text)
        self.head = two_layers(2 * of_text, hidden=of_text, labels=labels)

    def features(self, **batch: Any) -> tuple[Any, Any]:
        """Return the features of text and of picture, each (examples, text width); they are orthogonal in every row."""
        of_text, of_image = self._summaries(**batch)
        both = torch.cat([self.of_text(of_text), self.of_image(of_image)], dim=-1)
        words, picture = (both * torch.sigmoid(self.gates(both))).chunk(2, dim=-1)
        return words, orthogonal(picture, to=words)

    def forward(self, **batch: Any) -> Any:
        return self.head(torch.cat(self.features(**batch), dim=-1))

    def gradient_checkpointing_enable(self) -> None:
        checkpointed(self.text)
        checkpointed(self.image)

    def _summaries(self, *, pixel_values: Any, **words: Any) -> tuple[Any, Any]:
        return summary(self.text(**words)), summary(self.image(pixel_values=pixel_values))


def orthogonal(features: Any, *, to: Any) -> Any:
    """Return ``features`` (examples, width) without their component along ``to``, for each row."""
    # in float32 even under autocast: a dot product in bf16 leaves a percent of the component in
    features, to = features.float(), to.float()
    share = (features * to).sum(dim=-1, keepdim=True) / (to.square().sum(dim=-1, keepdim=True) + TINY)
    return features - share * to


def summary(output: Any) -> Any:
    """Return an encoder's output as one vector per example: the first token's state, or the mean of a picture's map."""
    state = output.last_hidden_state
    return state[:, 0] if state.dim() == 3 else state.flatten(2).mean(dim=-1)


def without_pooler(encoder: Any) -> Any:
    """Return the encoder without its pooler if the pooler has weights, because these would not be trained."""
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None and any(True for _ in pooler.parameters()):
        encoder.pooler = None
    return encoder
