"""Find near-duplicate posts: MinHash signatures propose pairs, and the texts' shingles confirm them.

CRADLE does not describe how repeated posts were found; people post the same account to several subreddits with a few
words changed. Two posts are near-duplicates if the Jaccard index of their shingles (of title and body) is at least
``dedupe.similarity``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipelines.config.params import Params
from pipelines.curate.dedupe.image_pairs import Kinds, Pairs
from pipelines.extract.shingles import candidates, shingles, similarity
from pipelines.extract.words import words


def kinds_of_texts(texts: Sequence[str]) -> Kinds:
    """Group posts that have the same words into one class."""
    numbers: dict[str, int] = {}
    kind = np.array([numbers.setdefault(" ".join(words(text)), len(numbers)) for text in texts], np.int64)
    return Kinds(kind, np.unique(kind, return_index=True)[1])


def pairs_of_texts(texts: Sequence[str], signatures: Sequence[bytes], known: Kinds, *, params: Params) -> Pairs:
    """Return the near-duplicate pairs of classes, with the number of differing words.

    The number is of the words in the longer text that the other text lacks, with multiplicity. ``hamming`` is 0,
    because texts have no hash.
    """
    spoken = [words(texts[i]) for i in known.first]
    runs = [shingles(w, size=params.texts.shingle_words) for w in spoken]
    proposed = candidates([signatures[i] for i in known.first], threshold=params.dedupe.similarity)
    found = [(a, b) for a, b in proposed if similarity(runs[a], runs[b]) >= params.dedupe.similarity]
    apart = [_words_apart(spoken[a], spoken[b]) for a, b in found]
    sides = np.array(found, np.int64).reshape(-1, 2)
    return Pairs.join([Pairs(sides[:, 0], sides[:, 1], np.zeros(len(found), np.int64), np.array(apart, np.int64))])


def _words_apart(one: Sequence[str], other: Sequence[str]) -> int:
    common = (Counter(one) & Counter(other)).total()
    return max(len(one), len(other)) - common
