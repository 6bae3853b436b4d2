"""Find the items that a review took in, and a task's test set without them (CRADLE 3.4, SPEC 31).

A review asks an expert about items whose gold differs from the votes of named models, and about items that annotators
marked. Gold that it revised may have moved towards these models, so scores are also stated without such items.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pipelines.annotate.forms.manifest import folder, opened
from pipelines.evaluate.model_scores import Board, Item
from pipelines.storage import tables


def flagged(corpus: str, *, root: Path) -> frozenset[Item]:
    """Return the items of the corpus's reviews (rounds with ``draw: disagreement``), with gold kept or revised."""
    found: set[Item] = set()
    for manifest in opened(root, corpus):
        path = folder(root, corpus, manifest.round) / "assignments.parquet"
        if manifest.draw == "disagreement" and path.exists():
            found |= set(tables.items_of(tables.read(path, name="assignments", columns=["record_id", "image"])))
    return frozenset(found)


def without(board: Board, *, items: Collection[Item]) -> Board | None:
    """Return a task's test set without ``items``, or ``None`` if it has none of them."""
    kept = [i for i, item in enumerate(board.items) if item not in items]
    if len(kept) == len(board.items):
        return None
    return replace(
        board,
        items=tuple(board.items[i] for i in kept),
        gold=tuple(board.gold[i] for i in kept),
        groups=tuple(board.groups[i] for i in kept),
    )
