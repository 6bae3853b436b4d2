"""A plan of fine-tuning, before anything is loaded: exact where sizes are known, else never less than measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from pipelines.core.config.params import Params, load, validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.models import base_files
from pipelines.models.kind import spec
from pipelines.models.kinds.sft import architecture, preflight, recipe, trainer
from tests.refusals import refused
from tests.small_corpus import ROOT
from tests.train.small_tuning import SPEC, a_run

GB = 10**9
# Total parameters on the models' own pages, in billions.
PUBLISHED = {"qwen3-14b": 14.8, "llama-70b": 70.6, "qwen2-72b": 72.7}


@pytest.fixture(scope="module")
def params() -> Params:
    return load(ROOT)


def changed(params: Params, model: str, **entry: Any) -> Params:
    spec = params.models[model].model_copy(update=entry)
    return params.model_copy(update={"models": {**params.models, model: spec}})


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_large_bases_have_their_published_sizes_without_a_network(params: Params, model: str) -> None:
    found = preflight.requirements(model, params=params)
    assert round(found.parameters / 1e9, 1) == PUBLISHED[model]
    assert found.disk["base"] == pytest.approx(2 * found.parameters, rel=1e-3), "the hub has bfloat16"
    assert not found.deviations
    assert found.gpu_bytes <= 80 * GB
    fewer = preflight.requirements(model, params=params, gpus=found.gpus // 2)
    assert fewer.gpu_bytes > 80 * GB, "no smaller number of GPUs is enough"


def test_the_checkpoints_of_all_14_billion_weights_are_bounded(params: Params) -> None:
    """Each of three held the weights twice and the moments: 700 GB. Now the best epoch's has no moments."""
    found = preflight.requirements("qwen3-14b", params=params, gpus=4)
    weights, moments = 4 * found.parameters, 8 * found.parameters
    assert found.disk["checkpoints"] == 3 * weights + 2 * moments == pytest.approx(413.5 * GB, rel=1e-3)
    assert 3 * (2 * weights + moments) > 700 * GB
    assert [found.gpu[use] for use in ("weights", "gradients", "optimizer")] == [
        size // 4 for size in (weights, weights, moments)
    ]


def test_an_adapter_has_the_weights_of_its_rank(params: Params) -> None:
    """Per layer of Llama 3.3 70B: 8 × (inputs + outputs) of q, k, v, o, gate, up and down."""
    layer = (8192 + 8192) * 2 + (8192 + 1024) * 2 + (8192 + 28672) * 3
    found = preflight.requirements("llama-70b", params=params)
    assert found.trained == 80 * 8 * layer
    assert found.disk["checkpoints"] == (3 * 4 + 2 * 8) * found.trained < 3 * GB


def test_fewer_gpus_need_a_recipe_that_says_what_it_changes(params: Params) -> None:
    quantized = preflight.requirements("llama-70b", params=changed(params, "llama-70b", quantization="nf4"))
    assert (quantized.gpus, quantized.deviations) == (1, ("base in 4 bits (nf4)",))
    assert 35 * GB < quantized.gpu["weights"] < 42 * GB and quantized.gpu_bytes < 60 * GB
    offloaded = preflight.requirements("qwen3-14b", params=changed(params, "qwen3-14b", offload="cpu"), card=24 * GB)
    assert offloaded.gpus == 1 and offloaded.gpu_bytes < 20 * GB and not offloaded.deviations
    assert offloaded.host_bytes == (16 + 4) * offloaded.parameters
    reduced = preflight.requirements("qwen3-14b", params=changed(params, "qwen3-14b", optimizer="adamw8bit"), gpus=1)
    plain = preflight.requirements("qwen3-14b", params=params, gpus=1)
    assert reduced.gpu["optimizer"] < 0.35 * plain.gpu["optimizer"] and reduced.deviations == ("AdamW in 8 bits",)


