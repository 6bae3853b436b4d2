"""Every coefficient against an independent library, the papers' printed figures, and what must not matter."""

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import masi_distance
from sklearn.metrics import cohen_kappa_score, jaccard_score

from pipelines.metrics import agreement_coefficients as c


def answers(rng: np.random.Generator, *, items: int, raters: int, classes: int, missing: float = 0.0) -> c.Codes:
    """Raters who see the same truth and err in a third of the items."""
    truth = rng.choice(classes, size=items, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    codes = np.where(
        rng.random((items, raters)) < 0.35, rng.integers(0, classes, size=(items, raters)), truth[:, None]
    ).astype(np.int64)
    codes[rng.random((items, raters)) < missing] = c.MISSING
    return codes


def sets_of(rng: np.random.Generator, *, items: int, raters: int = 2, labels: int = 3) -> c.Codes:
    truth = rng.random((items, 1, labels)) < 0.35
    return (truth ^ (rng.random((items, raters, labels)) < 0.15)).astype(np.int64)


def of_table(both: int, one: int, other: int, neither: int) -> c.Codes:
    return np.repeat(np.array([[1, 1], [1, 0], [0, 1], [0, 0]]), [both, one, other, neither], axis=0)


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


@pytest.mark.parametrize("weights", [None, "quadratic"])
def test_kappa_is_scikit_learns(rng: np.random.Generator, weights: str | None) -> None:
    codes = answers(rng, items=120, raters=2, classes=5)
    ours = c.kappa(codes, classes=5, quadratic=weights is not None)
    theirs = cohen_kappa_score(codes[:, 0], codes[:, 1], labels=range(5), weights=weights)
    assert ours == pytest.approx([theirs])


def test_kappa_of_three_raters_is_the_mean_of_their_pairs(rng: np.random.Generator) -> None:
    codes = answers(rng, items=80, raters=3, classes=3)
    pairs = [cohen_kappa_score(codes[:, a], codes[:, b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert c.kappa(codes, classes=3) == pytest.approx([np.mean(pairs)])
    codes = np.array([[0, 0, -1], [1, 1, -1], [0, -1, 0], [1, -1, 1], [-1, 0, -1]])
    # the second and the third rater share no item: their pair is undefined and left out
    assert c.kappa(codes, classes=2) == pytest.approx([1.0])


@pytest.mark.parametrize("raters", [2, 4])
@pytest.mark.parametrize("level", ["nominal", "ordinal"])
def test_alpha_is_the_krippendorff_packages(rng: np.random.Generator, raters: int, level: str) -> None:
    codes = answers(rng, items=70, raters=raters, classes=5, missing=0.2)
    data = np.where(codes == c.MISSING, np.nan, codes).T
    ours = c.ordinal_alpha(codes, classes=5) if level == "ordinal" else c.alpha(codes, distance=c.nominal(5))
    theirs = krippendorff.alpha(reliability_data=data, value_domain=list(range(5)), level_of_measurement=level)
    assert ours == pytest.approx([theirs])


@pytest.mark.parametrize("raters", [2, 3])
def test_masi_alpha_is_nltks(rng: np.random.Generator, raters: int) -> None:
    # nltk cannot divide by two empty sets, so every set has a label that all agree on
    sets = sets_of(rng, items=60, raters=raters)
    sets = np.concatenate([np.ones((60, raters, 1), dtype=np.int64), sets], axis=2)
    codes, known = c.distinct(sets)
    data = [
        (str(rater), str(item), frozenset(np.flatnonzero(sets[item, rater]).tolist()))
        for item in range(60)
        for rater in range(raters)
    ]
    ours = c.alpha(codes, distance=c.masi(known))

    # nltk writes 2/3 and 1/3 with two digits
    assert ours == pytest.approx([AnnotationTask(data, distance=masi_distance).alpha()], abs=0.005)


def test_masi_takes_passonneaus_four_cases() -> None:
    equal, within, overlap, apart, empty = [1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]
    distance = c.masi(np.array([equal, within, overlap, apart, empty]))
    assert distance[0] == pytest.approx([0, 1 - 1 / 2 * 2 / 3, 1 - 1 / 3 * 1 / 3, 1, 1])
    assert distance[4, 4] == 0


def test_jaccard_is_scikit_learns_and_two_empty_sets_share_all(rng: np.random.Generator) -> None:
    sets = sets_of(rng, items=90)
    some = (sets.sum(axis=2) > 0).any(axis=1)
    theirs = jaccard_score(sets[some, 0], sets[some, 1], average="samples", zero_division=0)
    assert c.jaccard(sets[some]) == pytest.approx([theirs])
    assert c.jaccard(np.zeros((4, 2, 3), dtype=np.int64)) == pytest.approx([1.0])


def test_ac1_of_many_raters_equals_gwets_computed_manually() -> None:
    # three items, three raters, classes A A B | A A A | B B -: shares of A 2/3, 1, 0; alike 1/3, 1, 1
    codes = np.array([[0, 0, 1], [0, 0, 0], [1, 1, -1]])
    share = (2 / 3 + 1 + 0) / 3
    chance = 2 * share * (1 - share)
    assert c.ac1(codes, classes=2) == pytest.approx([((1 / 3 + 1 + 1) / 3 - chance) / (1 - chance)])


ALIKE = np.zeros((10, 2), dtype=np.int64)


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param(ALIKE, id="everyone always says the same"),
        pytest.param(np.full((6, 2), c.MISSING), id="no answers"),
        pytest.param(np.zeros((0, 2), dtype=np.int64), id="no items"),
        pytest.param(np.array([[0, -1], [-1, 1], [1, -1]]), id="one answer for each item"),
        pytest.param(np.array([[0], [1]]), id="a single rater"),
    ],
)
def test_what_cannot_be_told_is_never_a_number(codes: c.Codes) -> None:
    values = [
        c.kappa(codes, classes=3),
        c.kappa(codes, classes=3, quadratic=True),
        c.ac1(codes, classes=3),
        c.alpha(codes, distance=c.nominal(3)),
        c.ordinal_alpha(codes, classes=3),
    ]
    if codes is ALIKE:
        assert c.observed(codes, classes=3) == pytest.approx([1.0])
    else:
        values += [c.observed(codes, classes=3), c.jaccard(np.repeat(codes[:, :, None], 3, axis=2))]
    assert all(np.isnan(value).all() for value in values)


def everything(codes: c.Codes, sets: c.Codes) -> list[float]:
    compared, known = c.distinct(sets)
    values = [
        c.kappa(codes, classes=4),
        c.kappa(codes, classes=4, quadratic=True),
        c.observed(codes, classes=4),
        c.ac1(codes, classes=4),
        c.alpha(codes, distance=c.nominal(4)),
        c.ordinal_alpha(codes, classes=4),
        c.jaccard(sets),
        c.alpha(compared, distance=c.masi(known)),
        *(c.defined_mean(c.by_label(sets, statistic=name)) for name in ("kappa", "ac1")),
    ]
    return [float(value[0]) for value in values]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), items=st.integers(0, 25), raters=st.integers(2, 4))
