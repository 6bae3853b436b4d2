"""Run the inner loops of the split: place groups of items one by one, then improve by simulated annealing.

The functions only index flat sequences and draw no random numbers. They therefore give the same result compiled by
numba (compilation takes 2 to 3 s and is cached on disk) and interpreted, about 60 times slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.curate.kernels import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class SplitState(NamedTuple):
    """The groups of items with their feature counts and splits, while the split is computed.

    The cost is the sum of weight * (count - target)^2 over features and splits.
    """

    start: Any  # unit u has the features start[u] to start[u + 1], sorted; its size comes first, as feature 0
    feature: Any
    amount: Any
    weight: Any  # by feature
    target: Any  # by feature * splits + split
    count: Any  # the same; changed in place
    split: Any  # by unit, -1 where not placed; changed in place
    splits: int
    free: Any  # the units that may move, similar ones next to each other
    taken: Any  # buffer for the units of one change


@compiled
def change(state: SplitState, u: int, v: int, a: int, b: int) -> float:
    """Return the change of cost if group ``u`` moves from split ``a`` to ``b`` and ``v`` moves back (-1: no group)."""
    start, feature, amount, splits = state.start, state.feature, state.amount, state.splits
    count, target = state.count, state.target
    i, end_u = start[u], start[u + 1]
    j, end_v = i, i
    if v >= 0:
        j, end_v = start[v], start[v + 1]
    total = 0.0
    while i < end_u or j < end_v:
        if j >= end_v or (i < end_u and feature[i] < feature[j]):
            f, c = feature[i], amount[i]
            i += 1
        elif i >= end_u or feature[j] < feature[i]:
            f, c = feature[j], -amount[j]
            j += 1
        else:
            f, c = feature[i], amount[i] - amount[j]
            i += 1
            j += 1
        if c != 0:
            at = f * splits
            gap = (count[at + b] - target[at + b]) - (count[at + a] - target[at + a])
            total += 2.0 * state.weight[f] * c * (gap + c)
    return total


@compiled
def shift(state: SplitState, u: int, a: int, b: int) -> None:
    """Move group ``u`` from split ``a`` (-1 if not placed yet) to split ``b``."""
    for i in range(state.start[u], state.start[u + 1]):
        at = state.feature[i] * state.splits
        if a >= 0:
            state.count[at + a] -= state.amount[i]
        state.count[at + b] += state.amount[i]
    state.split[u] = b


@compiled
def place(state: SplitState, share: Floats, seen: Ints, order: Ints) -> None:
    """Place each group in ``order`` in the split where the chi-square deviation from the target grows least.

    ``seen[f]`` is the amount of feature ``f`` placed so far; it is updated in place.
    """
    for k in range(len(order)):
        u = order[k]
        for i in range(state.start[u], state.start[u + 1]):
            seen[state.feature[i]] += state.amount[i]
        best, least = 0, 0.0
        for s in range(state.splits):
            growth = 0.0
            for i in range(state.start[u], state.start[u + 1]):
                f, c = state.feature[i], state.amount[i]
                growth += state.weight[f] * c * (2.0 * (state.count[f * state.splits + s] - share[s] * seen[f]) + c)
            growth /= share[s]
            if s == 0 or growth < least:
                best, least = s, growth
        shift(state, u, -1, best)


@compiled
def barter(state: SplitState, u: int, b: int, others: Ints, heat: float) -> None:
    """Swap the large group ``u`` for groups of split ``b`` of equal total size; undo it if the cost grows too much.

    The units of ``b`` are chosen among ``others``, in order. A swap with a single small unit would change the sizes of
    the splits too much, so that large units would never move.
    """
    a, missing, count = state.split[u], state.amount[state.start[u]], 0
    total = change(state, u, -1, a, b)
    shift(state, u, a, b)
    for k in range(len(others)):
        v = others[k]
        if state.split[v] == b and v != u and state.amount[state.start[v]] <= missing:
            total += change(state, v, -1, b, a)
            shift(state, v, b, a)
            state.taken[count] = v
            count += 1
            missing -= state.amount[state.start[v]]
            if missing == 0:
                break
    if total >= heat:
        shift(state, u, b, a)
        for k in range(count):
            shift(state, state.taken[k], a, b)


@compiled
def anneal(state: SplitState, first: Ints, other: Ints, hop: Ints, heat: Floats) -> None:
    """Try one random move or swap of groups at a time, and keep it if the cost grows by less than its ``heat``.

    Draw ``k`` swaps the units at positions ``first[k]`` and ``other[k]`` of ``state.free``; a larger unit is swapped
    against several units from the other's position on. If ``hop[k]`` is not 0, it instead moves the first unit that
    many splits on. ``heat`` is the temperature times a standard exponential draw, which is Metropolis' rule.
    """
    for k in range(len(first)):
        i, j = first[k], other[k]
        u, v = state.free[i], state.free[j]
        a, b = state.split[u], state.split[v]
        if hop[k] > 0:
            v, b = -1, (a + hop[k]) % state.splits
        if a == b:
            continue
        larger = 0 if v < 0 else state.amount[state.start[u]] - state.amount[state.start[v]]
        if larger > 0:
            barter(state, u, b, state.free[j : j + len(state.taken)], heat[k])
        elif larger < 0:
            barter(state, v, a, state.free[i : i + len(state.taken)], heat[k])
        elif change(state, u, v, a, b) < heat[k]:
            shift(state, u, a, b)
            if v >= 0:
                shift(state, v, b, a)


@compiled
def cheapest(state: SplitState, a: int, b: int, limit: int) -> int:
    """Return the group in split ``a`` with fewer than ``limit`` items that is cheapest to move to ``b``, or -1."""
    best, least = -1, 0.0
    for k in range(len(state.free)):
        u = state.free[k]
        if state.split[u] == a and state.amount[state.start[u]] < limit:
            cost = change(state, u, -1, a, b)
            if best < 0 or cost < least:
                best, least = u, cost
    return best
