"""Words that an engine glued together are split again: it halves RapidOCR's error (SPEC.md 2.6: WER .037 to .017)."""

from __future__ import annotations

import re

import wordninja

from pipelines.extract.vocabulary import rank

# A split is believed only when its pieces look like English: two and a half letters each on average, and no piece of
# one or two letters but these. Words of other languages, which would fall into crumbs, stay whole for the gate.
MEAN_LETTERS = 2.5
SMALL = re.compile("a|i|am|an|as|at|be|by|do|go|he|if|in|is|it|me|my|no|of|oh|ok|on|or|so|to|up|us|we", re.IGNORECASE)
# "overthinking" is no glue: a prefix before a known word with a verb's ending is a new word, not two.
COMPOUND = re.compile(r"(?:over|under|out|un|re|mis|non|pre|self|anti|super) \w+(?:ing|ed|ers?)", re.IGNORECASE)
RUN = re.compile(r"[A-Za-z']+")
# Handles, addresses and names stay whole, or the scrubber would not know them any more.
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
    """Return ``text`` with every unknown run of at least ``letters`` letters split into known words where it can be.

    A token with a digit, a letter beyond ASCII, or a sign of a handle or an address is left alone.
    """
    return " ".join(
        token if KEEP.search(token) else RUN.sub(lambda match: _split_run(match[0], letters=letters), token)
        for token in text.split()
    )
