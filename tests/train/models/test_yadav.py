"""The depression-symptom model: its constraint holds, it reads words and pictures, and it is for severity alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertModel

from pipelines.core.config.models import YadavModel
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.models.pretrained import tiny
from pipelines.models.pretrained.backbones import Built
from pipelines.models.yadav import Orthogonal, build, orthogonal
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.train.models.fitting import fitted, logits, right
from tests.train.models.test_build import YADAV as TINY
from tests.train.small_memes import picture, write

SECRET = bytes(range(32))
NOTHING: dict[str, frozenset[str]] = {"figurative": frozenset(), "severity": frozenset(), "related": frozenset()}
GRAVE = NOTHING | {"severity": frozenset({"Suicide planning"})}


@pytest.fixture
def task() -> Task:
    return task_of(load("figsim"), "severity")


def made(folder: Path, task: Task, *, spec: YadavModel = TINY, seed: int = 1) -> Built:
    return build(spec, task=task, seed=seed, folder=folder, max_tokens=32)


def example(number: int, text: str, image: bytes | None) -> Example:
    return Example((f"r{number}", 0), "train", text, image, None, str(number))


def some() -> list[Example]:
    return [
        example(0, "a long week", picture(NOTHING)),
        example(1, "", picture(GRAVE)),
        example(2, "so much for the plan", None),
        example(3, "", None),
    ]


@pytest.mark.parametrize("image", ["tiny:resnet", "tiny:vit", "tiny:dinov2"])
def test_features_of_text_and_picture_are_orthogonal_in_every_meme(tmp_path: Path, task: Task, image: str) -> None:
    built = made(tmp_path, task, spec=YadavModel(kind="yadav", text="tiny:bert", image=image))
    assert isinstance(built.module, Orthogonal)
    built.module.eval()
    words, seen = built.module.features(**built.prepare(some()))
    cosines = torch.nn.functional.cosine_similarity(words, seen)
    assert cosines.abs().max() < 1e-5
    assert seen.norm(dim=-1).min() > 0.1
    assert not torch.allclose(seen[0], seen[1])


def test_projection_takes_away_the_common_part_alone() -> None:
    left = orthogonal(torch.tensor([[3.0, 4.0], [1.0, 0.0], [2.0, 2.0]]), to=torch.tensor([[2.0, 0], [0, 5], [0, 0]]))
    assert torch.allclose(left, torch.tensor([[0.0, 4.0], [1.0, 0.0], [2.0, 2.0]]), atol=1e-5)


def test_rows_follow_the_examples_and_what_is_missing_is_no_error(tmp_path: Path, task: Task) -> None:
    built = made(tmp_path, task)
    forth, back = logits(built, some()), logits(built, some()[::-1])
    assert forth.shape == (4, len(task.labels))
    assert torch.isfinite(forth).all()
    assert torch.allclose(forth, back.flip(0), atol=1e-5)
    assert len({tuple(row) for row in forth.tolist()}) == 4


def test_pooler_may_be_missing_and_nothing_else(tmp_path: Path, task: Task) -> None:
    tiny.make("tiny:bert", folder=tmp_path / "whole", seed=1)
    whole = BertModel.from_pretrained(tmp_path / "whole")
    for name, left_out in {"headless": "pooler.", "holed": "encoder.layer.1.output."}.items():
        kept = {key: value for key, value in whole.state_dict().items() if not key.startswith(left_out)}
        whole.save_pretrained(tmp_path / name, state_dict=kept)
        AutoTokenizer.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / name)

    def spec(name: str) -> YadavModel:
        return YadavModel(kind="yadav", text=str(tmp_path / name), image="tiny:resnet")

    built = made(tmp_path, task, spec=spec("headless"))
    assert not any("pooler" in name for name in built.module.state_dict())
    with refused("BaseUnfit", match="lacks"):
        made(tmp_path, task, spec=spec("holed"))


@pytest.mark.parametrize("shows", ["text", "image"])
def test_learns_from_words_and_from_pictures(tmp_path: Path, task: Task, shows: Any) -> None:
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=SECRET) as vault:
        material = write(tmp_path, vault=vault, sizes={"train": 60, "validation": 6, "test": 30}, shows=shows).load(
            task.key
        )
    built = fitted(made(tmp_path, task), material.train, task=task, steps=20)
    truth = [next(iter(labels)) for labels in material.truth("test").values()]
    majority = max(Counter(truth).values())
    assert right(built, material.test, task=task, truth=truth) > majority + 0.2 * len(truth)
