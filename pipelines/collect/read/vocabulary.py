"""Look up English words in wordninja's ranked list, split words that an OCR engine glued together, and remove accents.

Splitting halves RapidOCR's error (SPEC.md 2.6: WER .037 to .017).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

import wordninja

from pipelines.collect.read.words import words

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
    """Split runs of at least ``letters`` letters into vocabulary words, if possible.

    A token with a digit, a letter outside ASCII, or a sign of a handle or an address stays unchanged.
    """
    return " ".join(
        token if KEEP.search(token) else RUN.sub(lambda match: _split_run(match[0], letters=letters), token)
        for token in text.split()
    )


# Two glued words are split if one is of these and the other everyday English:
# ranked below EVERYDAY. A token ranked below ONE_WORD is a word; the list has many glued ones above it ("ofthe").
FUNCTION = frozenset(words("a i the to in of on at is it my me and for so we be as by or if no you up an he do out"))
EVERYDAY, ONE_WORD = 8_000, 40_000
# "AT4:59": such a word before a number; "b4" and "mp3" stay whole.
BEFORE_NUMBER = re.compile(r"(?<![^\W_])(at|to|in|for|is|the|and|of|on|by|until)(?=\d+(?!\w))", re.IGNORECASE)
# The recogniser reads noise around a letter as an accent. Words that English has with one keep it.
LOANWORDS = frozenset(words("café cafés cliché clichés déjà fiancé fiancée jalapeño naïve piñata résumé señor touché"))
STROKES = str.maketrans("ħłđøıĦŁĐØ", "hldoiHLDO")
# Ours: share of the letters in common words from which on a text is English.
ENGLISH = 0.6


def repaired(text: str) -> str:
    """Split pairs of short words and remove made-up accents, if most of the text is common English words."""
    if share_known(words(text), below=COMMON) < ENGLISH:
        return text
    tokens = BEFORE_NUMBER.sub(r"\1 ", text).split()
    return " ".join(
        _without_accents(token)
        if not token.isascii()
        else token
        if KEEP.search(token)
        else RUN.sub(_split_in_two, token)
        for token in tokens
    )


def _split_in_two(match: re.Match[str]) -> str:
    run = match[0]
    low, place = run.lower(), rank(run.lower())
    if len(run) < 3 or (place is not None and place < ONE_WORD) or "'" in run:
        return run
    named = run[0].isupper() and not run.isupper()
    cuts = (1,) if named and low[0] == "i" else () if named else range(1, len(run))
    pairs = [(low[:cut], low[cut:]) for cut in cuts]
    sound = [
        pair
        for pair in pairs
        if FUNCTION.issuperset(pair)
        or (not FUNCTION.isdisjoint(pair) and all(map(_everyday, pair)) and ("a" not in pair or len(run) > 4))
    ]
    if not sound:
        return run
    cut = len(min(sound, key=lambda pair: sum(rank(word) or 0 for word in pair))[0])
    return f"{run[:cut]} {run[cut:]}"


def _everyday(word: str) -> bool:
    place = rank(word)
    return word in FUNCTION or (len(word) > 2 and place is not None and place < EVERYDAY)


def _without_accents(token: str) -> str:
    bare = "".join(c for c in unicodedata.normalize("NFKD", token.translate(STROKES)) if c.isascii())
    places = [rank(word) for word in words(bare)]
    common = bool(places) and all(place is not None and place < COMMON for place in places)
    return bare if common and not LOANWORDS.intersection(words(token)) else token
