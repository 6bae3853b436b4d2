"""Compute the features of an item's text: its length, and the share of its words in the categories of lexicons."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipelines.analysis.lexicons import Opened
from pipelines.extract.words import words

LENGTH = ("words", "words_per_sentence", "letters_per_word")
# a line break ends a sentence: captions and titles have no full stop
SENTENCE = re.compile(r"[.!?…]+|\n+")


def of(texts: Sequence[str | None], *, lexicons: Sequence[Opened]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return block -> feature -> values of the items, NaN where an item has no words.

    The block ``text`` has the number of words, which is 0 without words, words per sentence and letters per word; each
    lexicon is a block of percentages by category. A lexicon that could not be read has no block.
    """
    split = [words(text) if text else [] for text in texts]
    lengths = [_length(text or "", found) for text, found in zip(texts, split, strict=True)]
    blocks = {"text": _columns(LENGTH, lengths)}
    for opened in lexicons:
        if lexicon := opened.lexicon:
            rows = [lexicon.shares(found) if found else None for found in split]
            blocks[opened.name] = _columns(lexicon.categories, rows)
    return blocks


def _length(text: str, found: Sequence[str]) -> list[float]:
    sentences = sum(bool(words(part)) for part in SENTENCE.split(text))
    letters = sum(map(len, found))
    many = len(found)
    return [many, many / sentences if sentences else np.nan, letters / many if many else np.nan]


def _columns(names: Sequence[str], rows: Sequence[Sequence[float] | None]) -> dict[str, NDArray[np.float64]]:
    table = np.array([[np.nan] * len(names) if row is None else row for row in rows], float).reshape(-1, len(names))
    return {name: table[:, i] for i, name in enumerate(names)}
