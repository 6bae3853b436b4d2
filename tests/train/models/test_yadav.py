"""The depression-symptom model: its constraint holds; ``test_learning.py`` has what it shares with all others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertModel

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import Example
from pipelines.models import base_files
from pipelines.models.backbones import Built
from pipelines.models.kinds.yadav import Yadav
from pipelines.models.kinds.yadav.network import Orthogonal, orthogonal
from tests.refusals import refused
from tests.train.models.fitting import build
from tests.train.small_memes import picture

TASK = task_of(load("figsim"), "severity")
NOTHING: dict[str, frozenset[str]] = {"figurative": frozenset(), "severity": frozenset(), "related": frozenset()}
GRAVE = NOTHING | {"severity": frozenset({"Suicide planning"})}


@pytest.mark.parametrize("image", ["tiny:resnet", "tiny:vit", "tiny:dinov2"])
def test_features_of_text_and_picture_are_orthogonal_in_every_meme(tmp_path: Path, image: str) -> None:
    spec = Yadav(kind="yadav", text="tiny:bert", image=image)
    built = build(spec, task=TASK, seed=1, folder=tmp_path, max_tokens=32)
    assert isinstance(built.module, Orthogonal)
    built.module.eval()
    memes = [("a long week", picture(NOTHING)), ("", picture(GRAVE)), ("so much for the plan", None), ("", None)]
    some = [Example((f"r{n}", 0), "train", *content, labels=None, group=str(n)) for n, content in enumerate(memes)]
    words, seen = built.module.features(**built.prepare(some))
    cosines = torch.nn.functional.cosine_similarity(words, seen)
    assert cosines.abs().max() < 1e-5
    assert seen.norm(dim=-1).min() > 0.1
    assert not torch.allclose(seen[0], seen[1])


def test_projection_takes_away_the_common_part_alone() -> None:
    left = orthogonal(torch.tensor([[3.0, 4.0], [1.0, 0.0], [2.0, 2.0]]), to=torch.tensor([[2.0, 0], [0, 5], [0, 0]]))
    assert torch.allclose(left, torch.tensor([[0.0, 4.0], [1.0, 0.0], [2.0, 2.0]]), atol=1e-5)


def test_pooler_may_be_missing_and_nothing_else(tmp_path: Path) -> None:
    base_files.make("tiny:bert", folder=tmp_path / "whole", seed=1)
    whole = BertModel.from_pretrained(tmp_path / "whole")
    for name, left_out in {"headless": "pooler.", "holed": "encoder.layer.1.output."}.items():
        kept = {key: value for key, value in whole.state_dict().items() if not key.startswith(left_out)}
        whole.save_pretrained(tmp_path / name, state_dict=kept)
        AutoTokenizer.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / name)

    def made(name: str) -> Built:
        spec = Yadav(kind="yadav", text=str(tmp_path / name), image="tiny:resnet")
        return build(spec, task=TASK, seed=1, folder=tmp_path, max_tokens=32)

    assert not any("pooler" in name for name in made("headless").module.state_dict())
    with refused("BaseUnfit", match="lacks"):
        made("holed")
