"""Find near-duplicate posts: MinHash signatures propose pairs, and the texts' shingles confirm them.

CRADLE does not describe how repeated posts were found; people post the same account to several subreddits with a few
words changed. Two posts are near-duplicates if the Jaccard index of their shingles (of title and body) is at least
``dedupe.similarity``. The stored signatures are the index: texts whose signatures share a band are likely similar
(locality-sensitive hashing; Leskovec, Rajaraman and Ullman, chapter 3). Each band is sorted on its own, so that memory
is that of the signatures and of the proposed pairs. Only posts of a proposed pair are opened, some at a time and shared
among the cores, and compared exactly: words and shingles are numbered, not hashed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, count
from math import comb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.collect.read.words import words
from pipelines.core.parallel import in_parts
from pipelines.curate.dedupe.captions import common_counts
from pipelines.curate.dedupe.hamming_search import cells, components, equal_pairs
from pipelines.curate.dedupe.image_pairs import Ints, Kinds, Pairs
from pipelines.curate.kernels import compiled

Signatures = npt.NDArray[np.uint32]
# Texts that a process opens at once, unless a longer chain of proposed pairs needs all of its texts.
BATCH = 20_000
Texts = Sequence[str | None]
# Prepares batches of rows; the function that it returns opens the texts of one, in any process. None was taken down.
Open = Callable[[Sequence[Ints]], Callable[[int], Texts]]


def text_kinds_and_pairs(
    signatures: Signatures, rows: Ints, *, opened: Open, similarity: float, shingle_words: int, batch: int = BATCH
) -> tuple[Kinds, Pairs]:
    """Group posts with the same words into one class; return the classes and their near-duplicate pairs.

    A pair has the number of words in the longer text that the other text lacks, with multiplicity; ``hamming`` is 0.
    ``rows`` has each post's row of ``signatures`` in the order of keeping; ``opened`` decrypts the texts of some rows.
    The result does not depend on the order of the signatures or on ``batch``, the texts in memory at once.
    """
    first = first_copies(signatures)
    everything = np.arange(len(first))
    blocks = similar_pairs(signatures, np.flatnonzero(first == everything), threshold=similarity)
    left, right = _sides(blocks)
    copies = np.flatnonzero(first != everything)
    linked = components(len(first), np.concatenate([left, first[copies]]), np.concatenate([right, copies]))
    batches = _batches(linked, size=batch)
    number, place = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    for i, members in enumerate(batches):
        number[members], place[members] = i, np.arange(len(members))
    order = np.argsort(number[left], kind="stable")
    ends = np.searchsorted(number[left[order]], np.arange(len(batches)), side="right")

    texts = opened(batches)

    def compared(start: int, end: int) -> list[tuple[Ints, Pairs]]:
        return [compared_batch(number) for number in range(start, end)]

    def compared_batch(number: int) -> tuple[Ints, Pairs]:
        members, proposed = batches[number], order[ends[number - 1] if number else 0 : ends[number]]
        sides = place[left[proposed]], place[right[proposed]]
        return _compared(
            texts(number), place[first[members]], sides, similarity=similarity, shingle_words=shingle_words
        )

    same, parts = everything.copy(), []
    for members, (alike, pairs) in zip(batches, chain(*in_parts(compared, count=len(batches), least=1)), strict=True):
        same[members] = members[alike]
        parts.append(pairs._replace(left=members[pairs.left], right=members[pairs.right]))
    return _in_order(same, parts, rows=rows)


def _compared(
    texts: Texts, group: Ints, proposed: tuple[Ints, Ints], *, similarity: float, shingle_words: int
) -> tuple[Ints, Pairs]:
    alike, spoken = _numbered(texts)
    one, other = _expanded(alike, group, proposed)
    there = np.array([text is not None for text in texts], np.bool_)
    live = (one != other) & there[one] & there[other]
    left, right = one[live], other[live]
    shared, sizes = _common(_shingles(spoken, size=shingle_words), left, right)
    near = shared / np.maximum(1, sizes[left] + sizes[right] - shared) >= similarity
    left, right = left[near], right[near]
    shared, sizes = _common(spoken, left, right)
    return alike, Pairs(left, right, np.zeros_like(left), np.maximum(sizes[left], sizes[right]) - shared)


def _batches(linked: Ints, *, size: int) -> list[Ints]:
    """Return the rows that are linked to others, in batches that separate no linked rows."""
    order = np.argsort(linked, kind="stable")
    _, start, sizes = np.unique(linked[order], return_index=True, return_counts=True)
    order = order[np.repeat(sizes, sizes) > 1]
    start = np.cumsum(sizes * (sizes > 1)) - sizes
    number = np.repeat(start[sizes > 1] // size, sizes[sizes > 1])
    return np.split(order, 1 + np.flatnonzero(np.diff(number))) if len(order) else []


def _in_order(same: Ints, parts: Sequence[Pairs], *, rows: Ints) -> tuple[Kinds, Pairs]:
    """Number the classes, which are named by a row, in the order of keeping."""
    _, first, number_of_row = np.unique(same[rows], return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    kind = np.empty(len(rows), np.int64)
    kind[rows] = number[number_of_row]
    joined = Pairs.join([*parts, Pairs(*np.empty((4, 0), np.int64))])
    left, right = kind[joined.left], kind[joined.right]
    pairs = Pairs(np.minimum(left, right), np.maximum(left, right), joined.hamming, joined.words)
    return Kinds(number[number_of_row], np.sort(first)), Pairs.join([pairs])


def _sides(blocks: Iterable[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> Ints:
    return np.concatenate([np.empty((2, 0), np.int64), *(np.array(sides) for sides in blocks)], axis=1)


class _Spoken(NamedTuple):
    """The words of some texts as numbers, one text after the other."""

    begins: Ints
    words: Ints
    known: int  # words numbered

    @property
    def text(self) -> Ints:
        """Return the text of each word."""
        return np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))


def _expanded(alike: Ints, group: Ints, proposed: tuple[Ints, Ints]) -> Ints:
    """Return the pairs of distinct texts in the proposed pairs of groups and within each group.

    ``group`` is of each text the first one with its signature, and ``alike`` the first one with its words.
    """
    group_of, distinct = np.divmod(np.unique(group * len(group) + alike), len(group))
    sizes = np.bincount(group_of, minlength=len(group))
    starts = np.cumsum(sizes) - sizes
    sides = list(equal_pairs(group_of))
    for pair, a, b in cells(sizes[proposed[0]], sizes[proposed[1]]):
        sides.append((starts[proposed[0][pair]] + a, starts[proposed[1][pair]] + b))
    pairs: Ints = distinct[_sides(sides)]
    return pairs


def _numbered(texts: Texts) -> tuple[Ints, _Spoken]:
    """Return for each text the first one with the same words, and the words of these first ones."""
    number: defaultdict[str, int] = defaultdict(count().__next__)
    seen: dict[bytes, int] = {}
    alike, spoken = np.arange(len(texts)), list[Ints]([np.empty(0, np.int64)])
    for i, text in enumerate(texts):
        own = np.fromiter(map(number.__getitem__, words(text or "")), np.int64)
        if text is not None:
            alike[i] = seen.setdefault(own.tobytes(), i)
        spoken.append(own if alike[i] == i else own[:0])
    return alike, _Spoken(np.cumsum([len(own) for own in spoken]), np.concatenate(spoken), len(number))


def _common(spoken: _Spoken, left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return how many words the texts of each pair have in common, with multiplicity, and how many each text has."""
    values = np.sort(spoken.text * spoken.known + spoken.words) % max(1, spoken.known)
    shared = np.empty(len(left), np.int64)
    common_counts(spoken.begins, values, (left, right), shared)
    return shared, np.diff(spoken.begins)


