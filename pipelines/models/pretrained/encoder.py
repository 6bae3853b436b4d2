"""Load a saved text encoder with a classification head and tokenize its input, without training code.

This module is separate from ``train/classifiers/encoder_training.py``, so that registered models load without training
dependencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipelines.models.pretrained.backbones import BaseUnfit, Batch, Built, Headed, had
from pipelines.models.pretrained.backbones import weights as weights_of

# Ours: posts whose tokens are cached, in memory only; more than CRADLE's train has.
READY = 8192


class EncoderWords:
    """Tokenises posts with padding; the middle of a long post is removed, because its end describes the present."""

    def __init__(self, place: str, *, base: str, limit: int | None) -> None:
        """Load the tokenizer; it truncates at ``limit`` or the base's maximum."""
        self.tokens = had(AutoTokenizer, place, base=base)
        if not self.tokens.is_fast:
            raise BaseUnfit(base=base, detail="its tokenizer does not return token positions in the text")
        if self.tokens.pad_token is None:
            self.tokens.pad_token = self.tokens.eos_token
        self.limit = min(limit or self.tokens.model_max_length, self.tokens.model_max_length)
        self.tokens.model_max_length = self.limit
        self._alone = Lock()  # batches are prepared in threads, and the tokenizer stores its settings in itself
        self._known = lru_cache(maxsize=READY)(self._read)

    def __call__(self, texts: Sequence[str]) -> Batch:
        """Return ``input_ids`` and ``attention_mask``, int64 (texts, tokens)."""
        return self.padded([self._known(text)[0] for text in texts])

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, without the middle of a long one; one call for all, without the cache."""
        with self._alone:
            found = self.tokens(list(texts), verbose=False)["input_ids"] if texts else []
        return [ids if len(ids) <= self.limit else self._read(text)[0] for ids, text in zip(found, texts, strict=True)]

    def padded(self, rows: Sequence[list[int]]) -> Batch:
        """Return the tensors of a batch of tokenised texts, padded to the longest."""
        with self._alone:
            return dict(self.tokens.pad({"input_ids": list(rows)}, padding=True, return_tensors="pt"))

    def count(self, text: str) -> int:
        """Count the tokens of one text after the middle of a long text was removed."""
        return len(self._known(text)[0])

    def cuts(self, text: str) -> bool:
        """Return whether a text is so long that its middle is removed."""
        return self._known(text)[1]

    def _read(self, text: str) -> tuple[list[int], bool]:
        """Return a text's tokens, special ones included, and whether its middle was cut."""
        with self._alone:
            found = self.tokens(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            places, room = found["offset_mapping"], max(1, self.limit - self.tokens.num_special_tokens_to_add())
            cut = len(places) > room
            if cut:
                head = room // 2
                text = f"{text[: places[head][0]].rstrip()} {text[places[head - room][0] :]}"
            return self.tokens(text, truncation=True, max_length=self.limit)["input_ids"], cut


class SavedEncoder(Headed):
    """A fine-tuned text encoder, loaded from its saved weights; a missing weight, such as the head's, is an error."""

    def __init__(self, place: str, *, base: str) -> None:
        torch.nn.Module.__init__(self)
        self.model = weights_of(AutoModelForSequenceClassification, place, base=base)


def built(module: Headed, *, words: EncoderWords) -> Built:
    """Return the :class:`Built` classifier of a torch module and its tokenizer; an example's length is its tokens."""
    return Built(module, lambda some: words([e.text for e in some]), lambda example: words.count(example.text))
