"""Small counts are hidden, and no total gives one away."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.core.taxonomy import load
from pipelines.evaluate.analysis import analysis
from pipelines.evaluate.analysis.small_counts import shown, shown_table

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
    few = [((of > 0).any(axis=1) & (of.sum(axis=1) < 5)) for of in (counts, counts.T)]
    assert not (hidden & (counts == 0))[~few[0]][:, ~few[1]].any()
    assert hidden[few[0]].all() and hidden.T[few[1]].all()
    for lines, of in ((hidden, counts), (hidden.T, counts.T)):
        for line, values in zip(lines, of, strict=True):
            assert (line & (values > 0)).sum() != 1 or (values > 0).sum() == 1


def test_a_pair_of_labels_and_a_length_of_few_authors_are_hidden_whatever_they_posted() -> None:
    scheme = load("figsim")
    severity, figurative = scheme.categories["severity"], scheme.categories["figurative"]
    levels = ["None"] * 40 + ["Suicide ideation"] * 30 + ["Suicide planning"] * 20
    items = [(f"r{i}", 0) for i in range(90)]
    gold = {
        "severity": {item: frozenset({level}) for item, level in zip(items, levels, strict=True)},
        "figurative": dict.fromkeys(items, frozenset({"Metaphor"})),
    }
    units = dict(zip(items, ["one"] * 40 + [f"u{i}" for i in range(50)], strict=True))
    found = analysis.pair_counts(severity, figurative, gold=gold, units=units, least=5)
    assert found["counts"]["None"]["Metaphor"] is found["shares"]["None"]["Metaphor"] is None
    assert found["counts"]["Suicide ideation"]["Metaphor"] == 30
    lengths = analysis.by_length([3] * 40 + [30] * 30 + [8] * 20, units=[*units.values()], least=5)["classes"]
    assert (lengths["1–4"], lengths["20–49"], lengths["5–9"]) == (None, 30, None)


def test_the_number_without_words_is_hidden_where_it_is_small() -> None:
    units = [f"u{i}" for i in range(20)]
    rows = np.arange(20)
    assert analysis.masked(rows < 3, units=units, least=5) is None
    assert analysis.masked(rows < 7, units=units, least=5) == 7
    assert analysis.masked(rows < 0, units=units, least=5) == 0
    assert analysis.masked(rows < 18, units=units, least=5) is None, "two would be what is left of all"


def test_a_month_of_few_authors_is_hidden_whatever_they_posted() -> None:
    months = ["2022-11"] * 40 + ["2022-12"] * 30 + ["2023-01"] * 20 + [""]
    units = ["one"] * 40 + [f"u{i}" for i in range(30)] + [f"v{i}" for i in range(20)] + ["imported"]
    assert analysis.by_month(months, units=units, least=5) == {"2022-11": None, "2022-12": 30, "2023-01": None}
