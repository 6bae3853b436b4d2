"""Small models learn from silver, report what they do, and answer the same in every setting: the encoder and kNN."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from pipelines.core.taxonomy import load, tiers_of
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import TEST, TRAIN, VALIDATION, Example, LabelSet
from pipelines.metrics.calibration import brier, log_loss
from pipelines.metrics.label_sets import matrix
from pipelines.models.backbones import EncoderWords, opened
from pipelines.models.kind import Job
from pipelines.models.kinds.encoder.predictor import EncoderPredictor
from pipelines.models.kinds.encoder.training import fit
from pipelines.models.kinds.knn.neighbours import KnnPredictor
from tests.refusals import refused
from tests.train import test_knn as knn
from tests.train.silver_posts import TASK, exact, floored, majority, posts
from tests.train.small_tuned import MODELS

SPEC = MODELS["encoder"].model_copy(update={"learning_rate": 0.005, "epochs": 8})
HARM, FLOOR = "selfharm_ongoing", 0.6


@dataclass(frozen=True)
class Trained:
    """A fitted model, its metrics and what it said, the posts of each split, and what is true of those of test."""

    out: Path
    predictor: Any
    metrics: dict[str, Any]
    history: list[dict[str, float]]
    train: list[Example]
    dev: list[Example]
    test: list[Example]
    truth: list[LabelSet]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    place, history = tmp_path_factory.mktemp("encoder"), list[dict[str, float]]()
    train, dev = posts(150, split=TRAIN, seed=1)[0], posts(80, split=VALIDATION, seed=2)[0]
    job = Job(
        spec=SPEC, train=train, validation=dev, task=floored(TASK, **{HARM: FLOOR}), scheme=None, seed=1,
        folder=place / "run", out=place / "model", checkpoint_steps=7,
    )  # fmt: skip
    metrics, predictor = fit(job, say=history.append), EncoderPredictor(place / "model", task=TASK, batch=SPEC.batch)
    return Trained(place / "model", predictor, metrics, history, train, dev, *posts(80, split=TEST, seed=3))


@pytest.fixture(scope="module")
def neighbours(embedded_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    place = tmp_path_factory.mktemp("knn")
    with knn.a_vault(place / "vault") as vault:
        metrics = knn.a_fit(place / "model", vault=vault)
        predictor = KnnPredictor(place / "model", task=TASK, vault=vault)
        yield Trained(place / "model", predictor, metrics, [], knn.SEEN, knn.DEV, knn.UNSEEN, knn.TRUTH)


def head(model: str, *, out: Path) -> Trained:
    shared: dict[str, Any] = {"spec": MODELS[model], "scheme": None, "seed": 1, "out": out, "folder": out}
    job = Job(train=knn.SEEN, validation=knn.DEV, task=floored(TASK, **{HARM: FLOOR}), **shared)
    metrics = job.spec.fit(job, say=None)
    predictor = job.spec.open(out, job)
    return Trained(out, predictor, metrics, [], knn.SEEN, knn.DEV, knn.UNSEEN, knn.TRUTH)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return head("linear", out=tmp_path_factory.mktemp("words") / "model")


@pytest.fixture(scope="module")
def embedding(embedded_once: None, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return head("linear-embedding", out=tmp_path_factory.mktemp("embedding") / "model")


@pytest.fixture(params=["encoder", "neighbours", "words", "embedding"])
def trained(request: pytest.FixtureRequest) -> Trained:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_it_beats_the_majority_and_answers_what_can_be_true(trained: Trained) -> None:
    answered = trained.predictor.labels(trained.predictor.probabilities(trained.test))
    assert exact(answered, trained.truth) > majority(trained.truth) + 0.1
    for labels in answered:
        assert not TASK.category.check(labels, mode="strict", tiers=tiers_of("improved")).violations


def test_what_it_reports_is_what_it_does(trained: Trained) -> None:
    metrics = trained.metrics
    scores = trained.predictor.probabilities(trained.dev)
    carry, given = (
        matrix(s, labels=TASK.labels) for s in ([e.labels for e in trained.dev], trained.predictor.labels(scores))
    )
    k = TASK.labels.index(HARM)
    assert metrics["exact"] == (carry == given).all(axis=1).mean()
    assert metrics["brier"] == pytest.approx(brier(scores, truth=carry), abs=1e-6)
    assert metrics["log_loss"] == pytest.approx(log_loss(scores, truth=carry, task=TASK), abs=1e-5)
    warned = matrix([answer.alerts for answer in trained.predictor.predict(trained.dev)], labels=TASK.labels)
    found = metrics["alerts"][HARM]
    assert found["recall"] == (carry[:, k] & warned[:, k]).sum() / carry[:, k].sum() >= FLOOR
    assert found["alert_rate"] == warned[:, k].mean() < 1
    assert not np.delete(warned, k, axis=1).any()
    assert set(metrics["unseen"]) == set(TASK.labels) - {x for e in trained.train for x in e.labels or ()}
    json.dumps(metrics, allow_nan=False)


def test_the_encoder_keeps_its_best_epoch_and_is_better_calibrated_than_its_scores(encoder: Trained) -> None:
    assert encoder.metrics["brier"] < encoder.metrics["raw_brier"]
    assert encoder.metrics["history"] == encoder.history
    assert [line["epoch"] for line in encoder.history] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert encoder.metrics["epoch"] == max(encoder.history, key=lambda line: line["validation_macro_f1"])["epoch"]


def test_answers_are_in_the_order_of_the_posts_and_the_same_alone(trained: Trained) -> None:
    predictor, done, count = trained.predictor, list[int](), len(trained.test)
    scores = predictor.probabilities(trained.test, progress=done.append)
    assert (scores.shape, scores.dtype, done) == ((count, 15), np.float64, [count])
    assert len(np.unique(scores.round(4), axis=0)) > count / 2, "the test needs posts that differ"
    alone = np.concatenate([predictor.probabilities([example]) for example in trained.test])
    np.testing.assert_allclose(alone, scores, rtol=0, atol=0 if not isinstance(predictor, EncoderPredictor) else 1e-5)
    assert predictor.probabilities([]).shape == (0, 15)
    assert predictor.labels(predictor.probabilities([])) == []


def test_a_long_post_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    with opened("tiny:modernbert", seed=1, folder=tmp_path) as place:
        words, whole = (EncoderWords(place, base="tiny:modernbert", limit=limit) for limit in (12, None))
    text = "the first of all words " + "between " * 40 + "and the very last ones"
    kept = words([text])["input_ids"][0].tolist()
    everything = whole([text])["input_ids"][0].tolist()
    assert kept == [*everything[:6], *everything[-6:]]
    assert (words.cuts(text), whole.cuts(text)) == (True, False)
    assert (words.count(text), whole.count(text)) == (12, len(everything))
    assert words.count("a b") == 4
    pair = words(["a b", text])
    assert pair["attention_mask"].sum(dim=1).tolist() == [4, 12]


def test_it_serves_no_other_labels_and_no_half_of_a_model(encoder: Trained, tmp_path: Path) -> None:
    with refused("OtherLabels"):
        EncoderPredictor(encoder.out, task=task_of(load("figsim"), "figurative"), batch=8)
    headless = shutil.copytree(encoder.out, tmp_path / "headless")
    state = load_file(headless / "model.safetensors")
    save_file(
        {n: t for n, t in state.items() if "classifier" not in n}, headless / "model.safetensors", {"format": "pt"}
    )
    with refused("BaseUnfit", match="classifier"):
        EncoderPredictor(headless, task=TASK, batch=8)
    (headless / "model.safetensors").unlink()
    with refused("BaseMissing"):
        EncoderPredictor(headless, task=TASK, batch=8)
