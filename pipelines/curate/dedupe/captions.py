"""Count the words in which two OCR captions differ, apart from OCR errors.

FigSIM (3.1) removes pictures that match and differ in fewer than three words. OCR glues, splits and misreads words, so
a plain word-level edit distance would miss many duplicates. Here words are aligned with the smallest number of words
replaced, added or missing; a word equals another if a misreading can explain the difference, and a run of up to three
words equals another that is the same without spaces. On text without OCR errors, the rule is exactly the paper's: a
word of the common vocabulary is never treated as a misreading of another such word.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.collect.read.vocabulary import ranks
from pipelines.collect.read.words import words
from pipelines.curate.kernels import compiled

Ints = npt.NDArray[np.int64]

# Ours: glyphs that look alike in the fonts of memes and that the OCR engines confuse.
LOOKALIKES = str.maketrans({"0": "o", "1": "i", "l": "i", "5": "s"})
# Ours: above this rank the list of known words holds more misspellings than words. Its entries of two letters are
# mostly abbreviations, so the actual words are listed here.
VOCABULARY = 50_000
SHORT = words("a i ah am an as at be by do go he hi if in is it me my no of oh ok on or so to up us we")
# The longest run of words compared without spaces; the OCR step has split longer ones.
RUN = 3
# Ours: a misreading changes at most one in four letters of a word, and at most two in total.
FORGIVEN, MOST_FORGIVEN = 4, 2


def caption_words(text: str) -> list[str]:
    """Return the words of a caption for comparison, without apostrophes, which OCR often drops."""
    return [word.replace("'", "") for word in words(text)]


class Captions:
    """Captions to compare in millions of pairs, in memory only; ``counts`` has the words of each, (n,) int64."""

    def __init__(self, texts: Iterable[str]) -> None:
        captions = [caption_words(text) for text in texts]
        number: dict[str, int] = {}
        flat = [number.setdefault(word, len(number)) for word in chain.from_iterable(captions)]
        self.counts: Ints = np.array([len(caption) for caption in captions], dtype=np.int64)
        self._texts = _CaptionTexts(
            begins=_begins(self.counts),
            words=np.array(flat, dtype=np.int32),
            known=np.array([word in _vocabulary() for word in number], dtype=np.bool_),
            spans=_begins(map(len, chain.from_iterable(captions))),
            letters=_letters(chain.from_iterable(captions)),
            folded_spans=_begins(len(_fold(word)) for word in number),
            folded=_letters(map(_fold, number)),
        )
        order = np.lexsort((self._texts.words, np.repeat(np.arange(len(captions)), self.counts)))
        self._sorted = self._texts.words[order]

    def differences(self, left: npt.ArrayLike, right: npt.ArrayLike, *, limit: int) -> Ints:
        """Count the words that differ between the captions of each pair, up to ``limit``; a microsecond a pair."""
        one, other = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
        result = np.empty(len(one), dtype=np.int64)
        longest = int(self.counts.max(initial=0)) + 1
        _differences(self._texts, (one, other), limit, np.empty((RUN + 1, longest), np.int32), result)
        return result

    def unordered_differences(self, left: npt.ArrayLike, right: npt.ArrayLike) -> Ints:
        """Count the words of the longer caption that the other lacks, in any order, as OCR reads tilted lines."""
        one, other = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
        common = np.empty(len(one), dtype=np.int64)
        common_counts(self._texts.begins, self._sorted, (one, other), common)
        return np.maximum(self.counts[one], self.counts[other]) - common

    def rare_words(self, items: npt.ArrayLike, *, most: int) -> tuple[Ints, Ints]:
        """Return (item, word) pairs with the ``most`` rarest words of each item that also occur in another item.

        ``items`` are the captions of the items. Two items that share all but ``k`` of their repeated words share one of
        the ``k + 1`` rarest of each (prefix filter; Chaudhuri, Ganti and Kaushik 2006). The pairs of items that share a
        word here therefore include every relevant pair, and common words propose no pairs.
        """
        captions = np.asarray(items, dtype=np.int64)
        item = np.repeat(np.arange(len(captions)), self.counts[captions])
        word = self._texts.words[self._texts.begins[captions][item] + _ranks(item)].astype(np.int64)
        item, word = np.divmod(np.unique(item * len(self._texts.known) + word), max(1, len(self._texts.known)))
        frequency = np.bincount(word, minlength=1)[word]
        order = np.lexsort((word, frequency, item))
        order = order[frequency[order] > 1]
        rarest = _ranks(item[order]) < most
        return item[order][rarest], word[order][rarest]


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset(SHORT).union(word for word, rank in ranks().items() if rank < VOCABULARY and len(word) > 2)


def _fold(word: str) -> str:
    return word.translate(LOOKALIKES).replace("rn", "m").replace("vv", "w")


def _begins(sizes: Iterable[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.fromiter(sizes, dtype=np.int64))])


def _letters(words: Iterable[str]) -> npt.NDArray[np.uint32]:
    return np.frombuffer("".join(words).encode("utf-32-le"), dtype=np.uint32)


def _ranks(sorted_groups: Ints) -> Ints:
    _, first, sizes = np.unique(sorted_groups, return_index=True, return_counts=True)
    numbers: Ints = np.arange(len(sorted_groups)) - np.repeat(first, sizes)
    return numbers


class _CaptionTexts(NamedTuple):
    """All captions concatenated: the number of the word at each place, and the letters of each place and word."""

    begins: Any  # place of the first word of each caption
    words: Any  # number of the word at each place
    known: Any  # of each word: whether it is in the common vocabulary
    spans: Any  # start of the letters of each place
    letters: Any
    folded_spans: Any  # start of the letters of each word, with look-alikes folded
    folded: Any


@compiled
def _equal(letters: Any, i: int, j: int, length: int) -> bool:
    same = 0
    while same < length and letters[i + same] == letters[j + same]:
        same += 1
    return same == length


@compiled
def _letters_apart(letters: Any, one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return the Levenshtein distance of two spans."""
    row = np.arange(other[1] - other[0] + 1)
    for i in range(one[0], one[1]):
        corner, row[0] = row[0], row[0] + 1
        for j in range(1, len(row)):
            best = min(row[j], row[j - 1]) + 1
            best = min(best, corner + (letters[i] != letters[other[0] + j - 1]))
            corner, row[j] = row[j], best
    return int(row[-1])


