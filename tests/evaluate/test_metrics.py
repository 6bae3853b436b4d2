"""Metrics of label sets: those of scikit-learn on sets of any kind, and what a missing answer costs."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.metrics import label_sets

LABELS = load("cradle").category().names


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


def test_where_nothing_was_answered_valid_scores_are_undefined() -> None:
    scored = label_sets.score({"a": frozenset({LABELS[0]})}, predicted={}, labels=LABELS)
    assert scored["valid"] is None
    assert scored["all"]["exact"] == 0


def test_a_label_outside_the_category_is_refused() -> None:
    with pytest.raises(KeyError):
        label_sets.score({"a": frozenset({"other"})}, predicted={}, labels=LABELS)
