"""Hide small counts, and those that would give them away by subtraction from a total.

One rule for the stages ``analysis`` and ``moderation``: no count from 1 to ``least`` - 1 is shown, and a line of a
table that would hide exactly one count hides its next smallest one, too, because the line's total would give it away
(complementary suppression; Cox 1980). 0 is shown, but not in a line whose total is itself small: its zeros would say
what the few have in common. ``least`` is ``analysis.least``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = dict[str, int | None]


def shown(counts: Mapping[str, int], *, least: int) -> Counts:
    """Return the counts of one line, ``None`` where they are hidden."""
    hide = _hidden(np.array([list(counts.values())], np.int64).reshape(1, -1), least=least, columns=False)[0]
    return {name: None if gone else int(n) for (name, n), gone in zip(counts.items(), hide, strict=True)}


def of_units(items: Sequence[str], *, least: int) -> int:
    """Return the number of items, each given by its unit (author or group of near-duplicates), that the rule judges.

    Items of fewer than ``least`` units count as a small cell, however many they are.
    """
    return len(items) if len(set(items)) >= least else min(len(items), least - 1)


def shown_table(
    counts: NDArray[np.int64], *, rows: Sequence[str], columns: Sequence[str], least: int
) -> dict[str, Counts]:
    """Return the counts (rows, columns) of a table by row and column, ``None`` where they are hidden."""
    hide = _hidden(counts, least=least, columns=True)
    return {
        row: {column: None if hide[i, j] else int(counts[i, j]) for j, column in enumerate(columns)}
        for i, row in enumerate(rows)
    }


def _hidden(counts: NDArray[np.int64], *, least: int, columns: bool) -> NDArray[np.bool_]:
    hide = (counts > 0) & (counts < least)
    lines: list[Any] = [(i, slice(None)) for i in range(counts.shape[0])]
    lines += [(slice(None), j) for j in range(counts.shape[1])] if columns else []
    changed = True
    while changed:
        changed = False
        for line in lines:
            alone, rest = hide[line], counts[line]
            others = np.flatnonzero(~alone & (rest > 0))
            if alone.sum() == 1 and len(others):
                alone[others[np.argmin(rest[others])]] = changed = True
    for axis in (0, 1) if columns else (1,):
        total = counts.sum(axis=axis, keepdims=True)
        hide = hide | ((total > 0) & (total < least))
    return hide