def test_the_order_of_items_and_raters_does_not_matter(seed: int, items: int, raters: int) -> None:
    rng = np.random.default_rng(seed)
    codes = answers(rng, items=items, raters=raters, classes=4, missing=0.2)
    sets = sets_of(rng, items=items, raters=raters)
    order, people = rng.permutation(items), rng.permutation(raters)

    before = everything(codes, sets)
    after = everything(codes[order][:, people], sets[order][:, people])

    assert after == pytest.approx(before, nan_ok=True)
    assert all(np.isnan(value) or value <= 1 + 1e-12 for value in before)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), items=st.integers(1, 20))
def test_a_weight_of_two_is_an_item_twice(seed: int, items: int) -> None:
    rng = np.random.default_rng(seed)
    codes = answers(rng, items=items, raters=3, classes=3, missing=0.1)
    weights = rng.integers(0, 3, size=(1, items)).astype(np.float64)
    copies = np.repeat(codes, weights[0].astype(int), axis=0)
    for function in (c.kappa, c.observed, c.ac1, c.ordinal_alpha):
        assert function(codes, classes=3, weights=weights) == pytest.approx(function(copies, classes=3), nan_ok=True)
    distance = c.nominal(3)
    assert c.alpha(codes, distance=distance, weights=weights) == pytest.approx(
        c.alpha(copies, distance=distance), nan_ok=True
    )


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    # both err in a fifth of the items of two equal classes: kappa is 1 - 2 * 2 * .2 * .8 = .36
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        codes = (rng.integers(0, 2, size=(150, 1)) ^ (rng.random((150, 2)) < 0.2)).astype(np.int64)
        weights = c.draws(150, resamples=200, rng=rng)
        found = c.estimate(c.kappa(codes, classes=2, weights=weights), confidence=0.9)
        covered += (found.low or 0) <= 0.36 <= (found.high or 0)
    assert 0.84 <= covered / 200 <= 0.95


def test_resamples_without_a_value_are_left_out_and_an_undefined_value_has_no_interval() -> None:
    weights = c.draws(20, resamples=500, rng=np.random.default_rng(4))
    found = c.estimate(c.kappa(of_table(1, 0, 0, 19), classes=2, weights=weights), confidence=0.95)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert found.defined == pytest.approx(1 - 0.95**20, abs=0.06)
    assert c.estimate(np.array([np.nan, 0.5, 0.6]), confidence=0.95) == c.Estimate(None, None, None, 1.0)
    assert c.estimate(np.array([0.5, np.nan]), confidence=0.95) == c.Estimate(0.5, None, None, 0.0)
    assert c.estimate(np.array([0.5]), confidence=0.95).low is None


def test_the_interpretation_is_that_of_the_printed_value() -> None:
    values = {"poor": [-0.0256], "slight": [-0.004, 0.0, 0.2, 0.204], "fair": [0.205], "substantial": [0.61]}
    values |= {"moderate": [0.405, 0.567, 0.604], "almost perfect": [0.88, 1.0]}
    assert {word: {c.landis_koch(v) for v in own} for word, own in values.items()} == {word: {word} for word in values}


def test_pairs_of_rotating_raters_count_by_their_common_items() -> None:
    # one pair shares 290 items, the other ten, on which it agrees as often as by chance
    often, seldom = of_table(130, 25, 25, 110), of_table(3, 2, 3, 2)
    codes = np.full((300, 3), c.MISSING, dtype=np.int64)
    codes[:290, :2], codes[290:, 1:] = often, seldom
    values = [cohen_kappa_score(*pair.T) for pair in (often, seldom)]
    assert values == pytest.approx([0.65, 0.0], abs=0.01)
    assert c.kappa(codes, classes=2) == pytest.approx([(290 * values[0] + 10 * values[1]) / 300])
    assert c.kappa(codes, classes=2)[0] > 0.6, "an unweighted mean of the two pairs is about .3"
