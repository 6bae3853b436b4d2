"""Over 400 seeds, planted differences are found, and false findings, pairs included, are as rare as promised.

``docs/log/tests.md`` has the figures of these runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipelines.evaluate.analysis.group_comparison import Factor, Plan, compare
from tests.analysis import simulated_features as simulated
from tests.analysis.simulated_features import EQUAL, PLANTED, RAISED

pytestmark = pytest.mark.faults

SEEDS = 400
PLAN = Plan(alpha=0.05, confidence=0.95, least=5, seed=1)
# three standard errors of a share of .05
MOST = 0.05 + 3 * (0.05 * 0.95 / SEEDS) ** 0.5


def false_findings(found: dict[str, Any]) -> int:
    """Return how many tests and pairs are significant although the levels do not differ."""
    false = 0
    for factor, features in found["factors"].items():
        for name, test in features.items():
            differs = factor == "severity" and name in PLANTED
            false += test["significant"] and not differs
            for pair in test.get("pairs", ()):
                equal = not differs or (pair["a"] in EQUAL) == (pair["b"] in EQUAL)
                false += pair["significant"] and equal
    return false


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    runs = []
    for seed in range(SEEDS):
        drawn = simulated.draw(seed)
        runs.append(compare(drawn.features, factors=drawn.factors, units=drawn.units, plan=PLAN))
    return runs


def test_planted_differences_are_found_in_95_percent_of_the_seeds(runs: list[dict[str, Any]]) -> None:
    for name in PLANTED:
        found = [run["factors"]["severity"][name] for run in runs]
        assert np.mean([test["significant"] for test in found]) >= 0.95, name
        # at least one of the pairs of a raised and another level, too
        pairs = [
            any(p["significant"] and (p["a"] in RAISED) != (p["b"] in RAISED) for p in test.get("pairs", ()))
            for test in found
        ]
        assert np.mean(pairs) >= 0.95, name


def test_the_family_wise_error_is_at_most_alpha_beside_planted_differences(runs: list[dict[str, Any]]) -> None:
    assert np.mean([false_findings(run) > 0 for run in runs]) <= MOST


def test_the_family_wise_error_is_at_most_alpha_without_any_difference() -> None:
    false = ignored = 0
    for seed in range(SEEDS):
        drawn = simulated.draw(10_000 + seed, planted=False)
        found = compare(drawn.features, factors=drawn.factors, units=drawn.units, plan=PLAN)
        false += any(test["significant"] for tests in found["factors"].values() for test in tests.values())
        # each meme as if it were independent of all others
        alone = compare(drawn.features, factors=drawn.factors, units=[*map(str, range(len(drawn.units)))], plan=PLAN)
        ignored += any(test["significant"] for tests in alone["factors"].values() for test in tests.values())
    assert false / SEEDS <= MOST
    # the simulation would show an error: without one meme per group it is beyond the bound
    assert ignored / SEEDS > MOST


def test_rare_words_are_seldom_told_apart_by_chance() -> None:
    """With shares that are 0 for most memes and a level of eight memes, chi-square alone is far beyond the bound."""
    false = alone = 0
    for seed in range(SEEDS):
        drawn = simulated.rare(20_000 + seed)
        found = compare(drawn.features, factors=drawn.factors, units=drawn.units, plan=PLAN)
        tests = [test for tests in found["factors"].values() for test in tests.values() if "p" in test]
        false += any(test["significant"] for test in tests)
        alone += any(test["p"] * found["family"] <= PLAN.alpha for test in tests)
    assert false / SEEDS <= MOST
    assert alone / SEEDS > MOST


def test_equal_levels_beside_levels_between_their_values_are_seldom_told_apart() -> None:
    """Two equal, wide levels and a large one in the middle: Dunn's variance is too small for the pair."""
    together = dunn = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        values = np.concatenate(
            [rng.choice([-1, 1], 40) * rng.uniform(5, 6, 40) for _ in range(2)] + [rng.normal(1, 1, 400)]
        )
        factor = Factor(("a", "b", "between"), ["a"] * 40 + ["b"] * 40 + ["between"] * 400)
        units = [*map(str, range(480))]
        found = compare({"x": values}, factors={"f": factor}, units=units, plan=PLAN)["factors"]["f"]["x"]
        pair = next((p for p in found.get("pairs", ()) if (p["a"], p["b"]) == ("a", "b")), None)
        together += bool(pair and pair["significant"])
        dunn += bool(pair and pair["p"] <= 0.05)
    assert together / SEEDS <= MOST
    assert dunn / SEEDS > MOST, "Dunn's test alone would tell the equal levels apart too often"


def test_intervals_of_effect_sizes_cover_them() -> None:
    """The true values: of a very large sample, drawn with the same shift."""
    rng = np.random.default_rng(0)
    sizes = (150, 150, 150)
    factor = Factor(("a", "b", "c"), [level for level, n in zip("abc", sizes, strict=True) for _ in range(n)])

    def drawn(n: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return np.concatenate([rng.normal(shift, 1, size) for shift, size in zip((0.0, 0.25, 0.5), n, strict=True)])

    large = drawn((10**6,) * 3)
    true = (stats.kruskal(*np.split(large, 3)).statistic - 2) / (3 * 10**6 - 3)
    delta = 2 * stats.norm.cdf(-0.5 / 2**0.5) - 1
    covered = np.zeros(2)
    for _ in range(SEEDS):
        found = compare(
            {"x": drawn(sizes)}, factors={"f": factor}, units=[*map(str, range(450))], plan=replace(PLAN, alpha=0.999)
        )["factors"]["f"]["x"]
        cell = found["eta_squared"]
        pair = next(p["delta"] for p in found["pairs"] if (p["a"], p["b"]) == ("a", "c"))
        covered += [cell["low"] <= true <= cell["high"], pair["low"] <= delta <= pair["high"]]
    assert (covered / SEEDS >= 0.95 - 3 * (0.05 * 0.95 / SEEDS) ** 0.5).all()
