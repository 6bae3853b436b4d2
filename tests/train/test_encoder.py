"""The small classifier learns from silver, gives probabilities, and answers the same in every setting."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipelines.core.taxonomy import load, tiers_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import TEST, TRAIN, VALIDATION, Example, LabelSet
from pipelines.metrics.calibration import brier
from pipelines.metrics.label_sets import matrix
from pipelines.models.pretrained.backbones import EncoderWords, opened
from pipelines.train.classifiers.encoder_training import fit
from pipelines.train.predictors.encoder_predictor import EncoderPredictor
from pipelines.train.predictors.finetuned import FinetuneJob
from tests.refusals import refused
from tests.train.silver_posts import SETTINGS, TASK, exact, majority, posts
from tests.train.small_tuned import MODELS

SPEC = MODELS["encoder"].model_copy(update={"learning_rate": 0.005, "epochs": 8})
HARM, FLOOR = "selfharm_ongoing", 0.6


@dataclass(frozen=True)
class Trained:
    """A fitted encoder, what it reports, and posts that it did not see with what is true of them."""

    out: Path
    metrics: dict[str, Any]
    history: list[dict[str, float]]
    test: list[Example]
    truth: list[LabelSet]

    @property
    def texts(self) -> list[str]:
        return [example.text for example in self.test]

    def opened(self) -> EncoderPredictor:
        return EncoderPredictor(self.out, task=TASK)


def a_fit(place: Path, *, task: Task = TASK, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "train": posts(24, split=TRAIN, seed=11, words=15)[0], "validation": posts(16, split=VALIDATION, seed=12)[0],
        "seed": 1, "settings": SETTINGS, "folder": place / "run", "out": place / "model", "say": lambda line: None,
    }  # fmt: skip
    given |= {"spec": SPEC.model_copy(update={"epochs": 2}), "task": task, "scheme": None} | changed
    return fit(say=given.pop("say"), job=FinetuneJob(**given))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    place, history = tmp_path_factory.mktemp("encoder"), list[dict[str, float]]()
    settings = SETTINGS.model_copy(update={"recall_floors": {HARM: FLOOR}})
    train, dev = posts(150, split=TRAIN, seed=1)[0], posts(80, split=VALIDATION, seed=2)[0]
    metrics = a_fit(place, spec=SPEC, train=train, validation=dev, settings=settings, say=history.append)
    return Trained(place / "model", metrics, history, *posts(80, split=TEST, seed=3))


def test_it_beats_the_majority_and_answers_what_can_be_true(trained: Trained) -> None:
    predictor = trained.opened()
    answered = predictor.labels(predictor.probabilities(trained.texts))
    assert exact(answered, trained.truth) > majority(trained.truth) + 0.1
    for labels in answered:
        assert not TASK.category.check(labels, mode="strict", tiers=tiers_of("improved")).violations


def test_what_it_reports_is_what_it_does(trained: Trained) -> None:
    dev, truth = posts(80, split=VALIDATION, seed=2)
    predictor = trained.opened()
    scores = predictor.probabilities([e.text for e in dev])
    carry, given = (matrix(s, labels=TASK.labels) for s in (truth, predictor.labels(scores)))
    k = TASK.labels.index(HARM)
    metrics = trained.metrics
    assert metrics["brier"] == pytest.approx(brier(scores, truth=carry), abs=1e-6)
    assert metrics["brier"] < metrics["raw_brier"]
    assert metrics["exact"] == (carry == given).all(axis=1).mean()
    warned = matrix([answer.alerts for answer in predictor.predict([e.text for e in dev])], labels=TASK.labels)[:, k]
    found = metrics["alerts"][HARM]
    assert found["recall"] == (carry[:, k] & warned).sum() / carry[:, k].sum() >= FLOOR
    assert found["alert_rate"] == warned.mean() < 1
    assert not np.delete(
        matrix([a.alerts for a in predictor.predict([e.text for e in dev])], labels=TASK.labels), k, 1
    ).any()
    assert metrics["history"] == trained.history
    assert [line["epoch"] for line in trained.history] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert metrics["epoch"] == max(trained.history, key=lambda line: line["validation_macro_f1"])["epoch"]
    assert set(metrics["unseen"]) == set(TASK.labels) - {
        x for e in posts(150, split=TRAIN, seed=1)[0] for x in e.labels
    }
    json.dumps(metrics, allow_nan=False)


def test_answers_are_in_the_order_of_the_posts_and_the_same_alone(trained: Trained) -> None:
    predictor, done = trained.opened(), list[int]()
    scores = predictor.probabilities(trained.texts, progress=done.append)
    assert scores.shape == (80, 15)
    assert scores.dtype == np.float64
    assert done == [80]
    assert len(np.unique(scores.round(4), axis=0)) > 40, "the test needs posts that differ"
    for n in (0, 17, 79):
        np.testing.assert_allclose(predictor.probabilities([trained.texts[n]])[0], scores[n], atol=1e-5)
    assert predictor.probabilities([]).shape == (0, 15)
    assert predictor.labels(predictor.probabilities([])) == []


def test_the_library_alone_can_open_it_and_names_the_labels(trained: Trained) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(trained.out)
    tokens = AutoTokenizer.from_pretrained(trained.out)
    brief = trained.texts[0][:80]
    assert tuple(model.config.id2label[k] for k in range(15)) == TASK.labels
    assert model.config.problem_type == "multi_label_classification"
    assert tokens.model_max_length == SPEC.max_tokens
    with torch.no_grad():
        odds = model(**tokens([brief], return_tensors="pt", truncation=True)).logits[0]
    own = trained.opened().probabilities([brief])[0]
    sigmoids = np.array(json.loads((trained.out / "calibration.json").read_text())["calibration"]["sigmoids"])
    np.testing.assert_allclose(1 / (1 + np.exp(-(odds.numpy() * sigmoids[:, 0] + sigmoids[:, 1]))), own, atol=1e-4)


def test_no_post_is_in_its_files(trained: Trained) -> None:
    train = posts(150, split=TRAIN, seed=1)[0]
    names = {path.name for path in trained.out.iterdir()}
    assert {"model.safetensors", "config.json", "calibration.json", "tokenizer.json"} <= names
    for path in trained.out.iterdir():
        kept = path.read_bytes()
        assert not any(e.text[20:60].encode() in kept or e.item[0].encode() in kept for e in train)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    seen = list[float]()

    def stop(line: dict[str, float]) -> None:
        seen.append(line["epoch"])
        if len(seen) == 2:
            raise KeyboardInterrupt

    spec = SPEC.model_copy(update={"epochs": 3})
    with pytest.raises(KeyboardInterrupt):
        a_fit(tmp_path / "two", spec=spec, say=stop)
    assert not (tmp_path / "two" / "model").exists()
    again = a_fit(tmp_path / "two", spec=spec, say=lambda line: seen.append(line["epoch"]))
    whole = a_fit(tmp_path / "one", spec=spec)
    assert seen == [1, 2, 2, 3], "the first epoch was not done again"
    assert again == whole
    one, two = (sorted((tmp_path / name / "model").iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    for left, right in zip(one, two, strict=True):
        assert left.read_bytes() == right.read_bytes()


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


def test_a_single_label_scheme_is_learned_too(tmp_path: Path) -> None:
    task = task_of(load("figsim"), "severity")
    signs = ("knife", "river", "morning", "coffee", "garden", "window")[: len(task.labels)]

    def drawn(count: int, split: str) -> list[Example]:
        chance = np.random.default_rng(count)
        picked = chance.integers(0, len(signs), count)
        fill = chance.choice(["the", "of", "and", "with", "people", "where"], (count, 5))
        return [
            Example((f"{split}{n:03}", 0), split, " ".join([signs[k], *row]), None, frozenset({task.labels[k]}), f"{n}")
            for n, (k, row) in enumerate(zip(picked, fill, strict=True))
        ]

    metrics = a_fit(
        tmp_path, task=task, spec=SPEC.model_copy(update={"epochs": 4}), train=drawn(90, TRAIN),
        validation=drawn(40, VALIDATION),
    )  # fmt: skip
    predictor = EncoderPredictor(tmp_path / "model", task=task)
    dev = drawn(40, VALIDATION)
    scores = predictor.probabilities([e.text for e in dev])
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert exact(predictor.labels(scores), [e.labels or frozenset() for e in dev]) == metrics["exact"] > 0.8


def test_it_serves_no_other_labels_and_no_half_of_a_model(trained: Trained, tmp_path: Path) -> None:
    with refused("OtherLabels"):
        EncoderPredictor(trained.out, task=task_of(load("figsim"), "figurative"))
    headless = shutil.copytree(trained.out, tmp_path / "headless")
    state = load_file(headless / "model.safetensors")
    save_file(
        {n: t for n, t in state.items() if "classifier" not in n}, headless / "model.safetensors", {"format": "pt"}
    )
    with refused("BaseUnfit", match="classifier"):
        EncoderPredictor(headless, task=TASK)
    (headless / "model.safetensors").unlink()
    with refused("BaseMissing"):
        EncoderPredictor(headless, task=TASK)
