"""Build M3H (Mazhar et al. 2025, WWW; arXiv 2501.15321) as its authors built it, for FigSIM's severity.

The source is the authors' repository, flamenlp/M3H at commit f9d104d, folder ``WWW/proposed``: the notebooks
``get_embeddings``, ``get_top_k`` and ``main`` and the module ``filter``. Cells are counted from 0, Markdown cells too.
Of the paper, only the abstract and the beginning of the introduction could be read. FigSIM 5.1 says no more than that
it evaluated M3H. What is decided here, and where it is from:

* Input: text alone. The picture reaches the model through the explanation (main, 16: the prompt has no picture).
* Explanation: sections on cause and effect, figurative understanding and mental state, in this order, each after its
  title; sections that are lacking are left out (main, 12). The stage ``rationales`` generates them; the prompt that the
  authors gave to GPT-4o is not in the repository, so wording and length are ours. A meme that the labeller refused has
  none; the authors dropped such memes (main, 7), which would leave test items without an answer: here only its place in
  the prompt stays empty, and it is shown to no other meme.
* Words of the picture: the first 75 (main, 11 and 16).
* Similar memes: the texts and the explanations are embedded by BAAI/bge-m3, which replaces all-mpnet-base-v2 in the
  same cell (get_embeddings, 8 to 12); both embeddings are concatenated (get_top_k, 10) and compared by cosine with
  those of train (get_top_k, 13; ``filter.get_filter_variable``). Three are found (get_top_k, 16 and 18), and the prompt
  has the first (main, 16: one shot).
* A meme of train must not find itself. The authors drop the first of four, without a check that it is the meme itself
  (get_top_k, 16); here near-duplicates, memes of the same author and the meme are excluded (``Similar``).
* Order of the prompt: task with the names of the labels; the similar meme with words, explanation and label; the meme
  with words and explanation, and an open line for its label (main, 16). The wording is ours.
* Length: 1,024 tokens, cut at the end (main, 16 and 25: ``truncation`` with 1,024).
* Model: MentalBART with the library's classification head on the last state of the decoder's end token (main, 21:
  ``AutoModelForSequenceClassification``).
* Open weights: layers 10 and 11 of 12 of encoder and decoder. Embeddings, norms outside the layers and the head are
  open too, as the authors freeze nothing but layers by number (main, 21).
* Training: Adam at a constant 5e-5, 10 epochs, batches of 32, cross-entropy without class weights, no clipping (main,
  25). The entry says so; what it leaves out is FigSIM's Table 9 with class weights (FigSIM 5.1 and E.2 state them for
  all supervised models, without naming M3H).
* Selection: the epoch with the best macro-F1 (main, 25). The authors compare epochs on test; here it is validation, as
  in FigSIM E.2.

Prompts hold words and labels of other memes: they exist in memory only, and a later run makes them from the memes that
are left after a takedown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TRAIN, Example, Item, only
from pipelines.datasets.features import HEADS, Remarks, by_labeller
from pipelines.models.backbones import Built, Headed, Words, opened, unfit, weights
from pipelines.models.kind import Serving
from pipelines.models.kinds.m3h import M3h

Floats = npt.NDArray[np.float64]
Embed = Callable[[str], Floats]

# The maximum of BAAI/bge-m3 (its sentence_bert_config.json); no caption is as long.
MOST_TOKENS = 8192
# Ours: decimals of a cosine; further ones depend on the machine, and the order of equally similar memes must not.
DECIMALS = 6


@dataclass(frozen=True)
class Similar:
    """The memes of train with an explanation, and the embeddings by which all memes are compared.

    Never found are the meme itself, or an image of its record or of its group (near-duplicates, one author): their
    labels would give the answer away. Each text is embedded alone, because the shape of a batch changes the last bits
    of an embedding. Embeddings are content, from which much of a text can be reconstructed: they are never stored.

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


TITLES = dict(zip(HEADS, ("cause and effect", "figurative understanding", "mental state"), strict=True))


def build(spec: M3h, serving: Serving) -> Built:
    """Return the M3H model, not yet trained, with a new head.

    Prompts have memes of ``serving.train`` with their labels as examples; ``prepare`` takes these memes and
    ``serving.others``, on all of which ``serving.cues`` has the remarks.
    """
    train, others, seed, folder = serving.train, serving.others, serving.seed, serving.folder
    cues = by_labeller(serving.cues, labeller=spec.rationales)
    said = {e.item: explanation(cues.remarks(e.item)) for e in (*only(train, splits={TRAIN}), *others)}
    embed = embedder(spec.embedder, revision=spec.embedder_revision, seed=seed, folder=folder)
    similar = Similar.of(train, others=others, said=said, embed=embed)
    with opened(spec.text, revision=spec.text_revision, seed=seed, folder=folder) as place:
        words = Words(place, base=spec.text, limit=spec.max_tokens)
        module = Headed(AutoModelForSequenceClassification, place, base=spec.text, labels=len(serving.task.labels))
    module.model.config.use_cache = False
    freeze(module.model, base=spec.text, open_layers=spec.open_layers)
    prompts = {
        example.item: words.without_special(prompt(example, similar=similar, said=said, task=serving.task, spec=spec))
        for example in (*train, *others)
    }
    lengths = {item: words.count(text) for item, text in prompts.items()}
    return Built(
        module,
        lambda examples: words([prompts[example.item] for example in examples]),
        lambda example: lengths[example.item],
        inputs=digest(prompts),
    )


def prompt(example: Example, *, similar: Similar, said: Mapping[Item, str | None], task: Task, spec: M3h) -> str:
    """Return the text that the model reads for one meme: the task, similar memes of train with labels, and the meme."""
    shown = [
        f"Labelled meme {number}\n{_meme(neighbour, said=said, words=spec.words)}{_label(neighbour, task=task)}\n"
        for number, neighbour in enumerate(similar.to(example, count=spec.examples), start=1)
    ]
    names = "; ".join(task.labels)
    asked = f"Meme to label\n{_meme(example, said=said, words=spec.words)}"
    return "\n".join([f"Choose the one label that fits what a meme says, out of: {names}.\n", *shown, asked])


def explanation(remarks: Remarks | None) -> str | None:
    """Return a meme's remarks as one text, each after its title, or ``None`` without any."""
    if remarks is None:
        return None
    lines = [f"{title}: {remark}" for title, remark in zip(TITLES.values(), remarks, strict=True) if remark]
    return "\n".join(lines) or None


def freeze(model: Any, *, base: str, open_layers: int) -> None:
    """Freeze all numbered layers of a model's encoder and decoder except the last ``open_layers`` of each."""
    for side in ("encoder", "decoder"):
        layers = getattr(getattr(model.base_model, side, None), "layers", None)
        if layers is None:
            raise unfit(base, f"it has no numbered layers of its {side}")
        if len(layers) < open_layers:
            raise unfit(base, f"its {side} has {len(layers)} layers, and open_layers is {open_layers}")
        for layer in layers[: len(layers) - open_layers]:
            layer.requires_grad_(False)


def digest(prompts: Mapping[Item, str]) -> str:
    """Return a digest of all prompts, by which a killed run recognises that its input is unchanged."""
    return hashlib.sha256(json.dumps(sorted(prompts.items())).encode()).hexdigest()


def _meme(example: Example, *, said: Mapping[Item, str | None], words: int) -> str:
    text = " ".join(example.text.split()[:words])
    return f"Words: {text}\nExplanation:\n{said[example.item] or ''}\nLabel: "


def _label(example: Example, *, task: Task) -> str:
    return ", ".join(label for label in task.labels if label in (example.labels or ()))
