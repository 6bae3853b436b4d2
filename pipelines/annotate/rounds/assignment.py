"""Who is asked about what: the seeded draw of a round's items, their assignment, and how many come out on one day.

Everything goes by keyed hashes of the items, so that no order of rows and no later item changes what was drawn.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipelines.annotate.backends.backend import Item
from pipelines.errors import BadParams

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One item that one annotator is asked about.

    ``batch`` counts from 0 and is the same for all who get the item; ``position`` counts from 0 in the annotator's own
    queue, batch after batch.
    """

    item: Item
    annotator: str
    batch: int
    position: int


def draw(candidates: Collection[Item], *, taken: Collection[Item], size: int, seed: int) -> list[Item]:
    """Return at most ``size`` of the candidates, none of ``taken``, in the order of their keyed hashes.

    A larger size begins with a smaller one's items, and a new candidate leaves the order of the others as it was.
    """
    free = set(candidates) - set(taken)
    return _shuffled(free, key=f"round/{seed}")[: max(0, size)]


def assign(
    items: Sequence[Item], *, annotators: Sequence[str], overlap: int, batch_size: int, seed: int
) -> list[Assignment]:
    """Give each item to ``overlap`` different annotators, so that their loads differ by one at the most.

    Batch ``n`` holds the ``n``-th ``batch_size`` of ``items``. Within a batch every annotator has an order of their
    own, so that nobody's tiredness falls on the same items as another's.

    Returns:
        the assignments in the order of annotator (as given) and position; none where ``overlap`` is 0.

    Raises:
        BadParams: an annotator twice, or fewer annotators than ``overlap``.
    """
    if len(set(annotators)) < max(len(annotators), overlap):
        detail = f"{len(set(annotators))} different names of {len(annotators)}, and an item needs {overlap}"
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


def release(waiting: Sequence[T], *, used: int, cap: int) -> list[T]:
    """Return the next of ``waiting`` that today's ``cap`` still has room for, ``used`` of it being taken."""
    return list(waiting[: max(0, cap - used)])


def _least(annotators: Sequence[str], *, loads: Counter[str], overlap: int, key: str, item: Item) -> list[str]:
    """Return the ``overlap`` annotators with the least to do; a hash decides among equals, so that pairs vary."""
    return sorted(annotators, key=lambda a: (loads[a], _hash(item, key=f"{key}/{a}"), a))[:overlap]


def _shuffled(items: Collection[Item], *, key: str) -> list[Item]:
    return sorted(items, key=lambda item: (_hash(item, key=key), item))


def _hash(item: Item, *, key: str) -> bytes:
    # a key of BLAKE2b has at most 64 bytes, so the key is hashed along instead
    return hashlib.blake2b(f"{key}/{item[0]}/{item[1]}".encode(), digest_size=16).digest()