@compiled
def _same_word(texts: _CaptionTexts, a: int, b: int) -> bool:
    """Return whether a misreading can explain the difference; two known words are always different."""
    if a == b:
        return True
    if texts.known[a] and texts.known[b]:
        return False
    one = texts.folded_spans[a], texts.folded_spans[a + 1]
    other = texts.folded_spans[b], texts.folded_spans[b + 1]
    length, other_length = one[1] - one[0], other[1] - other[0]
    allowed = min(MOST_FORGIVEN, min(length, other_length) // FORGIVEN)
    if abs(length - other_length) > allowed:
        return False
    if allowed == 0:
        return bool(_equal(texts.folded, one[0], other[0], length))
    return bool(_letters_apart(texts.folded, one, other) <= allowed)


@compiled
def _same_run(texts: _CaptionTexts, i: int, p: int, j: int, q: int) -> bool:
    """Return whether ``p`` words from place ``i`` equal, without spaces, the ``q`` words from place ``j``."""
    length = texts.spans[i + p] - texts.spans[i]
    if length != texts.spans[j + q] - texts.spans[j]:
        return False
    return bool(_equal(texts.letters, texts.spans[i], texts.spans[j], length))


@compiled
def _step(texts: _CaptionTexts, at: tuple[int, int], ends: tuple[int, int], j: int, ahead: Any) -> None:
    """Propagate the cost at ``ahead[0][j]`` to the cells that one edit, one equal word or one equal run leads to."""
    (x, y), here = at, ahead[0][j]
    rows, columns = ends[0] - x, ends[1] - y
    if rows > 0:
        ahead[1][j] = min(ahead[1][j], here + 1)
    if columns > 0:
        ahead[0][j + 1] = min(ahead[0][j + 1], here + 1)
    if rows > 0 and columns > 0:
        differs = 0 if _same_word(texts, texts.words[x], texts.words[y]) else 1
        ahead[1][j + 1] = min(ahead[1][j + 1], here + differs)
        if texts.letters[texts.spans[x]] == texts.letters[texts.spans[y]]:
            for p in range(1, min(RUN, rows) + 1):
                for q in range(1, min(RUN, columns) + 1):
                    if here < ahead[p][j + q] and _same_run(texts, x, p, y, q):
                        ahead[p][j + q] = here


@compiled
def _difference(texts: _CaptionTexts, one: tuple[int, int], other: tuple[int, int], limit: int, cost: Any) -> int:
    """Return the word difference of two spans of places; ``cost`` is a buffer of ``RUN + 1`` rows, used in turn."""
    columns = other[1] - other[0] + 1
    ahead = (cost[0], cost[1], cost[2], cost[3])
    for row in ahead:
        row[:columns] = limit
    ahead[0][0] = 0
    for x in range(one[0], one[1] + 1):
        for j in range(columns):
            if ahead[0][j] < limit:
                _step(texts, (x, other[0] + j), (one[1], other[1]), j, ahead)
        if x == one[1]:
            break
        # every path to the end goes through one of these rows
        if not _below(ahead[1:], columns, limit):
            return limit
        ahead[0][:columns] = limit
        ahead = (ahead[1], ahead[2], ahead[3], ahead[0])
    return int(ahead[0][columns - 1])


@compiled
def _below(rows: Any, columns: int, limit: int) -> bool:
    for row in rows:
        for j in range(columns):
            if row[j] < limit:
                return True
    return False


@compiled
def _differences(texts: _CaptionTexts, pairs: tuple[Any, Any], limit: int, cost: Any, result: Any) -> None:
    for k in range(len(result)):
        a, b = min(pairs[0][k], pairs[1][k]), max(pairs[0][k], pairs[1][k])
        one, other = (texts.begins[a], texts.begins[a + 1]), (texts.begins[b], texts.begins[b + 1])
        result[k] = 0 if a == b else _difference(texts, one, other, limit, cost)


@compiled
def common_counts(begins: Any, words: Any, pairs: tuple[Any, Any], result: Any) -> None:
    """Count the words that the texts of each pair have in common; the words of each text are sorted."""
    for k in range(len(result)):
        a, b = pairs[0][k], pairs[1][k]
        x, y, same = begins[a], begins[b], 0
        while x < begins[a + 1] and y < begins[b + 1]:
            if words[x] == words[y]:
                same, x, y = same + 1, x + 1, y + 1
            elif words[x] < words[y]:
                x += 1
            else:
                y += 1
        result[k] = same
