"""What counts as a word, said once, because deduplication, scoring and OCR must count alike.

NFKC, then casefold; every character that is not a letter, a mark or a digit separates words, and an apostrophe
(straight or typographic) separates unless it stands between two word characters. ``Don't-worry, "OK"`` has the words
``don't``, ``worry`` and ``ok``. Hyphens separate because OCR engines lose and invent them.
"""

from __future__ import annotations

import re
import unicodedata

APOSTROPHES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u00b4": "'", "`": "'", "\u2032": "'"})
ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
WORD = re.compile(r"[^\s']+(?:'[^\s']+)*")


def normalise(text: str) -> str:
    """Return ``text`` with single spaces and none at its ends, because OCR's line breaks mean nothing."""
    return " ".join(text.split())


def words(text: str) -> list[str]:
    """Return the casefolded words of ``text`` in their order; an empty list when it has none."""
    folded = unicodedata.normalize("NFKC", text.translate(APOSTROPHES)).casefold()
    if folded.isascii():
        return ASCII_WORD.findall(folded)
    kept = "".join(c if c == "'" or unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    return WORD.findall(kept)