def base(folder: Path, **sizes: Any) -> Path:
    """Write a small model of the true architecture, whose head is not its embedding, as those of all three bases."""
    tokenizer = base_files.causal_tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen3Config(
        vocab_size=base_files.PIECES, **{"hidden_size": 128, "intermediate_size": 435, "num_hidden_layers": 2} | sizes,
        num_attention_heads=1, num_key_value_heads=1, head_dim=128, tie_word_embeddings=False,
        eos_token_id=ids(base_files.END), pad_token_id=ids(base_files.PAD), bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.faults
def test_a_run_takes_the_computed_disk_space_and_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = base(tmp_path / "base")
    folder, peaks, mark = tmp_path / "checkpoints", list[int](), trainer.mark

    def measured(checkpoint: Path, *, key: str) -> None:
        peaks.append(size(folder))
        mark(checkpoint, key=key)

    monkeypatch.setattr(trainer, "mark", measured)
    fitted = a_run(tmp_path, base=str(place), epochs=2, checkpoint_steps=1)
    spec = SPEC.model_copy(update={"base": str(place)})
    sizes = architecture.of(str(place), revision=None)
    expected = preflight.estimated("it", spec=spec, sizes=sizes, gpus=1, card=None)
    assert fitted.parameters == sizes.parameters == expected.trained
    # tokenizer, configuration and states of the random generators are half a megabyte each
    assert max(peaks) == pytest.approx(expected.disk["checkpoints"], abs=3 * 600_000)
    assert size(place) == pytest.approx(expected.disk["base"] - preflight.FILES, abs=600_000)
    assert 2 * size(tmp_path / "out") == pytest.approx(expected.disk["model"], abs=2 * 600_000)
    newest = max(folder.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    state = torch.load(newest / "optimizer.pt", weights_only=True)["state"]
    moments = [slot[name] for slot in state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert sum(m.numel() * m.itemsize for m in moments) == expected.gpu["optimizer"]


@pytest.mark.faults
def test_a_superseded_best_checkpoint_keeps_only_its_weights(tmp_path: Path) -> None:
    a_run(tmp_path, epochs=3, learning_rate=0.02, warmup=1, weight_decay=0, checkpoint_steps=2)
    found = {path.name: path for path in (tmp_path / "checkpoints").iterdir()}
    for name, path in found.items():
        assert (path / "model.safetensors").is_file()
        assert (path / "optimizer.pt").is_file() == (path / trainer.WHOLE).is_file() == (name == "checkpoint-9")


@pytest.mark.parametrize("recompute", [False, pytest.param(True, marks=pytest.mark.faults)])
def test_the_bound_of_activations_holds_and_is_not_twice_too_high(tmp_path: Path, recompute: bool) -> None:
    """Of Qwen3-14B's proportions, in bfloat16 as on a GPU."""
    place = base(tmp_path, hidden_size=256, intermediate_size=870, num_hidden_layers=4)
    model = AutoModelForCausalLM.from_pretrained(place).train()
    if recompute:
        model.activation_checkpointing_enable()
    tokens = 1024
    kept, own = dict[int, int](), {p.data_ptr() for p in model.parameters()}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        # copies of weights in bfloat16 are counted apart
        if tensor.data_ptr() not in own and tensor.shape[:1] == (1,):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(0, base_files.PIECES, (1, tokens))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", dtype=torch.bfloat16):
        model.model(input_ids=ids, use_cache=False)
    spec = SPEC.model_copy(update={"packing": False, "batch": 1, "max_length": tokens})
    sizes = architecture.of(str(place), revision=None)
    bound = preflight.activations(spec, sizes=sizes, recompute=recompute)
    layer = recipe.ACTIVATION_BYTES * tokens * 256
    # while one layer is computed a second time, its activations are there as well
    measured = sum(kept.values()) + (layer if recompute else 0)
    assert measured < bound < 2 * measured, (measured / layer, bound / layer)


def test_a_machine_that_is_too_small_is_refused_before_anything_is_loaded(
    params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All weights of 72 billion need 1.2 TB of memory."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    huge = changed(params, "qwen2-72b", tuning="full")
    with refused("NotEnough", match=r"'qwen2-72b' needs more .* GB of the host's memory.*corpus plan train"):
        preflight.check("qwen2-72b", params=huge, settings=Settings.from_env(), root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_names_what_shares_it(tmp_path: Path, params: Params) -> None:
    needed = preflight.requirements("qwen2-72b", params=changed(params, "qwen2-72b", tuning="full", rank=None), gpus=1)
    places = {"base": None, "checkpoints": tmp_path / "not/yet/there", "model": tmp_path}
    [found] = preflight._full(needed, places=places, kept=0)
    assert "disk space for checkpoints and model, of which" in found
    assert not list(preflight._full(needed, places=dict.fromkeys(places), kept=0))
    small = dict.fromkeys(needed.disk, 1)
    assert not list(preflight._full(replace(needed, disk=small), places=places, kept=0))


@pytest.mark.parametrize(
    ("model", "free", "expected"),
    [
        ("llama-70b", 80 * GB, "models.llama-70b.quantization nf4"),
        ("qwen3-14b", 80 * GB, "models.qwen3-14b.offload cpu"),
        ("qwen3-14b", 10 * GB, "needs 4 GPU(s) of 80.0 GB"),
    ],
)
def test_the_refusal_says_what_would_fit(params: Params, model: str, free: int, expected: str) -> None:
    spec = preflight.entry(model, params=params)
    sizes = architecture.of(spec.base, revision=spec.revision)
    needed = preflight.estimated(model, spec=spec, sizes=sizes, gpus=1, card=free)
    # a host of 500 GB takes what is offloaded from one GPU, but for 70 billion weights the quantized base is first
    available = 200 * GB if model == "llama-70b" else 500 * GB
    assert list(preflight._short(needed, free=free, available=available))
    assert expected in preflight._advice(needed, spec=spec, sizes=sizes, free=free, available=available)


def test_the_table_of_the_documentation_is_the_plan(params: Params) -> None:
    text = (ROOT / "docs/models.md").read_text()
    row = re.compile(r"^\| `([\w-]+)`(?: with `(\w+): (\w+)`)?, (\d) GPUs?(?: of (\d+) GB)? \|(.*)\|$", re.MULTILINE)
    found = row.findall(text)
    assert len(found) == 5
    for model, name, value, gpus, card, cells in found:
        changes = {name: value} if name else {}
        plan = preflight.requirements(model, params=changed(params, model, **changes), card=int(card or 80) * GB)
        disk = " + ".join(f"{plan.disk[use] / GB:.0f}" for use in ("base", "checkpoints", "model"))
        assert plan.gpus == int(gpus)
        told = [f"{plan.gpu_bytes / GB:.0f} GB", f"{disk} GB", f"{plan.host_bytes / GB:.0f} GB"]
        assert [cell.strip() for cell in cells.split("|")] == told


def test_what_has_no_plan_is_refused(params: Params) -> None:
    with refused("UnknownName", match="llama-70b, qwen2-72b, qwen3-14b"):
        preflight.requirements("modernbert", params=params)
    with refused("BaseUnpinned"):
        preflight.requirements("qwen3-14b", params=changed(params, "qwen3-14b", revision=None))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"quantization": "nf4"}, "needs tuning: lora"),
        ({"optimizer": "adamw8bit", "offload": "cpu"}, "not besides"),
        ({"tuning": "lora", "rank": 4, "alpha": 8, "quantization": "nf4", "offload": "cpu"}, "not besides"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_no_parameter(params: Params, entry: dict[str, Any], told: str) -> None:
    values = params.model_dump(mode="json")
    values["models"]["qwen3-14b"] |= entry
    with pytest.raises(BadParams, match=told):
        spec(validate(values, where="params.yaml"), "qwen3-14b")


def test_the_command_prints_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from pipelines.cli.doctor import plan

    monkeypatch.chdir(ROOT)
    command = ["train", "qwen3-14b", "--gpus", "2", "--memory", "141"]
    done = CliRunner().invoke(plan, [*command, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["gpus"] == 2 and found["gpu_bytes"] == sum(found["gpu"].values()) > 118 * GB
    assert found["disk_bytes"] == sum(found["disk"].values())
    lines = CliRunner().invoke(plan, command, catch_exceptions=False).stdout.splitlines()
    assert (
        lines[0].startswith("qwen3-14b: 14,768,307,200 weights") and f"{found['disk_bytes'] / 1e9:.1f} GB" in lines[3]
    )
