"""Hide small counts, and those that would give them away by subtraction from a total.

The metrics of the analysis have no count from 1 to ``least`` - 1, and no second way to it: a line of a table that
would hide exactly one count hides its next smallest one, too (complementary suppression; Cox 1980). 0 is shown.
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
    return hide
