"""Split text into words, in one place, because deduplication, scoring and OCR must count in the same way.

Text is normalised with NFKC and casefolded. Every character that is not a letter, a mark or a digit separates words; an
apostrophe (straight or typographic) separates unless it is between two word characters. ``Don't-worry, "OK"`` has the
words ``don't``, ``worry`` and ``ok``. Hyphens separate because OCR engines drop and add them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

APOSTROPHES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u00b4": "'", "`": "'", "\u2032": "'"})
ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
WORD = re.compile(r"[^\s']+(?:'[^\s']+)*")


def normalise(text: str) -> str:
    """Replace all white space in ``text`` by single spaces, because line breaks of OCR carry no meaning."""
    return " ".join(text.split())


def words(text: str) -> list[str]:
    """Return the casefolded words of ``text`` in order."""
    folded = unicodedata.normalize("NFKC", text.translate(APOSTROPHES)).casefold()
    if folded.isascii():
        return ASCII_WORD.findall(folded)
    kept = "".join(c if c == "'" or unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    return WORD.findall(kept)


@cache
def is_latin(letter: str) -> bool:
    """Return whether a letter is in the Latin script."""
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))


def mostly_latin(text: str) -> bool:
    """Return whether at least half of the letters are in the Latin script, also if there are none."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(map(is_latin, letters)) >= len(letters)
