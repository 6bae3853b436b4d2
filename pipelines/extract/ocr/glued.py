"""Split words that an OCR engine glued together, which halves RapidOCR's error (SPEC.md 2.6: WER .037 to .017)."""

from __future__ import annotations

import re

import wordninja

from pipelines.extract.vocabulary import rank

# A split is accepted only if its pieces look like English: two and a half letters each on average, and no other piece
# of one or two letters than these. Words of other languages, which would fall apart, stay whole for the language gate.
MEAN_LETTERS = 2.5
SMALL = re.compile("a|i|am|an|as|at|be|by|do|go|he|if|in|is|it|me|my|no|of|oh|ok|on|or|so|to|up|us|we", re.IGNORECASE)
# "overthinking" is not glued: a prefix and a known word with a verb ending form one word, not two.
COMPOUND = re.compile(r"(?:over|under|out|un|re|mis|non|pre|self|anti|super) \w+(?:ing|ed|ers?)", re.IGNORECASE)
RUN = re.compile(r"[A-Za-z']+")
# Handles, addresses and names stay whole, or the scrubber would not recognise them.
KEEP = re.compile(r"[@/_#\\0-9]|\w\.\w|[^\W\d_a-zA-Z]")


def _split_run(run: str, *, letters: int) -> str:
    bare = run.strip("'")
    if len(bare) < letters or rank(bare.lower()) is not None:
        return run
    pieces = wordninja.split(run)
    split = " ".join(pieces)
    sound = all(len(piece) > 2 or SMALL.fullmatch(piece) for piece in pieces)
    believed = sound and len(run) >= MEAN_LETTERS * len(pieces) and "".join(pieces) == run
    return split if believed and not COMPOUND.fullmatch(split) else run


def split_glued(text: str, *, letters: int) -> str:
    """Split every run of at least ``letters`` letters that is not a vocabulary word into vocabulary words, if possible.

    A token with a digit, a letter outside ASCII, or a sign of a handle or an address stays unchanged.
    """
    return " ".join(
        token if KEEP.search(token) else RUN.sub(lambda match: _split_run(match[0], letters=letters), token)
        for token in text.split()
    )
