"""Metrics of label sets are scikit-learn's, a missing answer has its price, and intervals know clusters."""

import random

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.metrics import bootstrap, label_sets

LABELS = load("cradle").category().names
ABC = ("a", "b", "c")


sets = st.frozensets(st.sampled_from(LABELS[:5]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sets, sets), min_size=1, max_size=30))
def test_as_scikit_learn_has_it(pairs: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    gold = {str(i): pair[0] for i, pair in enumerate(pairs)}
    got = label_sets.score(gold, predicted={str(i): pair[1] for i, pair in enumerate(pairs)}, labels=LABELS[:5])["all"]
    truth, answer = (np.array([[x in pair[i] for x in LABELS[:5]] for pair in pairs]) for i in range(2))
    assert got["exact"] == pytest.approx(sklearn.metrics.accuracy_score(truth, answer))
    # scikit-learn calls two empty sets 0 unless told otherwise; both papers count them as agreeing
    jaccard = sklearn.metrics.jaccard_score(truth, answer, average="samples", zero_division=1)
    assert got["jaccard"] == pytest.approx(jaccard)
    for average in ("micro", "macro"):
        values = sklearn.metrics.precision_recall_fscore_support(truth, answer, average=average, zero_division=0)
        names = (f"{average}_precision", f"{average}_recall", f"{average}_f1")
        assert [got[name] for name in names] == pytest.approx(values[:3])


def test_a_missing_answer_is_left_out_or_wrong_never_right() -> None:
    gold = {"a": frozenset({LABELS[0]}), "b": frozenset({LABELS[1]}), "c": frozenset[str]()}
    scored = label_sets.score(gold, predicted={"a": gold["a"], "b": None}, labels=LABELS)
    assert (scored["n"], scored["n_valid"]) == (3, 1)
    assert scored["valid"]["exact"] == scored["valid"]["jaccard"] == 1
    # c is empty in gold, and still an answer that never came is no hit
    assert scored["all"]["exact"] == scored["all"]["jaccard"] == pytest.approx(1 / 3)
    assert scored["all"]["micro_recall"] == pytest.approx(1 / 2)
    assert scored["all"]["micro_precision"] == 1


def test_a_label_outside_the_category_is_refused() -> None:
    with pytest.raises(KeyError):
        label_sets.score({"a": frozenset({"other"})}, predicted={}, labels=LABELS)


def answers(n: int, *, accuracy: float, seed: int) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    rng = random.Random(seed)
    gold = {f"{i:04d}": frozenset({rng.choice(ABC)}) for i in range(n)}
    wrong = {record: frozenset({ABC[(ABC.index(min(values)) + 1) % 3]}) for record, values in gold.items()}
    return gold, {r: gold[r] if rng.random() < accuracy else wrong[r] for r in gold}


def drawn(gold: dict, predicted: dict, *, groups: dict | None = None, resamples: int = 2000) -> bootstrap.Draws:
    made = bootstrap.draw(gold, predicted=predicted, labels=ABC, groups=groups or {}, resamples=resamples, seed=1)
    assert made is not None
    return made


def test_an_interval_is_as_wide_as_theory_says() -> None:
    gold, predicted = answers(400, accuracy=0.8, seed=3)
    interval = drawn(gold, predicted).intervals()["exact"]
    error = np.sqrt(interval.value * (1 - interval.value) / 400)
    assert (interval.low, interval.high) == pytest.approx(
        (interval.value - 1.96 * error, interval.value + 1.96 * error), abs=0.006
    )


def test_values_are_those_of_the_metrics() -> None:
    gold, predicted = answers(50, accuracy=0.6, seed=5)
    scored = label_sets.score(gold, predicted=predicted, labels=ABC)["all"]
    assert drawn(gold, predicted).values == pytest.approx(scored)


def test_copies_in_one_group_add_no_certainty() -> None:
    gold, predicted = answers(100, accuracy=0.7, seed=7)
    often = {f"{r}/{i}": r for r in gold for i in range(5)}
    single = drawn(gold, predicted).intervals()["exact"]
    grouped = drawn({r: gold[often[r]] for r in often}, {r: predicted[often[r]] for r in often}, groups=often)
    copied = grouped.intervals()["exact"]
    assert copied.high - copied.low == pytest.approx(single.high - single.low, rel=0.05)


def test_a_difference_is_paired_and_ties_count_half() -> None:
    gold, predicted = answers(200, accuracy=0.7, seed=11)
    better = dict(predicted)
    wrong = sorted(record for record in gold if predicted[record] != gold[record])
    better.update({record: gold[record] for record in wrong[:10]})
    difference = drawn(gold, better).minus(drawn(gold, predicted))["exact"]
    assert difference.value == pytest.approx(0.05)
    assert 0 < difference.low < 0.05 < difference.high
    assert difference.probability > 0.999
    assert drawn(gold, predicted).minus(drawn(gold, predicted))["exact"].probability == 0.5


def test_without_gold_there_is_no_figure() -> None:
    assert bootstrap.draw({}, predicted={}, labels=ABC, groups={}, resamples=10, seed=0) is None
