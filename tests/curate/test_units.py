"""Units and growth: whatever arrives in whatever order, nothing leaks and nothing that was placed moves."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from pipelines.core.config.params import load
from pipelines.curate.balance import Balance, BalanceColumns
from pipelines.curate.items import Links
from pipelines.curate.units import leakage, resolve
from tests.curate.small_corpus import REPO

SECTION = load(REPO).split["memes"].model_copy(update={"proposals": 300})


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Links, list[int]]:
    """Links among up to 40 items, and how many items there are after each growth."""
    n = draw(st.integers(1, 40))
    author = draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=n))
    pairs = [(a, b) for a, b in pairs if a < b]
    steps = draw(st.lists(st.integers(1, n), max_size=5))
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return Links(both[:, 0], both[:, 1], np.array(author, np.int64)), sorted({*steps, n})


def first(links: Links, n: int) -> Links:
    """The links among the first ``n`` items."""
    inside = (links.left < n) & (links.right < n)
    return Links(links.left[inside], links.right[inside], links.author[:n])


def place(links: Links, assigned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    units = resolve(links, assigned=assigned)
    within = np.flatnonzero(~units.excluded)
    items = np.arange(len(assigned))
    strata = BalanceColumns(["2", "3", "5"], sparse.csr_matrix((items[:, None] % [2, 3, 5] == 0).astype(np.int32)))
    none = BalanceColumns([], sparse.csr_matrix((len(items), 0), dtype=np.int32))
    balance = Balance(SECTION, none, none, strata, np.zeros(len(items), bool), None)
    return balance.place(units, within), units.unit


@given(corpora())
@settings(max_examples=150, deadline=None)
def test_growth_neither_leaks_nor_moves(corpus: tuple[Links, list[int]]) -> None:
    links, steps = corpus
    before = np.empty(0, np.int64)
    for n in steps:
        assigned = np.full(n, -1, np.int64)
        assigned[: len(before)] = before
        split, unit = place(first(links, n), assigned)
        assert (split[assigned >= 0] == assigned[assigned >= 0]).all()
        assert leakage(first(links, n), split=split) == 0
        placed = split >= 0
        groups = np.unique(np.column_stack([unit[placed], split[placed]]), axis=0)
        assert len(set(groups[:, 0].tolist())) == len(groups)
        before = split


@given(corpora())
@settings(max_examples=50, deadline=None)
def test_without_a_past_nothing_is_left_out(corpus: tuple[Links, list[int]]) -> None:
    links, _ = corpus
    units = resolve(links, assigned=np.full(len(links.author), -1, np.int64))
    assert not units.excluded.any()
    assert (units.held == -1).all()
    assert (units.unit[links.left] == units.unit[links.right]).all()


def test_leakage_counts_pairs_and_authors() -> None:
    links = Links(np.array([0, 1]), np.array([1, 2]), np.array([0, 1, 2, 0, 0]))
    assert leakage(links, split=np.array([0, 1, 1, 0, -1])) == 1
    assert leakage(links, split=np.array([0, 1, 0, 1, 1])) == 3
