"""Form the training batches of an epoch, and prepare their tensors ahead of use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

# Ours: batches that are sorted together. A larger value pads less, a smaller one mixes better (transformers 4 took 50).
MEGA = 16

T = TypeVar("T")
R = TypeVar("R")


def shuffled(lengths: Sequence[int], *, batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the training batches of one epoch, as lists of positions of examples; each position is in one batch.

    Equal arguments give equal batches.

    All positions are shuffled and cut into runs of :data:`MEGA` batches; each run is sorted by length, and the batches
    are shuffled again. Examples of similar length share a batch, and batches differ between epochs. A last batch of one
    is appended to the batch before it, because a batch of one cannot be normalised (batch normalisation of the image
    models).
    """
    random = np.random.default_rng([seed, epoch])
    order: list[int] = random.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for begin in range(0, len(order), MEGA * batch):
        alike = sorted(order[begin : begin + MEGA * batch], key=lambda i: -lengths[i])
        batches += cut(alike, batch=batch)
    if len(batches) > 1 and len(batches[-1]) == 1:
        alone = batches.pop()
        batches[-1] += alone
    return [batches[i] for i in random.permutation(len(batches))]


def cut(rows: Sequence[int], *, batch: int) -> list[list[int]]:
    """Split ``rows`` into parts of ``batch`` rows; the last part may be shorter."""
    return [list(rows[i : i + batch]) for i in range(0, len(rows), batch)]


def ahead(make: Callable[[T], R], items: Iterable[T], *, workers: int) -> Iterator[R]:
    """Yield ``make(item)`` in order, while threads prepare up to 2 * ``workers`` further items."""
    if not workers:
        yield from map(make, items)
        return
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
