"""Find, for each meme, the labelled memes of train that are most similar by sentence embedding, without leaks.

Only memes of train are found, never the meme itself, nor an image of its record or of its group (near-duplicates, one
author): their labels would give the answer away. Each text is embedded alone, because the shape of a batch changes the
last bits of an embedding, and what is found for a meme of train must not depend on validation or test. Embeddings are
content, from which much of a text can be reconstructed: they are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel

from pipelines.datasets.example import TRAIN, Example, Item, only
from pipelines.models.pretrained.backbones import Words, opened, weights

Floats = npt.NDArray[np.float64]
Embed = Callable[[str], Floats]

# The maximum of BAAI/bge-m3 (its sentence_bert_config.json); no caption is as long.
MOST_TOKENS = 8192
# Ours: decimals of a cosine; further ones depend on the machine, and the order of equally similar memes must not.
DECIMALS = 6


@dataclass(frozen=True)
class Similar:
    """The memes of train with an explanation, and the embeddings by which all memes are compared.

    Args:
        among: the memes that can be found, sorted by item.
        vectors: item -> the embedding of its text and explanation, a unit vector, of these and of all other memes.
    """

    among: tuple[Example, ...]
    vectors: Mapping[Item, Floats]

    @classmethod
    def of(
        cls, train: Sequence[Example], *, others: Sequence[Example], said: Mapping[Item, str | None], embed: Embed
    ) -> Similar:
        """Embed memes; those of train can be found if they have an explanation.

        Args:
            train: memes of train alone.
            others: memes of any split for which similar ones are wanted.
            said: item -> the meme's explanation, or ``None``.
            embed: returns the sentence embedding of a text, a unit vector.
        """
        only(train, splits={TRAIN})
        among = tuple(sorted((e for e in train if said[e.item] is not None), key=lambda e: e.item))
        return cls(among, {e.item: _joint(e.text, said[e.item], embed=embed) for e in (*train, *others)})

    def to(self, example: Example, *, count: int) -> tuple[Example, ...]:
        """Return the memes of train most similar to ``example``, the most similar first, at most ``count``."""
        own = self.vectors[example.item]
        apart = [e for e in self.among if e.item[0] != example.item[0] and e.group != example.group]
        near = {e.item: round(float(self.vectors[e.item] @ own), DECIMALS) for e in apart}
        return tuple(sorted(apart, key=lambda e: (-near[e.item], e.item))[:count])


def _joint(text: str, said: str | None, *, embed: Embed) -> Floats:
    """Return the embeddings of a text and its explanation as one unit vector; a missing explanation counts as 0."""
    parts = [embed(text), np.zeros_like(embed("")) if said is None else embed(said)]
    joint = np.concatenate(parts)
    return np.asarray(joint / max(float(np.linalg.norm(joint)), 1e-12))


def embedder(base: str, *, revision: str | None, seed: int, folder: Path) -> Embed:
    """Return a function that computes the sentence embedding of a text: the first token's last state, of length 1.

    This is what BAAI/bge-m3 is made for (its ``1_Pooling/config.json`` and ``modules.json``). The model runs in float32
    on a GPU if there is one; it is freed with the returned function.
    """
    with opened(base, revision=revision, seed=seed, folder=folder) as place:
        words = Words(place, base=base, limit=MOST_TOKENS)
        model = weights(AutoModel, place, base=base, fresh=lambda _, name: "pooler." in name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).eval()

    def embed(text: str) -> Floats:
        with torch.inference_mode():
            state = model(**{name: tensor.to(device) for name, tensor in words([text]).items()}).last_hidden_state
        vector = state[0, 0].double().cpu().numpy()
        return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12))

    return embed
