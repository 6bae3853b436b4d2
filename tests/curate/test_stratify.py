"""The splitter on T8's marginals (SPEC.md section 2.1's gates), its bounds, and its promises on any input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bench.split import PROPOSALS, SIZES, figsim, figures, ours, theirs
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.curate.balance import Balance, BalanceColumns
from pipelines.curate.items import Links
from pipelines.curate.stratify import certificate, label_pairs, stratify, unit_counts
from pipelines.curate.units import leakage, resolve, target_sizes
from pipelines.workspace.scratch import step_environment
from tests.curate.small_corpus import REPO

RATIOS = {"train": 60, "validation": 20, "test": 20}
# FigSIM Table 8, row by row: Train, Val, Test.
TABLE_8 = [
    [97, 73, 499, 88, 113, 207, 98, 100, 18, 97, 159, 49, 42, 169, 13, 240, 572, 44, 17, 553, 80],
    [32, 24, 165, 29, 37, 66, 33, 34, 6, 32, 54, 16, 14, 56, 4, 79, 187, 15, 6, 181, 27],
    [32, 24, 169, 29, 39, 66, 32, 33, 6, 32, 53, 16, 14, 57, 4, 82, 187, 15, 6, 182, 26],
]
Problem = tuple[np.ndarray, sparse.csr_matrix]  # unit sizes, item x label
INTERPRETED = """
import numpy as np
from bench.split import figsim, ours
print(ours(*figsim(3), seed=3, proposals=3000).tolist())
"""

CODE = """
from pipelines.curate.kernels import compiled

@compiled
def more(x: int) -> int:
    return x + {added}
