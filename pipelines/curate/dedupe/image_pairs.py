"""Find near-duplicate pictures: a hash or a caption proposes a pair, and both must confirm it.

FigSIM (3.1): near-duplicates have the same image and differ in fewer than three words; for two pictures without text,
the image decides. The allowed distance of two hashes depends on how many words agree: a replaced word changes the hash,
and a long shared caption makes a chance similarity of two pictures unlikely to be wrong (SPEC.md 2.6). A picture has
three hashes, as reposts differ most at their edges; a hash is also compared with the mirrored one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.core.config.collect import Dedupe
from pipelines.curate.dedupe.captions import Captions, caption_words
from pipelines.curate.dedupe.hamming_search import cells, equal_pairs, pair_blocks

Ints = npt.NDArray[np.int64]

# Mirroring negates the odd horizontal frequencies of the DCT, whose bits are these: the hash of the mirrored picture
# needs no pixels. A bit whose frequency lies between 0 and the median is wrong; measured, see docs/log/performance.md.
BITS = 64
MIRROR = np.uint64(0x5555_5555_5555_5555)
# Ours: a watermark or the status bar of a phone adds so many words, and so few captions of one template begin with
# another one: at least three words, and this share of the shorter caption, agree. See bench/second_world.
ADDED, MARKED_WORDS, MARKED_SHARE = 4, 3, 0.8
# Ours: of so many words one is misread beyond recognition, in spite of which a long caption is the same.
MISREAD_EVERY = 40
# Ours: below this energy a picture is mostly paper, as a screenshot of a post is. A bar or a watermark then changes the
# border that is trimmed, and with it the whole hash: if so many words agree and none is replaced, the caption decides.
# Below EMPTY, nothing but the caption is left: few words are enough, and if both are empty, words may be replaced.
PAPER, PAPER_WORDS, EMPTY = 27.0, 8, 10.0
# Ours: captions of one common phrase differ in a word or two, and by chance some of their pictures have similar hashes.
# In a copy with replaced words the energy changes by less than this factor, and the other words keep their capitals:
# the shares of capitals, measured on bench/second_world, are alike in every copy and in half of the other pictures.
ALIKE, CAPITALS = 2.0, 0.5
# Ours: so many more bits are allowed if no word of a long caption is replaced.
SAME_WORDS = 2


@dataclass(frozen=True)
class Pictures:
    """Hashes and captions of all items, earliest first; never written to disk, because captions are content."""

    hashes: npt.NDArray[np.uint64]
    hashed: npt.NDArray[np.bool_]  # False if too flat for a hash
    digests: list[str]  # of the bytes
    texts: list[str]
    energies: npt.NDArray[np.float64]  # contrast, see `fingerprint`
    inner: npt.NDArray[np.uint64]  # without bands at the edges; `hashes` where there is no other
    outer: npt.NDArray[np.uint64]  # with plain borders; `hashes` where there is no other

    def looks(self, rows: npt.NDArray[Any]) -> Looks:
        return Looks(self.hashes[rows], self.inner[rows], self.outer[rows])


class Looks(NamedTuple):
    """Three hashes of each picture: without plain borders, without bands at the edges either, and untrimmed."""

    trimmed: npt.NDArray[np.uint64]
    inner: npt.NDArray[np.uint64]
    outer: npt.NDArray[np.uint64]


class Pairs(NamedTuple):
    """Near-duplicate pairs as positions ``left < right``, with the numbers of differing bits and words."""

    left: Ints
    right: Ints
    hamming: Ints
    words: Ints

    def take(self, rows: npt.NDArray[Any]) -> Pairs:
        return Pairs(*(column[rows] for column in self))

    @classmethod
    def join(cls, parts: list[Pairs]) -> Pairs:
        """Combine the pairs of all ``parts`` without repetition, ordered by left, then right."""
        empty = np.empty(0, dtype=np.int64)
        left, right, hamming, words = (np.concatenate([empty, *columns]) for columns in zip(*parts, strict=True))
        _, rows = np.unique(left << 32 | right, return_index=True)
        return cls(left, right, hamming, words).take(rows)


@dataclass(frozen=True)
class Kinds:
    """Items grouped into classes of identical bits and words, so that only one item of each class is compared."""

    kind: Ints  # of each item, numbered by first appearance
    first: Ints  # item of each kind


@dataclass(frozen=True)
class PictureKinds(Kinds):
    """Pictures grouped into classes of identical hash and caption, with the captions of the classes."""

    caption: Ints  # of each kind, a position in ``captions``
    captions: Captions


def kinds(pictures: Pictures) -> PictureKinds:
    """Group pictures with the same hash (without one, the same bytes; ours) and the same caption words."""
    numbers: dict[tuple[tuple[int, int, int] | str, int], int] = {}
    texts: dict[str, int] = {}
    captions = [texts.setdefault(" ".join(caption_words(text)), len(texts)) for text in pictures.texts]
    hashes = zip(pictures.hashes.tolist(), pictures.inner.tolist(), pictures.outer.tolist(), strict=True)
    looks = (
        codes if hashed else digest
        for codes, hashed, digest in zip(hashes, pictures.hashed, pictures.digests, strict=True)
    )
    kind = np.array([numbers.setdefault(pair, len(numbers)) for pair in zip(looks, captions, strict=True)], np.int64)
    first = np.unique(kind, return_index=True)[1]
    return PictureKinds(kind, first, np.array(captions, np.int64)[first], Captions(list(texts)))


def pairs_of_kinds(
    pictures: Pictures, known: PictureKinds, *, params: Dedupe, proposed: Iterable[tuple[Ints, Ints]] | None = None
) -> Pairs:
    """Return the near-duplicate pairs of classes among the proposed ones (default: those of the indexed search).

    In a near-duplicate pair, the captions differ in fewer than ``word_difference`` words. The hashes differ in at most
    ``radius_no_text`` bits if no word agrees, ``radius`` if some words agree, and ``radius_long_caption`` if at least
    ``long_caption`` words agree, or ``SAME_WORDS`` more if none is replaced. The distance is the least of any of their
    hashes, mirrored or not. Beyond ``radius_no_text`` bits, pictures whose captions have replaced words must have a
    similar contrast and capitals (``ALIKE``). Within ``radius`` bits, up to ``ADDED`` more words may be added to one
    caption, and words that mostly agree may have another order. If a picture is mostly paper and all words of one
    caption are in the other one, the captions decide at any distance (``PAPER``).
    """
    energies = pictures.energies[known.first]
    counts = known.captions.counts[known.caption]
    capitals = np.array([_capitals(pictures.texts[item]) for item in known.first])
    parts = [Pairs(*np.empty((4, 0), dtype=np.int64))]
    for one, other in _proposed(pictures, known, params=params) if proposed is None else proposed:
        hamming = looks_apart(pictures.looks(known.first[one]), pictures.looks(known.first[other]))
        least, shorter = np.minimum(energies[one], energies[other]), np.minimum(counts[one], counts[other])
        sparse = (least < PAPER) & (shorter >= np.where(least < EMPTY, MARKED_WORDS, PAPER_WORDS))
        sparse &= np.abs(counts[one] - counts[other]) < params.word_difference
        near = sparse | (hamming <= widest_radius(params))
        left, right = np.minimum(one, other)[near], np.maximum(one, other)[near]
        hamming, sparse = hamming[near], sparse[near]
        longer, added = np.maximum(counts[left], counts[right]), np.abs(counts[left] - counts[right])
        captions = known.caption[left], known.caption[right]
        words = known.captions.differences(*captions, limit=params.word_difference + ADDED)
        unordered = known.captions.unordered_differences(*captions)
        kept = words <= added
        alike = kept | _alike(energies, capitals, left, right)
        moved = (hamming <= params.radius) & (words >= params.word_difference)
        moved &= longer - unordered >= MARKED_SHARE * longer
        whole = sparse & (unordered == added)
        words = np.where(whole | moved, np.minimum(words, unordered), words)
        agreeing, nearby = longer - words, np.where(alike, params.radius, params.radius_no_text)
        alone = (np.maximum(energies[left], energies[right]) < EMPTY) & (agreeing >= PAPER_WORDS)
        long = agreeing >= params.long_caption
        radius = np.select(
            [sparse & alike & (whole | alone), kept & long, alike & long, agreeing > 0],
            [BITS, params.radius_long_caption + SAME_WORDS, params.radius_long_caption, nearby],
            default=params.radius_no_text,
        )
        misread = agreeing // MISREAD_EVERY
        marked = (words - added - misread < params.word_difference) & (added <= ADDED)
        marked &= words < params.word_difference + ADDED  # more are not counted
        marked &= agreeing >= np.maximum(MARKED_WORDS, MARKED_SHARE * np.minimum(counts[left], counts[right]))
        duplicate = (words < params.word_difference) & (hamming <= radius)
        duplicate |= marked & (hamming <= nearby)
        parts.append(Pairs(left, right, hamming, words).take(duplicate))
    return Pairs.join(parts)


def widest_radius(params: Dedupe) -> int:
    """Return the largest distance of two hashes that a rule allows, apart from captions that decide."""
    return max(params.radius, params.radius_no_text, params.radius_long_caption + SAME_WORDS)


def _alike(
    energies: npt.NDArray[np.float64], capitals: npt.NDArray[np.float64], left: Ints, right: Ints
) -> npt.NDArray[np.bool_]:
    one, other = energies[left], energies[right]
    contrast: npt.NDArray[np.bool_] = np.maximum(one, other) <= ALIKE * np.minimum(one, other)
    return contrast & (np.abs(capitals[left] - capitals[right]) < CAPITALS)


def _capitals(text: str) -> float:
    return sum(map(str.isupper, text)) / max(1, sum(map(str.isalpha, text)))


def bits_apart(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> Ints:
    """Return the differing bits of hashes, or of one of them and the other one mirrored, whichever is less."""
    differing = one ^ other
    bits: Ints = np.minimum(np.bitwise_count(differing), np.bitwise_count(differing ^ MIRROR)).astype(np.int64)
    return bits


def looks_apart(one: Looks, other: Looks) -> Ints:
    """Return the least number of bits between a hash of one picture and a hash of the other one."""
    apart: Ints = np.minimum.reduce([bits_apart(a, b) for a in one for b in other])
    return apart


def _proposed(pictures: Pictures, known: PictureKinds, *, params: Dedupe) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs of kinds with similar hashes, and those with captions that may decide and share a rare word."""
    hashed = np.flatnonzero(pictures.hashed[known.first])
    radius = max(params.radius, params.radius_no_text)
    looks = pictures.looks(known.first[hashed])
    inner, outer = (np.flatnonzero(codes != looks.trimmed) for codes in looks[1:])
    codes = np.concatenate([looks.trimmed, looks.inner[inner], looks.outer[outer]])
    kind = np.concatenate([hashed, hashed[inner], hashed[outer]])
    for one, other in close_pairs(codes, radius=radius):
        differ = kind[one] != kind[other]
        yield kind[one[differ]], kind[other[differ]]
    counts, energies = known.captions.counts[known.caption[hashed]], pictures.energies[known.first[hashed]]
    long = hashed[counts >= np.where(energies < EMPTY, MARKED_WORDS, params.long_caption)]
    item, word = known.captions.rare_words(known.caption[long], most=params.word_difference + params.misread_words)
    for left, right in equal_pairs(word):
        yield long[item[left]], long[item[right]]