def _shingles(spoken: _Spoken, *, size: int) -> _Spoken:
    """Return the distinct runs of ``size`` words of each text; a shorter text, which only equals its copies, has none.

    A run is numbered by its words' numbers as digits, and again before the number exceeds 63 bits.
    """
    runs, known = spoken.words, spoken.known
    for k in range(1, size):
        if known * spoken.known >= 1 << 63:
            distinct, runs = np.unique(runs, return_inverse=True)
            known = len(distinct)
        runs, known = runs[:-1] * spoken.known + spoken.words[k:], known * spoken.known
    text = spoken.text[: len(runs)]
    whole = np.arange(len(runs)) + size <= spoken.begins[1:][text]
    distinct, runs = np.unique(runs[whole], return_inverse=True)
    text, runs = np.divmod(np.unique(text[whole] * len(distinct) + runs), max(1, len(distinct)))
    sizes = np.bincount(text, minlength=len(spoken.begins) - 1)
    return _Spoken(np.concatenate([[0], np.cumsum(sizes)]), runs, len(distinct))


# Ours: expected share of pairs at the threshold that share no band; the requirement is 0.005.
MISSED = 0.001
# Ours: expected share of pairs at the threshold whose signatures agree so little that they are not compared.
OVERLOOKED = 1e-9
# Ours: slots for each key, so that one in 8 to 16 is sorted needlessly, and the logarithm of the least number of slots.
SLOTS, MIN_BITS = 8, 10


