"""A model with a LoRA adapter from training to use: its base model is pinned, verified and never merged with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from crisis_corpus import integrity
from pipelines.models import base_files
from pipelines.models.base_files import files_of
from pipelines.models.fitting import adapter
from pipelines.models.kinds.sft import Sft
from pipelines.registry.packaging import model
from tests.refusals import refused
from tests.registry import packs
from tests.train import small_posts, small_tuned
from tests.train.small_posts import SmallPosts

pytestmark = pytest.mark.faults
REVISION = "0123456789abcdef0123456789abcdef01234567"
# The paper's learning rate, rank and alpha for Llama-3.3-70B (CRADLE F).
SPEC = Sft(
    kind="sft", base="team/base", revision=REVISION, tuning="lora", rank=8, alpha=32, dropout=0.05, batch=8,
    accumulation=1, max_length=1536, learning_rate=2e-5, warmup=0, weight_decay=0, epochs=1, packing=True,
)  # fmt: skip
SIZES = {"train": 16, "dev": 4, "test": 4}
# Half a unit in the last of bfloat16's eight bits
ROUNDING = 2.0**-8


def hub(cache: Path) -> Path:
    """Write a Qwen3 with random weights in bfloat16 to a cache of Hugging Face; return its folder."""
    place = cache / "models--team--base" / "snapshots" / REVISION
    words, tiny = base_files.causal_tokenizer(), base_files
    config = Qwen3Config(
        vocab_size=tiny.PIECES, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=words.convert_tokens_to_ids(tiny.END), pad_token_id=words.convert_tokens_to_ids(tiny.PAD),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(place)
    words.save_pretrained(place)
    return place


@dataclass(frozen=True)
class Adapted:
    """A corpus with a model that was fine-tuned with LoRA, its base, its pack, and what MLflow loads."""

    corpus: SmallPosts
    metrics: dict[str, Any]
    base: Path
    tuned: Path
    pack: Path
    saved: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapted]:
    folder = tmp_path_factory.mktemp("adapted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "cache"))
        patch.setitem(small_tuned.MODELS, "lora", SPEC)
        base = hub(folder / "cache")
        with small_posts.copied(small_posts.made(SIZES), to=folder / "root") as corpus:
            packs.tuned(corpus, kind="lora", home=folder / "home")
            pack = packs.packed(corpus, kind="lora", to=folder / "pack")
            saved = model.save(pack, to=folder / "saved")
            told = json.loads((corpus.root / f"metrics/posts/train-{small_tuned.row_of('lora')}.json").read_text())
            place = small_tuned.folder(corpus, model="lora")
            yield Adapted(corpus, told, base, place, pack, saved)


def said(made: Adapted) -> tuple[list[int], Any]:
    """Return the tokens that the served model reads of a post up to its first choice, and its logits for the next."""
    seen: list[tuple[list[int], Any]] = []

    def look(module: Any, given: Any, named: dict[str, Any], output: Any) -> None:
        if hasattr(output, "logits"):
            seen.append((named["input_ids"][0].tolist(), output.logits[0, -1].float()))

    served = mlflow.pyfunc.load_model(str(made.saved))
    watch = torch.nn.modules.module.register_module_forward_hook(look, with_kwargs=True)
    try:
        served.predict(pd.DataFrame([{"title": "another long week", "body": "and no friend to talk to"}]))
    finally:
        watch.remove()
    return [*seen[0][0], *seen[1][0]], seen[1][1]


def logits(base: Any, ids: list[int]) -> Any:
    with torch.no_grad():
        return base(input_ids=torch.tensor([ids])).logits[0, -1].float()


def plain(made: Adapted, form: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(made.base, dtype=form)


def test_the_served_model_is_the_base_plus_the_adapter_within_the_rounding_of_bfloat16(made: Adapted) -> None:
    """What the adapter adds to the logits is right to eight bits; merged in bfloat16, most of it is lost."""
    ids, found = said(made)
    before = logits(plain(made), ids)
    expected = logits(PeftModel.from_pretrained(plain(made), str(made.tuned)), ids)
    added = (expected - before).abs().max()
    assert added > 0
    assert (found - expected).abs().max() <= ROUNDING * min(added, expected.abs().max())

    half = PeftModel.from_pretrained(plain(made, torch.bfloat16), str(made.tuned)).merge_and_unload()
    lost = (logits(half.float(), ids) - expected).abs().max()
    assert lost > added / 2 and lost > ROUNDING * expected.abs().max(), "as served before: the same test fails"


def test_the_package_has_the_adapter_alone_and_pins_its_base(made: Adapted) -> None:
    weights = integrity.weights_of(integrity.listing(made.pack))
    assert list(weights) == [adapter.WEIGHTS]
    assert (made.pack / adapter.WEIGHTS).stat().st_size < (made.base / "model.safetensors").stat().st_size / 20
    origin = json.loads((made.pack / adapter.IDENTITY).read_text())
    assert (origin["base"], origin["revision"], origin["files"]) == ("team/base", REVISION, files_of(made.base))
    assert made.metrics["weights"]["files"][adapter.WEIGHTS] == weights[adapter.WEIGHTS]
    assert {adapter.CONFIG, adapter.IDENTITY} <= made.metrics["weights"]["files"].keys()
    config = json.loads((made.pack / adapter.CONFIG).read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("team/base", REVISION)
    assert config["target_modules"] == sorted(config["target_modules"]), "the same inputs give the same bytes"
    assert "peft==" in (made.saved / "requirements.txt").read_text()
    assert not [path for path in made.pack.rglob("*.json") if str(made.base.parents[3]) in path.read_text()]


def test_the_metrics_name_the_base_and_the_machinery(made: Adapted) -> None:
    [base] = made.metrics["bases"]
    assert (base["name"], base["revision"], len(base["digest"])) == ("team/base", REVISION, 64)
    told = made.metrics["environment"]
    assert (told["device"], told["precision"], told["libraries"]["torch"]) == ("cpu", "float32", torch.__version__)
    assert told["threads"] >= 1


def test_another_base_is_not_served(made: Adapted, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(made.base, kept)
    try:
        weights = plain(made, torch.bfloat16)
        weights.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
        weights.save_pretrained(made.base)
        with pytest.raises(Exception, match=r"not those on which .* was trained: model\.safetensors") as caught:
            mlflow.pyfunc.load_model(str(made.saved))
        assert type(caught.value).__name__ == "DataError"
    finally:
        shutil.rmtree(made.base)
        shutil.copytree(kept, made.base)


def test_an_adapter_that_does_not_fit_is_not_served(made: Adapted, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(made.tuned, tmp_path / "tuned")
    kept = load_file(tmp_path / "tuned" / adapter.WEIGHTS)
    kept.pop(next(name for name in kept if "lora_B" in name))
    save_file(kept, tmp_path / "tuned" / adapter.WEIGHTS)
    with refused("BaseUnfit", match="27 weights, and the model takes 28"):
        adapter.loaded(str(tmp_path / "tuned"), base="team/base")