def close_pairs(hashes: npt.NDArray[np.uint64], *, radius: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs ``left < right`` within ``radius`` of each other, or of the other one mirrored; some twice."""
    count = len(hashes)
    for left, right, _ in pair_blocks(np.concatenate([hashes, hashes ^ MIRROR]), radius=radius):
        distinct = (left < count) & (left < right % count)
        yield left[distinct].astype(np.int64), (right[distinct] % count).astype(np.int64)


def pairs_of_items(near: Pairs, known: Kinds, *, listed: int) -> Pairs:
    """Return the near-duplicate pairs of items, both within one class and between near-duplicate classes.

    All pairs are listed only for a class's first ``listed`` items, each further item only with the first: groups stay
    whole, and the list grows linearly with the items.
    """
    order = np.argsort(known.kind, kind="stable")
    sizes = np.bincount(known.kind, minlength=len(known.first))
    begins = np.cumsum(sizes) - sizes
    copy = np.arange(len(order)) - begins[known.kind[order]]
    shown, further = order[copy < listed], order[copy >= listed]

    parts = [_same(known.first[known.kind[further]], further)]
    parts += [_same(shown[left], shown[right]) for left, right in equal_pairs(known.kind[shown])]
    shown_sizes = np.minimum(sizes, listed)
    for row, a, b in cells(shown_sizes[near.left], shown_sizes[near.right]):
        one, other = order[begins[near.left[row]] + a], order[begins[near.right[row]] + b]
        parts.append(Pairs(np.minimum(one, other), np.maximum(one, other), near.hamming[row], near.words[row]))
    return Pairs.join(parts)


def _same(left: Ints, right: Ints) -> Pairs:
    return Pairs(np.minimum(left, right), np.maximum(left, right), np.zeros_like(left), np.zeros_like(left))
