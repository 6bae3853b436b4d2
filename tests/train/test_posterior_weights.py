"""Weights of examples from the posterior of silver: only for models that ask for them, and with mean 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.core.config.settings import Settings
from pipelines.datasets.example import Example
from pipelines.store import tables
from pipelines.train import finetune
from pipelines.train.sft.packing import IGNORED, TokenizedSample
from pipelines.train.sft.trainer import RowCollator
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts

pytestmark = pytest.mark.usefixtures("embedded_once")


def sure(posts: SmallPosts, *, unequal: bool) -> dict[str, float]:
    """Write posteriors into silver; return them by record."""
    path = posts.snapshot / "silver/cradle/silver.parquet"
    rows = tables.read(path, name="silver").to_pylist()
    given = {row["record_id"]: (0.25, 1.0)[n % 2] if unequal else 0.5 for n, row in enumerate(rows)}
    small.write_table(path, [row | {"posterior": given[row["record_id"]]} for row in rows], name="silver")
    return given


def test_weights_are_the_posteriors_with_mean_one_and_only_if_asked_for(posts: SmallPosts) -> None:
    given = sure(posts, unequal=True)
    train = posts.load("consensus", weighted=True).train
    expected = np.array([given[example.item[0]] for example in train])
    assert [example.weight for example in train] == pytest.approx(list(expected / expected.mean()))
    assert {example.weight for example in posts.load("consensus").train} == {1.0}
    assert {example.weight for example in posts.load("consensus", weighted=True).validation} == {1.0}


def fitted(posts: SmallPosts, settings: Settings, *, model: str, weights: str) -> dict[str, Any]:
    params = small_tuned.params()
    spec = params.models[model].model_copy(update={"weights": weights})
    given = {"subset": "consensus", "model": model, "settings": settings, "vault": posts.vault, "root": posts.root}
    return finetune.run("posts", params=params.model_copy(update={"models": {**params.models, model: spec}}), **given)


@pytest.mark.parametrize("model", ["encoder", pytest.param("sft", marks=pytest.mark.faults)])
def test_unequal_posteriors_change_the_model_and_equal_ones_do_not(
    posts: SmallPosts, settings: Settings, model: str
) -> None:
    losses = {}
    for unequal in (False, True):
        sure(posts, unequal=unequal)
        for weights in ("equal", "posterior"):
            told = fitted(posts, settings, model=model, weights=weights)["fit"]
            losses[unequal, weights] = [epoch["train_loss"] for epoch in told["history"]]
    assert losses[False, "posterior"] == losses[False, "equal"] == losses[True, "equal"]
    assert losses[True, "posterior"] != losses[True, "equal"]


def test_a_sample_of_weight_two_counts_as_two_samples() -> None:
    samples = [TokenizedSample((1, 2, 3, 4), 2, weight=2.0), TokenizedSample((1, 2, 5), 1, weight=0.5)]
    packed = RowCollator(samples, shared=1, pad=0)([0, 1])
    assert packed["weights"].tolist() == [[1, 2, 2, 2, 0.5, 0.5]]
    assert packed["weights"].shape == packed["labels"].shape
    padded = RowCollator(samples, shared=None, pad=0)([0, 1])
    assert padded["weights"].tolist() == [[2] * 4, [0.5] * 4]
    assert torch.equal(padded["labels"] != IGNORED, torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]]) > 0)
    plain = [replace(sample, weight=1.0) for sample in samples]
    assert "weights" not in RowCollator(plain, shared=1, pad=0)([0, 1])


def test_an_example_has_weight_one_unless_it_says_otherwise() -> None:
    assert Example(("r", 0), "train", "", None, labels=None, group="g").weight == 1.0
