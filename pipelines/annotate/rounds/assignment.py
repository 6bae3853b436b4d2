"""Draw an annotation round's items, assign them to annotators, and order each annotator's queue.

Items are drawn by keyed hashes, so that neither the order of rows nor items added later change the result.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipelines.annotate.backends.backend import Item
from pipelines.errors import BadParams


@dataclass(frozen=True, slots=True)
class Assignment:
    """One item assigned to one annotator in an annotation round.

    ``batch`` counts from 0 and is the same for all annotators of the item; ``position`` counts from 0 in the
    annotator's own queue, batch after batch.
    """

    item: Item
    annotator: str
    batch: int
    position: int


def draw(candidates: Collection[Item], *, taken: Collection[Item], size: int, seed: int) -> list[Item]:
    """Draw at most ``size`` candidate items that are not in ``taken``, in the order of their keyed hashes.

    The result of a smaller ``size`` is a prefix of the result of a larger one. A new candidate does not change the
    order of the others.
    """
    free = set(candidates) - set(taken)
    return _shuffled(free, key=f"round/{seed}")[: max(0, size)]


def assign(
    items: Sequence[Item], *, annotators: Sequence[str], overlap: int, batch_size: int, seed: int
) -> list[Assignment]:
    """Assign each item to ``overlap`` different annotators, so that the annotators' loads differ by at most one item.

    The items are divided, in their order, into batches of ``batch_size``. Within a batch each annotator has a different
    order, so that fatigue does not affect the same items for all.

    Returns:
        The assignments in the given order of the annotators, then by position; empty if ``overlap`` is 0.
    """
    if len(set(annotators)) < max(len(annotators), overlap):
        detail = f"{len(set(annotators))} different names of {len(annotators)}, but each item needs {overlap}"
        raise BadParams(where="round.annotators", detail=detail)
    queues: dict[str, list[Assignment]] = {annotator: [] for annotator in annotators}
    loads: Counter[str] = Counter()
    for batch, start in enumerate(range(0, len(items), batch_size)):
        given: dict[str, list[Item]] = {annotator: [] for annotator in annotators}
        for item in items[start : start + batch_size]:
            for annotator in _least(annotators, loads=loads, overlap=overlap, key=f"assign/{seed}", item=item):
                given[annotator].append(item)
                loads[annotator] += 1
        for annotator, queue in queues.items():
            for item in _shuffled(given[annotator], key=f"order/{seed}/{annotator}"):
                queue.append(Assignment(item, annotator, batch, len(queue)))
    return [assignment for queue in queues.values() for assignment in queue]


def _least(annotators: Sequence[str], *, loads: Counter[str], overlap: int, key: str, item: Item) -> list[str]:
    """Return the ``overlap`` annotators with the lowest load; a hash breaks ties, so that pairs vary."""
    return sorted(annotators, key=lambda a: (loads[a], _hash(item, key=f"{key}/{a}"), a))[:overlap]


def _shuffled(items: Collection[Item], *, key: str) -> list[Item]:
    return sorted(items, key=lambda item: (_hash(item, key=key), item))


def _hash(item: Item, *, key: str) -> bytes:
    # a BLAKE2b key has at most 64 bytes, so the key is part of the hashed text instead
    return hashlib.blake2b(f"{key}/{item[0]}/{item[1]}".encode(), digest_size=16).digest()
