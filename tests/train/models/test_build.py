"""An entry of ``models`` becomes a model by its kind; what cannot be had or does not fit is said, never guessed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertModel, ViTConfig, ViTForImageClassification

from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.datasets.features import Cues
from pipelines.models import base_files
from pipelines.models.backbones import Pixels, Words
from pipelines.models.kinds.fusion import Fusion
from pipelines.models.kinds.image import Image
from pipelines.models.kinds.infused import Infused
from pipelines.models.kinds.m3h import M3h
from pipelines.models.kinds.text import Text
from pipelines.models.kinds.yadav import Yadav
from tests.refusals import refused
from tests.train.models import fitting
from tests.train.models.fitting import build

YADAV = Yadav(kind="yadav", text="tiny:bert", image="tiny:resnet")
INFUSED = Infused(kind="infused", base="tiny:clip", rationales="gpt")
M3H = M3h(
    kind="m3h", text="tiny:bart", embedder="tiny:bert", rationales="gpt", open_layers=1, examples=1, words=12,
    max_tokens=256,
)  # fmt: skip
EXAMPLES = (
    Example(("r", 0), "train", "a lovely day", None, None, "r"),
    Example(("s", 0), "train", "", None, None, "s"),
)


@pytest.fixture
def task() -> Task:
    return task_of(load("figsim"), "figurative")


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """The folder of a base as people save their own."""
    folder = tmp_path / "base"
    folder.mkdir()
    base_files.make("tiny:bert", folder=folder, seed=3)
    return folder


def logits(built: Any) -> Any:
    return fitting.logits(built, EXAMPLES)


def test_a_seed_makes_the_model_and_leaves_the_caller_s_random_numbers(tmp_path: Path, task: Task, bert: Path) -> None:
    spec = Text(kind="text", base=str(bert))  # only its head is new
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, again, other = (logits(build(spec, task=task, seed=seed, folder=tmp_path)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("spec", [YADAV, INFUSED, M3H], ids=lambda spec: spec.kind)
def test_a_specialised_model_follows_from_its_seed(tmp_path: Path, spec: Any) -> None:
    given = {} if spec is YADAV else {"cues": Cues(of={}, outcomes={}, labeller="gpt")}

    def made(seed: int) -> dict[str, Any]:
        built = build(spec, task=task_of(load("figsim"), "severity"), seed=seed, folder=tmp_path, **given)
        return dict(built.module.state_dict())

    first, again, other = (made(seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert list(tmp_path.iterdir()) == [], "nothing of a tiny base stays behind"


def test_an_id_that_cannot_be_had_is_named_with_what_to_do(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    spec = Text(kind="text", base="example/has-this", revision="0" * 40)
    with refused("BaseMissing") as caught:
        build(spec, task=task, seed=1, folder=tmp_path)
    assert "'example/has-this'" in str(caught.value)
    assert "hf download example/has-this" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_tiny_base_names_those_that_there_are(tmp_path: Path, task: Task) -> None:
    with refused("BaseMissing", match="tiny:bert, tiny:vit"):
        build(Text(kind="text", base="tiny:gpt"), task=task, seed=1, folder=tmp_path)


@pytest.mark.parametrize(
    "spec",
    [
        Text(kind="text", base="tiny:vit"),
        Image(kind="image", base="tiny:bert"),
        Fusion(kind="fusion", base="tiny:bert"),
        Fusion(kind="fusion", base="tiny:vit"),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.base}",
)
def test_a_base_of_another_kind_is_refused(tmp_path: Path, task: Task, spec: Any) -> None:
    with pytest.raises(ConfigError, match=spec.base):
        build(spec, task=task, seed=1, folder=tmp_path)


def test_a_checkpoint_in_half_precision_is_trained_in_float32(tmp_path: Path, task: Task, bert: Path) -> None:
    BertModel.from_pretrained(bert).to(torch.bfloat16).save_pretrained(bert)
    built = build(Text(kind="text", base=str(bert)), task=task, seed=1, folder=tmp_path)
    assert {p.dtype for p in built.module.parameters()} == {torch.float32}


def test_a_checkpoint_that_lacks_a_layer_is_refused_and_one_without_a_pooler_is_not(
    tmp_path: Path, task: Task, bert: Path
) -> None:
    spec, file = Text(kind="text", base=str(bert)), bert / "model.safetensors"
    whole = load_file(file)
    save_file({k: v for k, v in whole.items() if not k.startswith("pooler.")}, file, metadata={"format": "pt"})
    build(spec, task=task, seed=1, folder=tmp_path)
    save_file({k: v for k, v in whole.items() if "layer.0.attention" not in k}, file, metadata={"format": "pt"})
    with refused("BaseUnfit", match=r"lacks \d+ weights"):
        build(spec, task=task, seed=1, folder=tmp_path)


def test_a_head_for_other_labels_is_replaced(tmp_path: Path, task: Task) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    base_files.make("tiny:vit", folder=folder, seed=1)
    config = ViTConfig.from_pretrained(folder, num_labels=10)
    ViTForImageClassification(config).save_pretrained(folder)
    built = build(Image(kind="image", base=str(folder)), task=task, seed=1, folder=tmp_path)
    assert logits(built).shape == (2, len(task.labels))


def test_importing_the_models_loads_no_torch() -> None:
    code = "import sys, pipelines.models, pipelines.models.base_files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_texts_are_padded_to_a_multiple_up_to_the_base_s_maximum_which_changes_no_answer(bert: Path) -> None:
    plain, rounded = (Words(str(bert), base=str(bert), limit=128, rounded=n) for n in (1, 16))
    assert rounded(["a " * 100])["input_ids"].shape == (1, base_files.TOKENS)
    texts = ["a lovely day", "a bus"]
    short, long = plain(texts), rounded(texts)
    assert {name: tensor.shape for name, tensor in long.items()} == dict.fromkeys(short, (2, 16))
    model = BertModel.from_pretrained(bert).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(**long).pooler_output, model(**short).pooler_output)


def test_pixels_are_those_of_the_base_s_own_processor(tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image
    from transformers import AutoImageProcessor

    base_files.make("tiny:resnet", folder=tmp_path, seed=1)
    picture = Image.radial_gradient("L").resize((200, 120)).convert("RGB")
    file = BytesIO()
    picture.save(file, "PNG")
    ours = Pixels(str(tmp_path), base="tiny:resnet")([file.getvalue(), None])["pixel_values"]
    theirs = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")(picture, return_tensors="pt")["pixel_values"]
    assert torch.allclose(ours[:1], theirs, atol=1 / 255)
    assert ours[1].std() < 0.01  # a missing picture is one grey
    assert ours[0].std() > 0.1