"""
TOLD = """
import importlib.util, json, sys
told = []
for file in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("kernel", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = module.more(1)
    told.append([answer, sum(module.more.stats.cache_hits.values())])
print(json.dumps(told))
"""


def test_sizes_go_by_largest_remainder() -> None:
    assert target_sizes(1049, ratios=SIZES) == [633, 208, 208]
    assert target_sizes(1049, ratios=RATIOS) == [629, 210, 210]
    assert target_sizes(2, ratios={"train": 0.6, "validation": 0.2, "test": 0.2}) == [1, 1, 0]
    assert target_sizes(100, ratios=RATIOS, floor=[80, 0, 5]) == [80, 10, 10]
    assert target_sizes(0, ratios=RATIOS) == [0, 0, 0]


@given(st.integers(0, 10_000), st.lists(st.integers(1, 99), min_size=1, max_size=5), st.data())
def test_sizes_add_up_and_respect_what_is_held(items: int, weights: list[int], data: st.DataObject) -> None:
    ratios = {str(i): w for i, w in enumerate(weights)}
    floor = [0] * len(weights)
    for i in range(len(weights)):
        floor[i] = data.draw(st.integers(0, items - sum(floor)))
    sizes = target_sizes(items, ratios=ratios, floor=floor)
    assert sum(sizes) == items
    assert all(s >= f for s, f in zip(sizes, floor, strict=True))
    fair = target_sizes(items, ratios=ratios)
    assert all(abs(s - items * w / sum(weights)) < 1 for s, w in zip(fair, weights, strict=True))


def test_the_certificate_finds_the_papers_own_deviations() -> None:
    split = np.repeat([0, 1, 2], [633, 208, 208])
    begins = [0, 633, 841]
    matrix = np.zeros((1049, 21), int)
    for begin, counts in zip(begins, TABLE_8, strict=True):
        for column, count in enumerate(counts):
            matrix[begin : begin + count, column] = 1
    report = certificate(split, sparse.csr_matrix(matrix), names=[str(i) for i in range(21)], ratios=SIZES)
    assert (round(report["max_deviation"], 2), round(report["mean_deviation"], 3)) == (3.83, 0.613)
    assert (round(report["bound_max"], 3), round(report["bound_mean"], 3)) == (0.654, 0.240)


# 2046, 2140 and 2188 froze before fresh starts were added: 7 s each
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.faults) for n in (2, 2046, 2140, 2188))])
def test_gates_on_the_papers_marginals(seed: int) -> None:
    matrix, group = figsim(seed, alike=seed % 2 == 0)
    assert 0.11 < (np.bincount(group)[group] > 1).mean() < 0.13
    report = figures(matrix, group, ours(matrix, group, seed=seed, proposals=PROPOSALS))
    assert report["sizes"] == SIZES
    assert report["max_deviation"] <= 0.75
    assert report["mean_deviation"] <= 0.25
    assert report["straddling_groups"] == 0
    baseline = figures(matrix, group, theirs(matrix, seed=seed))
    assert baseline["max_deviation"] > report["max_deviation"]
    assert baseline["mean_deviation"] > report["mean_deviation"]


# a million items, the requirement, and a tenth of them
@pytest.mark.faults
@pytest.mark.parametrize("times", [95, 954])
def test_at_scale(times: int) -> None:
    matrix, group = figsim(0, times=times)
    split = ours(matrix, group, seed=0, proposals=PROPOSALS)
    report = figures(matrix, group, split)
    assert report["sizes"] == report["target_sizes"]
    assert report["max_deviation"] < 2
    assert report["straddling_groups"] == 0


def test_interpreted_and_compiled_agree() -> None:
    argv = [sys.executable, "-c", INTERPRETED]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    interpreted = subprocess.run(argv, cwd=REPO, env=environment, capture_output=True, text=True, check=True)
    compiled = ours(*figsim(3), seed=3, proposals=3000)
    assert json.loads(interpreted.stdout) == compiled.tolist()


@st.composite
def problems(draw: st.DrawFn, largest: int = 6) -> Problem:
    """Units of up to ``largest`` items, each item with any of four labels."""
    sizes = np.array(draw(st.lists(st.integers(1, largest), min_size=1, max_size=40)), np.int64)
    items = draw(st.lists(st.integers(0, 15), min_size=int(sizes.sum()), max_size=int(sizes.sum())))
    matrix = sparse.csr_matrix((np.array(items)[:, None] >> np.arange(4)) & 1)
    return sizes, matrix


def solve(problem: Problem, *, assigned: np.ndarray | None = None, seed: int = 1) -> np.ndarray:
    sizes, matrix = problem
    unit = np.repeat(np.arange(len(sizes)), sizes)
    pairs = unit_counts(unit, label_pairs(matrix))
    labels = unit_counts(unit, matrix)
    return stratify(sizes, labels, ratios=RATIOS, seed=seed, proposals=400, pairs=pairs, assigned=assigned)


def off(sizes: np.ndarray, split: np.ndarray, floor: list[int] | None = None) -> int:
    found = np.bincount(split, weights=sizes, minlength=3)
    return int(np.abs(found - target_sizes(int(sizes.sum()), ratios=RATIOS, floor=floor)).max())


@given(problems())
@settings(max_examples=80, deadline=None)
def test_sizes_miss_by_no_more_than_the_largest_unit(problem: Problem) -> None:
    split = solve(problem)
    assert set(split.tolist()) <= {0, 1, 2}
    assert off(problem[0], split) <= problem[0].max()


@given(problems(largest=1))
@settings(max_examples=60, deadline=None)
def test_sizes_are_exact_where_units_are_single_items(problem: Problem) -> None:
    assert off(problem[0], solve(problem)) == 0


@given(problems(), st.data())
@settings(max_examples=80, deadline=None)
def test_assigned_units_never_move(problem: Problem, data: st.DataObject) -> None:
    n = len(problem[0])
    assigned = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)), np.int64)
    split = solve(problem, assigned=assigned)
    assert (split[assigned >= 0] == assigned[assigned >= 0]).all()
    floor = [int(problem[0][assigned == s].sum()) for s in range(3)]
    assert off(problem[0], split, floor) <= problem[0].max()


@given(problems(), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_the_same_seed_gives_the_same_split(problem: Problem, seed: int) -> None:
    assert (solve(problem, seed=seed) == solve(problem, seed=seed)).all()


def test_pairs_are_counted_by_item() -> None:
    items = sparse.csr_matrix(np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0]]))
    assert label_pairs(items).toarray().tolist() == [[1, 1, 1], [0, 0, 0], [0, 1, 0]]


def test_clones_share_what_is_compiled_by_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    environment = step_environment(Settings.from_env())
    files = []
    for clone, added in {"one": 1, "two": 1, "three": 2}.items():
        files.append(tmp_path / clone / "kernel.py")
        files[-1].parent.mkdir()
        files[-1].write_text(CODE.format(added=added))
    told = subprocess.run(
        [sys.executable, "-c", TOLD, *map(str, files)],
        cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(told) == [[2, 0], [2, 1], [3, 0]]
    assert list((tmp_path / "kernels").rglob("*.nbi"))


# units and growth: whatever arrives in whatever order, nothing leaks and nothing that was placed moves
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
        assert leakage(first(links, n), split=split, imported=np.zeros(n, bool)) == 0
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
    none = np.zeros(5, bool)
    assert leakage(links, split=np.array([0, 1, 1, 0, -1]), imported=none) == 1
    assert leakage(links, split=np.array([0, 1, 0, 1, 1]), imported=none) == 3
    assert leakage(links, split=np.array([0, 1, 0, 1, 1]), imported=np.arange(5) < 2) == 2, "of items of ours"
    assert leakage(links, split=np.array([0, 1, 0, 1, 1]), imported=~none) == 0
