"""What a score is worth: probabilities that mean what they say, learned on dev and on nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.metrics.calibration import Calibration, brier, fit, log_loss
from tests.refusals import refused

MULTI, SINGLE = task_of(load("figsim"), "figurative"), task_of(load("figsim"), "severity")


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def softmax(z: Any) -> Any:
    raised = np.exp(z - z.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def posts(truth: Any, *, task: Task, split: str = "validation") -> list[Example]:
    sets = [frozenset(task.labels[k] for k in np.flatnonzero(row)) for row in truth]
    return [Example((f"{n:04}", 0), split, "", None, labels, f"{n}") for n, labels in enumerate(sets)]


def drawn(task: Task, *, count: int, too_sure: float, seed: int = 1) -> tuple[Any, Any, Any]:
    """Return what is true, the probabilities that it was drawn by, and scores that are ``too_sure`` of it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-0.5, 1.2, (count, len(task.labels)))
    if task.kind == "single":
        p = softmax(z)
        picked = [rng.choice(len(row), p=row) for row in p]
        return np.eye(len(task.labels), dtype=bool)[picked], p, softmax(too_sure * z)
    p = sigmoid(z)
    return rng.random(p.shape) < p, p, sigmoid(too_sure * z + 1.5)


@pytest.mark.parametrize("task", [MULTI, SINGLE], ids=["multi", "single"])
@pytest.mark.parametrize("too_sure", [0.4, 3.0])
def test_scores_that_are_too_sure_or_too_modest_become_the_probabilities(task: Task, too_sure: float) -> None:
    truth, _, scores = drawn(task, count=800, too_sure=too_sure)
    fitted = fit(scores, examples=posts(truth, task=task), task=task)
    new_truth, new_p, new_scores = drawn(task, count=2000, too_sure=too_sure, seed=2)
    found = fitted(new_scores)
    assert np.abs(found - new_p).mean() < 0.03
    assert np.abs(new_scores - new_p).mean() > 0.07
    assert brier(found, truth=new_truth) < brier(new_scores, truth=new_truth)
    assert log_loss(found, truth=new_truth, task=task) < log_loss(new_scores, truth=new_truth, task=task)


def test_without_a_signal_the_most_probable_class_is_the_most_frequent_whatever_the_loss_weighed() -> None:
    """Scores of noise, balanced by class weights: exact match is that of the majority class, which .2 is not."""
    shares = np.array([0.2, 0.2, 0.38, 0.13, 0.09])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = softmax(rng.normal(0, 1.0, (200, 5)))
        truth = np.eye(5, dtype=bool)[rng.choice(5, p=shares, size=200)]
        fitted = fit(scores[:100], examples=posts(truth[:100], task=SINGLE), task=SINGLE)
        exact, majority = (truth[100:, k].mean() for k in (0, truth[:100].sum(axis=0).argmax()))
        exact = truth[100:][np.arange(100), fitted(scores[100:]).argmax(axis=1)].mean()
        assert exact >= majority - 0.08
        assert exact > truth[100:][np.arange(100), scores[100:].argmax(axis=1)].mean()


def test_weights_of_the_loss_are_taken_back() -> None:
    truth, p, _ = drawn(SINGLE, count=3000, too_sure=1.0)
    weights = np.array([5.0, 1.0, 0.3, 2.0, 1.0])
    weighed = p * weights / (p * weights).sum(axis=1, keepdims=True)
    found = fit(weighed, examples=posts(truth, task=SINGLE), task=SINGLE)(weighed)
    assert np.abs(found - p).mean() < 0.02 < np.abs(weighed - p).mean()


def test_classes_of_a_single_label_task_add_up_and_their_odds_keep_their_order() -> None:
    truth, _, scores = drawn(SINGLE, count=300, too_sure=3.0)
    fitted = fit(scores, examples=posts(truth, task=SINGLE), task=SINGLE)
    found = fitted(scores)
    assert fitted.temperature > 2
    np.testing.assert_allclose(found.sum(axis=1), 1)
    odds, before = (np.log(p[:, 1:] / p[:, :1]) for p in (found, np.maximum(scores, 1e-7)))
    for k in range(odds.shape[1]):
        assert np.corrcoef(odds[:, k], before[:, k])[0, 1] == pytest.approx(1), "one slope, and one bias each"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_higher_score_is_never_less_probable(seed: int) -> None:
    """Not even where dev says the opposite, as a handful of posts may."""
    rng = np.random.default_rng(seed)
    scores = rng.random((12, len(MULTI.labels)))
    fitted = fit(scores, examples=posts(scores < rng.random(), task=MULTI), task=MULTI)
    ladder = np.linspace(0, 1, 50)[:, None].repeat(len(MULTI.labels), axis=1)
    assert (np.diff(fitted(ladder), axis=0) >= 0).all()


@pytest.mark.parametrize("task", [MULTI, SINGLE], ids=["multi", "single"])
def test_the_surest_scores_stay_finite(task: Task) -> None:
    truth = np.eye(len(task.labels), dtype=bool)[[0, 1, 2, 0, 1, 2]]
    found = fit(truth.astype(np.float32), examples=posts(truth, task=task), task=task)(truth.astype(np.float32))
    assert np.isfinite(found).all()
    assert (found[truth] > 0.5).all()
    assert np.isfinite(log_loss(1.0 - truth, truth=truth, task=task))


def test_the_loss_is_in_nats_of_what_is_true() -> None:
    truth = np.array([[True, False, False]])
    p = np.array([[0.5, 0.25, 0.25]])
    assert log_loss(p, truth=truth, task=SINGLE) == pytest.approx(-np.log(0.5))
    assert log_loss(p, truth=truth, task=MULTI) == pytest.approx(-np.log(0.5) - 2 * np.log(0.75))
    assert brier(p, truth=truth) == pytest.approx((0.25 + 2 * 0.0625) / 3)


@pytest.mark.parametrize("task", [MULTI, SINGLE], ids=["multi", "single"])
def test_what_is_stored_gives_the_same_bits(task: Task) -> None:
    truth, _, scores = drawn(task, count=100, too_sure=2.0)
    fitted = fit(scores, examples=posts(truth, task=task), task=task)
    again = Calibration.of_json(json.loads(json.dumps(fitted.as_json())))
    assert (again(scores) == fitted(scores)).all()


def test_a_label_that_train_lacks_does_not_spoil_the_others() -> None:
    """Its score is nought wherever it is asked: its log-odds lie far from where the optimiser begins."""
    truth, _, scores = drawn(MULTI, count=200, too_sure=3.0)
    alone = fit(scores, examples=posts(truth, task=MULTI), task=MULTI)(scores)
    scores[:, 0] = 0
    found = fit(scores, examples=posts(truth, task=MULTI), task=MULTI)(scores)
    np.testing.assert_allclose(found[:, 1:], alone[:, 1:], atol=0.01)
    np.testing.assert_allclose(found[:, 0], truth[:, 0].mean(), atol=0.01)


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_is_learned_of_another_split(split: str) -> None:
    truth, _, scores = drawn(MULTI, count=40, too_sure=2.0)
    with refused("LeakRefused"):
        fit(scores, examples=posts(truth, task=MULTI, split=split), task=MULTI)


def test_without_gold_of_dev_there_is_nothing_to_learn_from() -> None:
    with refused("NothingToCalibrate", match="Annotate posts of the dev split"):
        fit(np.zeros((0, len(MULTI.labels))), examples=[], task=MULTI)