def similar_pairs(signatures: Signatures, rows: Ints, *, threshold: float) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs among ascending ``rows`` whose texts may be similar, in blocks: ``left < right``, each pair once.

    The bands miss at most ``MISSED`` of the pairs at the threshold; pairs whose signatures agree too little are left
    out.
    """
    count = signatures.shape[1]
    number, length = bands(count, threshold=threshold)
    least = least_agreeing(count, threshold=threshold)
    for band in range(number):
        keys = np.empty(len(rows), np.uint64)
        _hash(signatures, rows, band * length, (band + 1) * length, keys)
        for left, right in _equal_pairs(keys, rows=rows):
            agreeing = np.empty(len(left), np.bool_)
            _agreeing(signatures, (left, right), (band, length), least, agreeing)
            yield left[agreeing], right[agreeing]


def first_copies(signatures: Signatures) -> Ints:
    """Return for each row the first row with the same signature; a text that was posted n times would have n² pairs."""
    count = signatures.shape[1]
    everything, keys = np.arange(len(signatures)), np.empty(len(signatures), np.uint64)
    _hash(signatures, everything, 0, count, keys)
    order = np.argsort(keys, kind="stable")
    again = 1 + np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    # a signature whose hash is that of another one may be taken for no copy, which the search then finds
    equal = np.empty(len(again), np.bool_)
    _agreeing(signatures, (order[again - 1], order[again]), (0, 1), count, equal)
    start = np.arange(len(order))
    start[again[equal]] = 0
    first = np.empty(len(order), np.int64)
    first[order] = order[np.maximum.accumulate(start)]
    return first


def bands(count: int, *, threshold: float) -> tuple[int, int]:
    """Return the number and the length of the longest bands that miss few enough pairs at the threshold.

    Two texts of similarity s share none of ``b`` bands of ``r`` values with probability (1 - s^r)^b.
    """
    fitting = (r for r in range(count // 2, 0, -1) if (1 - threshold**r) ** (count // r) <= MISSED)
    length = next(fitting, 1)
    return count // length, length


def least_agreeing(count: int, *, threshold: float) -> int:
    """Return the number of values, of ``count``, in which all but ``OVERLOOKED`` of the similar pairs agree at least.

    Each value of two signatures is equal with the probability of the texts' similarity.
    """
    shares = (comb(count, k) * threshold**k * (1 - threshold) ** (count - k) for k in range(count))
    return next((k for k, below in enumerate(accumulate(shares)) if below > OVERLOOKED), count)


def _equal_pairs(keys: npt.NDArray[np.uint64], *, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
    bits = max(MIN_BITS, (SLOTS * len(keys)).bit_length())
    shared = np.empty(len(keys), np.bool_)
    _mark_shared(keys, np.uint64(64 - bits), np.zeros(1 << (bits - 2), np.uint8), shared)
    places = np.flatnonzero(shared)
    for left, right in equal_pairs(keys[places]):
        yield rows[places[left]], rows[places[right]]


@compiled
def _hash(signatures: Any, rows: Any, begin: int, end: int, keys: Any) -> None:
    """Hash the values ``begin`` to ``end`` of each signature to 64 bits (FNV-1a, mixed)."""
    for i in range(len(rows)):
        key = np.uint64(0xCBF29CE484222325)
        for k in range(begin, end):
            key = (key ^ np.uint64(signatures[rows[i], k])) * np.uint64(0x100000001B3)
            key ^= key >> np.uint64(32)
        keys[i] = key


@compiled
def _mark_shared(keys: Any, shift: Any, slots: Any, shared: Any) -> None:
    """Mark the keys whose slot another key has, too: all keys that are equal to another one, and a few more.

    A slot is a key's upper bits; two bits count its keys up to two. Only the marked keys need be sorted.
    """
    for i in range(len(keys)):
        slot = keys[i] >> shift
        at, bit = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
        slots[at] |= np.uint8(2 << bit) if (slots[at] >> bit) & 1 else np.uint8(1 << bit)
    for i in range(len(keys)):
        slot = keys[i] >> shift
        shared[i] = (slots[slot >> np.uint64(2)] >> (((slot & np.uint64(3)) << np.uint64(1)) + np.uint64(1))) & 1


@compiled
def _agreeing(signatures: Any, pairs: tuple[Any, Any], band: tuple[int, int], least: int, agreeing: Any) -> None:
    """Mark the pairs that share no band before this one (number, length) and agree in at least ``least`` values."""
    for p in range(len(agreeing)):
        a, b = pairs[0][p], pairs[1][p]
        earlier, length = False, band[1]
        for other in range(band[0]):
            same = 0
            while same < length and signatures[a, other * length + same] == signatures[b, other * length + same]:
                same += 1
            if same == length:
                earlier = True
                break
        count = 0
        if not earlier:
            for k in range(signatures.shape[1]):
                count += signatures[a, k] == signatures[b, k]
        agreeing[p] = not earlier and count >= least
