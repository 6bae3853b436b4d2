"""The tests equal scipy's and scikit-posthocs', use one item of each unit, and adjust for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scikit_posthocs
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipelines.evaluate.analysis import group_comparison as comparison
from pipelines.evaluate.analysis.group_comparison import Factor, Plan, by_feature, compare
from tests.analysis import simulated_features

PLAN = Plan(alpha=0.05, confidence=0.95, least=5, seed=1)
# few values, so that there are many ties
SAMPLES = st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=12), min_size=2, max_size=4)


def given_samples(samples: list[list[int]]) -> dict[str, np.ndarray[Any, Any]]:
    return {f"level {i}": np.array(sample, float) for i, sample in enumerate(samples)}


def compared(samples: dict[str, Any], plan: Plan = PLAN) -> dict[str, Any]:
    values = np.concatenate(list(samples.values()))
    levels = [name for name, sample in samples.items() for _ in sample]
    factors = {"f": Factor(tuple(samples), levels)}
    found = compare({"x": values}, factors=factors, units=[*map(str, range(len(values)))], plan=plan)
    test: dict[str, Any] = found["factors"]["f"]["x"]
    return test


@given(SAMPLES)
def test_the_test_of_all_levels_is_scipys(drawn: list[list[int]]) -> None:
    samples = given_samples(drawn)
    test = compared(samples)
    if np.ptp(np.concatenate(list(samples.values()))) == 0:
        assert "p" not in test
        return
    h, p = stats.kruskal(*samples.values())
    assert (test["h"], test["p"]) == pytest.approx((h, p))
    assert test["p_adjusted"] == pytest.approx(max(p, test.get("p_permuted", 0)))
    assert [level["n"] for level in test["levels"].values()] == [*map(len, drawn)]
    for name, level in test["levels"].items():
        sample = samples[name]
        assert (level["mean"], level["median"]) == pytest.approx((sample.mean(), np.median(sample)))
        if sample.std() > 0:
            low, high = stats.ttest_1samp(sample, 0).confidence_interval()
            assert (level["low"], level["high"]) == pytest.approx((low, high))


@given(SAMPLES)
def test_pairs_are_dunns_of_scikit_posthocs(drawn: list[list[int]]) -> None:
    samples = given_samples(drawn)
    if np.ptp(np.concatenate(list(samples.values()))) == 0:
        return
    for adjustment in (None, "bonferroni"):
        theirs = scikit_posthocs.posthoc_dunn(list(samples.values()), p_adjust=adjustment).to_numpy()
        names, pairs = list(samples), len(samples) * (len(samples) - 1) / 2
        for (a, b), (_, p) in comparison.dunn(samples).items():
            ours = p if adjustment is None else min(1.0, p * pairs)
            assert ours == pytest.approx(theirs[names.index(a), names.index(b)])


@given(SAMPLES)
def test_effect_sizes_have_their_definitions(drawn: list[list[int]]) -> None:
    a, b = map(np.array, drawn[:2])
    found = comparison.cliffs_delta(a.astype(float), b.astype(float), confidence=0.95)
    assert found["value"] == pytest.approx(np.sign(a[:, None] - b[None]).mean())
    if abs(found["value"]) < 1:
        assert -1 <= found["low"] <= found["value"] <= found["high"] <= 1
    u = stats.mannwhitneyu(a, b).statistic
    assert found["value"] == pytest.approx(2 * u / (len(a) * len(b)) - 1)


@pytest.mark.parametrize(("h", "k", "n"), [(20.0, 6, 300), (4.0, 2, 60), (300.0, 6, 1000)])
def test_the_interval_of_eta_squared_inverts_the_noncentral_chi_square(h: float, k: int, n: int) -> None:
    found = comparison.eta_squared(h, k=k, n=n, confidence=0.95)
    assert found["value"] == pytest.approx((h - k + 1) / (n - k))
    for end, tail in (("low", 0.975), ("high", 0.025)):
        if found[end]:
            assert stats.ncx2.cdf(h, k - 1, found[end] * (n - k)) == pytest.approx(tail, abs=1e-6)
    assert found["low"] <= found["value"] <= found["high"]


def test_no_difference_has_an_interval_from_0() -> None:
    assert comparison.eta_squared(0.01, k=6, n=300, confidence=0.95) == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert comparison.eta_squared(5.0, k=6, n=300, confidence=0.95)["low"] == 0.0


def test_a_unit_gives_one_item_to_a_test() -> None:
    values = np.arange(60.0)
    factor = Factor(("a", "b"), ["a", "b"] * 30)
    units = [str(i // 3) for i in range(60)]
    found = compare({"x": values, "y": values}, factors={"f": factor}, units=units, plan=PLAN)["factors"]["f"]
    assert found["x"]["n"] == 20
    assert found["x"] == found["y"], "one draw for all tests"
    other = compare({"x": values}, factors={"f": factor}, units=units, plan=Plan(0.05, 0.95, 5, 2))
    assert other["factors"]["f"]["x"]["h"] != found["x"]["h"]
    # an item without a value does not stand for its unit
    gaps = values.copy()
    gaps[::3] = np.nan
    assert compare({"x": gaps}, factors={"f": factor}, units=units, plan=PLAN)["factors"]["f"]["x"]["n"] == 20


def test_the_family_has_every_test_and_pairs_have_all_pairs() -> None:
    rng = np.random.default_rng(1)
    level = np.repeat(["a", "b", "c"], 40)
    values = {"far": rng.normal(size=120) + 3 * (level == "c"), "near": rng.normal(size=120), "same": np.ones(120)}
    factors = {"f": Factor(("a", "b", "c"), list(level)), "g": Factor(("x", "y"), ["x", "y"] * 60)}
    found = compare(values, factors=factors, units=[*map(str, range(120))], plan=PLAN)
    assert found["family"] == 4, "a constant feature is not tested"
    far, near = (found["factors"]["f"][name] for name in ("far", "near"))
    assert far["p_adjusted"] == pytest.approx(4 * far["p"])
    assert (near["significant"], "pairs" in near) == (False, False), "pairs follow a significant test only"
    pairs = {(p["a"], p["b"]): p for p in far["pairs"]}
    assert [p["significant"] for p in pairs.values()] == [False, True, True]
    for pair in pairs.values():
        assert pair["p_adjusted"] == pytest.approx(min(1, 12 * max(pair["p"], pair["p_wilcoxon"])))
        assert "p_permuted" not in pair
    ps = [test["p"] for tests in found["factors"].values() for test in tests.values() if "p" in test]
    qs = [test["q"] for tests in found["factors"].values() for test in tests.values() if "p" in test]
    assert qs == pytest.approx(stats.false_discovery_control(ps))


def test_the_papers_tests_take_each_feature_by_itself_and_every_item() -> None:
    """FigSIM 4.3: Kruskal-Wallis and Dunn, Bonferroni over the pairs of one feature."""
    rng = np.random.default_rng(1)
    level = np.repeat(["a", "b", "c"], 40)
    values = {"far": rng.normal(size=120) + 0.7 * (level == "c"), **{f"x{i}": rng.normal(size=120) for i in range(49)}}
    factors = {"f": Factor(("a", "b", "c"), list(level))}
    found = by_feature(values, factors=factors, plan=PLAN)["f"]["far"]
    assert found == by_feature({"far": values["far"]}, factors=factors, plan=PLAN)["f"]["far"]
    samples = {name: values["far"][level == name] for name in "abc"}
    assert (found["n"], found["p"]) == (120, pytest.approx(stats.kruskal(*samples.values()).pvalue))
    frame = scikit_posthocs.posthoc_dunn([*samples.values()], p_adjust="bonferroni")
    assert [pair["p_adjusted"] for pair in found["pairs"]] == pytest.approx(
        [frame.loc[1, 2], frame.loc[1, 3], frame.loc[2, 3]]
    )
    assert found["significant"] and [pair["significant"] for pair in found["pairs"]] == [False, True, True]
    stricter = by_feature(values, factors=factors, plan=replace(PLAN, alpha=1e-9))["f"]["far"]
    assert not stricter["significant"] and not any(pair["significant"] for pair in stricter["pairs"])
    short = {"f": Factor(("a", "b"), list(level[:44]))}
    few = by_feature({"x": values["far"][:44], "same": np.ones(44)}, factors=short, plan=PLAN)
    assert few == {"f": {}}, "neither a level of four nor a constant feature is tested"


def test_a_level_of_too_few_units_is_left_out() -> None:
    samples = {"a": np.arange(9.0), "b": np.arange(9.0) + 5, "few": np.arange(4.0)}
    test = compared(samples)
    assert (test["left_out"], list(test["levels"]), test["df"], test["n"]) == (["few"], ["a", "b"], 1, 18)
    alone = compared({"a": samples["a"], "few": samples["few"]})
    assert "p" not in alone
    assert "few" not in alone["levels"]


def test_planted_differences_are_found_and_no_others() -> None:
    """One seed; the slow tier has 400."""
    drawn = simulated_features.draw(3)
    found = compare(drawn.features, factors=drawn.factors, units=drawn.units, plan=PLAN)["factors"]
    sure = {(factor, name) for factor, tests in found.items() for name, test in tests.items() if test["significant"]}
    assert sure == {("severity", name) for name in simulated_features.PLANTED}


def rare(values: list[float], *, zeros: int) -> np.ndarray[Any, Any]:
    return np.array([*values, *[0.0] * zeros])


def test_a_rare_value_in_a_small_level_is_not_taken_for_a_difference() -> None:
    """Two of three items of 300 with a word are among six: by chance once in 1,000 times, by chi-square never."""
    samples = {"few": rare([1, 2], zeros=4), "many": rare([3], zeros=293)}
    test = compared(samples, Plan(alpha=5e-4, confidence=0.95, least=5, seed=1))
    assert test["p"] < 1e-14
    assert test["p_permuted"] == pytest.approx(stats.hypergeom(300, 3, 6).sf(1), rel=0.3)
    assert test["p_adjusted"] == test["q"] == test["p_permuted"]
    assert not test["significant"]


def test_a_rare_value_of_most_of_a_level_is_a_difference() -> None:
    samples = {"few": rare([1, 2, 3, 4, 5, 6], zeros=2), "b": rare([1, 2], zeros=200), "c": rare([2], zeros=200)}
    test = compared(samples)
    assert test["significant"] and test["p"] < test["p_permuted"] <= 0.02
    found = {(pair["a"], pair["b"]): pair for pair in test["pairs"]}
    assert [pair["significant"] for pair in found.values()] == [True, True, False]
    assert found["few", "b"]["p_permuted"] >= found["few", "b"]["p_wilcoxon"]
    assert "p_permuted" not in found["b", "c"]
