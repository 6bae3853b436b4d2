"""Find all near-duplicates among some items without an index, to check the split independently of ``dedupe``.

The rule is that of ``dedupe``; only the proposal of pairs differs. Every pair of pictures is compared by its hashes;
texts are joined on rare shingles, which misses no pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.config.curate import Dedupe
from pipelines.config.params import Params
from pipelines.curate.dedupe import opened_items
from pipelines.curate.dedupe.image_pairs import (
    PAPER,
    Ints,
    Looks,
    PictureKinds,
    Pictures,
    kinds,
    looks_apart,
    pairs_of_items,
    pairs_of_kinds,
    widest_radius,
)
from pipelines.curate.grouping.items import among, read_items
from pipelines.extract.shingles import alike, shingles
from pipelines.extract.words import words
from pipelines.storage.tables import Item, items_of
from pipelines.vault.vault import Vault

# Hashes compared with all later ones at once; this only limits memory.
ROWS = 512


def pairs(
    corpus: str, wanted: Collection[Item], *, params: Params, vault: Vault, root: Path
) -> list[tuple[Item, Item]]:
    """Return the near-duplicate pairs among the wanted items, without items that were taken down.

    Raises:
        SchemaMismatch: see :mod:`pipelines.curate.dedupe.opened_items`.
    """
    if params.corpora[corpus].content == "images":
        live, _ = opened_items.read_images(corpus, params=params, vault=vault, root=root, wanted=wanted)
        items, found = items_of(live), _of_pictures(opened_items.pictures(live), params=params.dedupe)
    else:
        rows = read_items(corpus, params=params, columns=[], root=root)
        rows = rows.filter(pa.array(among(rows, wanted)))
        everything = [np.arange(rows.num_rows)]
        texts = opened_items.open_texts(corpus, rows["record_id"], everything, vault=vault, root=root)(0)
        live = rows.filter(pa.array([text is not None for text in texts], pa.bool_()))
        runs = [shingles(words(text), size=params.texts.shingle_words) for text in texts if text is not None]
        items, found = items_of(live), alike(runs, threshold=params.dedupe.similarity)
    return [(items[left], items[right]) for left, right in found]


def _of_pictures(pictures: Pictures, *, params: Dedupe) -> Iterator[tuple[int, int]]:
    known = kinds(pictures)
    near = pairs_of_kinds(pictures, known, params=params, proposed=_every_pair(pictures, known, params=params))
    found = pairs_of_items(near, known, listed=params.listed_copies)
    yield from zip(found.left.tolist(), found.right.tolist(), strict=True)


def _every_pair(pictures: Pictures, known: PictureKinds, *, params: Dedupe) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs of hashed kinds within the largest radius of any rule, and all pairs with a mostly empty one."""
    hashed = np.flatnonzero(pictures.hashed[known.first])
    looks, energies = pictures.looks(known.first[hashed]), pictures.energies[known.first[hashed]]
    radius = widest_radius(params)
    for begin in range(0, len(hashed), ROWS):
        block = Looks(*(hashes[begin : begin + ROWS, None] for hashes in looks))
        rest = Looks(*(hashes[None, begin:] for hashes in looks))
        sparse = np.minimum(energies[begin : begin + ROWS, None], energies[None, begin:]) < PAPER
        row, column = np.nonzero(sparse | (looks_apart(block, rest) <= radius))
        later = column > row
        yield hashed[begin + row[later]], hashed[begin + column[later]]
