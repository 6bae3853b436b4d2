"""Look up English words in wordninja's ranked list, to split glued words and to detect English captions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import wordninja

# Ours: below this rank the list holds everyday English; above it, also names, slang and words of other languages.
COMMON = 20_000


@cache
def ranks() -> dict[str, int]:
    """Return the frequency rank of each of 126,000 lower-case words (0 is the most frequent); loaded only once."""
    return {word: rank for rank, word in enumerate(wordninja.DEFAULT_LANGUAGE_MODEL._wordcost)}


def rank(word: str) -> int | None:
    """Return the rank of a word, ignoring case, possessives and apostrophes, or ``None`` if it is unknown."""
    known = ranks()
    if "'" not in word:
        return known.get(word)
    forms = (word, word.removesuffix("'s"), word.replace("'", ""))
    return min((known[form] for form in forms if form in known), default=None)


def share_known(words: Sequence[str], *, below: int) -> float:
    """Return the share of letters that belong to words ranked below ``below``, or 0.0 without words."""
    total = sum(map(len, words))
    known = sum([len(word) for word in words if (place := rank(word)) is not None and place < below])
    return known / total if total else 0.0
