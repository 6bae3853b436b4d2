"""Find near-duplicate pictures: a hash or a caption proposes a pair, and both must confirm it.

FigSIM (3.1): near-duplicates have the same image and differ in fewer than three words; for two pictures without text,
the image decides. The allowed distance of two hashes depends on how many words agree: a replaced word changes the hash,
and a long shared caption makes a chance similarity of two pictures unlikely to be wrong (SPEC.md 2.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.config.curate import Dedupe
from pipelines.curate.dedupe.captions import Captions, caption_words
from pipelines.curate.grouping.hamming_search import cells, equal_pairs, pair_blocks

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Hashes and captions of all items, earliest first; never written to disk, because captions are content."""

    hashes: npt.NDArray[np.uint64]
    hashed: npt.NDArray[np.bool_]  # False if too flat for a hash
    digests: list[str]  # of the bytes
    texts: list[str]


class Pairs(NamedTuple):
    """Near-duplicate pairs as positions ``left < right``, with the numbers of differing bits and words."""

    left: Ints
    right: Ints
    hamming: Ints
    words: Ints

    def take(self, rows: npt.NDArray[Any]) -> Pairs:
        """Return the pairs that the index ``which`` selects."""
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
    """Group pictures with the same hash and the same caption words into one class.

    A picture without a hash is of one kind only with pictures of the same bytes and words (ours).
    """
    numbers: dict[tuple[int | str, int], int] = {}
    texts: dict[str, int] = {}
    captions = [texts.setdefault(" ".join(caption_words(text)), len(texts)) for text in pictures.texts]
    looks = (
        hash_ if hashed else digest
        for hash_, hashed, digest in zip(pictures.hashes.tolist(), pictures.hashed, pictures.digests, strict=True)
    )
    kind = np.array([numbers.setdefault(pair, len(numbers)) for pair in zip(looks, captions, strict=True)], np.int64)
    first = np.unique(kind, return_index=True)[1]
    return PictureKinds(kind, first, np.array(captions, np.int64)[first], Captions(list(texts)))


def pairs_of_kinds(
    pictures: Pictures,
    known: PictureKinds,
    *,
    params: Dedupe,
    proposed: Iterable[tuple[Ints, Ints]] | None = None,
) -> Pairs:
    """Return the near-duplicate pairs of classes among the proposed ones (default: those of the indexed search).

    In a near-duplicate pair, the captions differ in fewer than ``word_difference`` words. The hashes differ in at most
    ``radius_no_text`` bits if no word agrees, ``radius`` if some words agree, and ``radius_long_caption`` if at least
    ``long_caption`` words agree.
    """
    hashes, counts = pictures.hashes[known.first], known.captions.counts[known.caption]
    parts = [Pairs(*np.empty((4, 0), dtype=np.int64))]
    for one, other in _proposed(pictures, known, params=params) if proposed is None else proposed:
        hamming = np.bitwise_count(hashes[one] ^ hashes[other]).astype(np.int64)
        near = hamming <= max(params.radius, params.radius_no_text, params.radius_long_caption)
        left, right, hamming = np.minimum(one, other)[near], np.maximum(one, other)[near], hamming[near]
        words = known.captions.differences(known.caption[left], known.caption[right], limit=params.word_difference)
        agreeing = np.maximum(counts[left], counts[right]) - words
        radius = np.select(
            [agreeing >= params.long_caption, agreeing > 0],
            [params.radius_long_caption, params.radius],
            default=params.radius_no_text,
        )
        found = (words < params.word_difference) & (hamming <= radius)
        parts.append(Pairs(left, right, hamming, words).take(found))
    return Pairs.join(parts)


def _proposed(pictures: Pictures, known: PictureKinds, *, params: Dedupe) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs of kinds with similar hashes, and those with long captions that share a rare word."""
    hashed = np.flatnonzero(pictures.hashed[known.first])
    radius = max(params.radius, params.radius_no_text)
    for left, right, _ in pair_blocks(pictures.hashes[known.first[hashed]], radius=radius):
        yield hashed[left], hashed[right]
    long = hashed[known.captions.counts[known.caption[hashed]] >= params.long_caption]
    item, word = known.captions.rare_words(known.caption[long], most=params.word_difference + params.misread_words)
    for left, right in equal_pairs(word):
        yield long[item[left]], long[item[right]]


def pairs_of_items(found: Pairs, known: Kinds, *, listed: int) -> Pairs:
    """Return the near-duplicate pairs of items, both within one class and between near-duplicate classes.

    A kind with thousands of items has millions of pairs. All pairs are therefore listed only for its first ``listed``
    items; each further item is only paired with the first. Groups stay whole, and the list grows linearly with the
    items.
    """
    order = np.argsort(known.kind, kind="stable")
    sizes = np.bincount(known.kind, minlength=len(known.first))
    begins = np.cumsum(sizes) - sizes
    copy = np.arange(len(order)) - begins[known.kind[order]]
    shown, further = order[copy < listed], order[copy >= listed]

    parts = [_same(known.first[known.kind[further]], further)]
    parts += [_same(shown[left], shown[right]) for left, right in equal_pairs(known.kind[shown])]
    shown_sizes = np.minimum(sizes, listed)
    for row, a, b in cells(shown_sizes[found.left], shown_sizes[found.right]):
        one, other = order[begins[found.left[row]] + a], order[begins[found.right[row]] + b]
        parts.append(Pairs(np.minimum(one, other), np.maximum(one, other), found.hamming[row], found.words[row]))
    return Pairs.join(parts)


def _same(left: Ints, right: Ints) -> Pairs:
    return Pairs(np.minimum(left, right), np.maximum(left, right), np.zeros_like(left), np.zeros_like(left))
