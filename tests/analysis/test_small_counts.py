"""Small counts are hidden, and no total gives one away."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.analysis import label_counts
from pipelines.analysis.small_counts import shown, shown_table

TABLES = arrays.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(0, 12))


def test_a_single_small_count_hides_the_next_one_too() -> None:
    assert shown({"a": 3, "b": 9, "c": 7, "d": 0}, least=5) == {"a": None, "b": 9, "c": None, "d": 0}
    assert shown({"a": 3, "b": 2, "c": 7}, least=5) == {"a": None, "b": None, "c": 7}
    assert shown({"a": 3}, least=5) == {"a": None}


@given(TABLES)
def test_no_line_of_a_table_hides_one_count_that_a_total_tells(counts: Any) -> None:
    rows, columns = [f"r{i}" for i in range(len(counts))], [f"c{i}" for i in range(len(counts[0]))]
    table = shown_table(counts, rows=rows, columns=columns, least=5)
    hidden = np.array([[table[r][c] is None for c in columns] for r in rows])
    assert not (~hidden & (counts > 0) & (counts < 5)).any()
    assert not (hidden & (counts == 0)).any()
    for lines, of in ((hidden, counts), (hidden.T, counts.T)):
        for line, values in zip(lines, of, strict=True):
            assert line.sum() != 1 or (values > 0).sum() == 1


def test_a_month_of_few_authors_is_hidden_whatever_they_posted() -> None:
    months = ["2022-11"] * 40 + ["2022-12"] * 30 + ["2023-01"] * 20 + [""]
    units = ["one"] * 40 + [f"u{i}" for i in range(30)] + [f"v{i}" for i in range(20)] + ["imported"]
    assert label_counts.by_month(months, units=units, least=5) == {"2022-11": None, "2022-12": 30, "2023-01": None}
