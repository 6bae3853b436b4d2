"""Which words are English: the ranked list that wordninja ships, for splitting glued words and for judging captions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import wordninja

# Ours: below this rank the list is everyday English; beyond it come names, slang and words of other languages.
COMMON = 20_000


@cache
def ranks() -> dict[str, int]:
    """Return rank by word, 0 the most frequent, for 126,000 lower-case words; loaded once."""
    return {word: rank for rank, word in enumerate(wordninja.DEFAULT_LANGUAGE_MODEL._wordcost)}


def rank(word: str) -> int | None:
    """Return the rank of a casefolded word, its possessive or apostrophes aside, or None for an unknown word."""
    known = ranks()
    forms = (word, word.removesuffix("'s"), word.replace("'", ""))
    return min((known[form] for form in forms if form in known), default=None)


def share_known(words: Sequence[str], *, below: int) -> float:
    """Return the share of the letters of ``words`` that stand in words ranked under ``below``; 0.0 without words."""
    total = sum(len(word) for word in words)
    known = sum(len(word) for word in words if (place := rank(word)) is not None and place < below)
    return known / total if total else 0.0
