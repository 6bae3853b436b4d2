"""Store a LoRA adapter with the identity of its base model, and load both without merging them.

A weight in bfloat16 has eight bits: merging rounds most of an adapter's small update away. The base model is the one on
the hub at the revision of the training, verified by digest; any other is stored beside the adapter.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from pipelines.core.config.base import Section
from pipelines.core.errors import ConfigError, DataError
from pipelines.models.backbones import had, unfit
from pipelines.models.base_files import files_of, located, on_hub

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The identity of a base model on the hub, or the folder with another base model.
IDENTITY, COPY = "base.json", "base"
# Present if the base model was quantized during training, and is again wherever the adapter is used.
QUANTIZATION = "quantization.json"
SHARD = "5GB"


class BaseIdentity(Section):
    """The content of ``base.json``: an adapter's base model on the hub, its revision, and its files' SHA-256."""

    base: str
    revision: str
    files: dict[str, str]


def write(spec: Any, *, place: str, checkpoint: Path, out: Path) -> None:
    """Write the adapter of a checkpoint to ``out``, with the identity or a copy of the base model in ``place``."""
    hub = on_hub(spec.base)
    config = json.loads((checkpoint / CONFIG).read_text())
    # a set in memory, whose order differs between runs
    config["target_modules"] = sorted(config["target_modules"])
    config |= {"base_model_name_or_path": spec.base if hub else COPY, "revision": spec.revision if hub else None}
    (out / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    shutil.copy(checkpoint / WEIGHTS, out / WEIGHTS)
    if spec.quantization:
        (out / QUANTIZATION).write_text(json.dumps({"method": spec.quantization}) + "\n")
    if hub and spec.revision:
        identity = BaseIdentity(base=spec.base, revision=spec.revision, files=files_of(place))
        (out / IDENTITY).write_text(identity.model_dump_json(indent=2) + "\n")
    else:
        base = had(AutoModelForCausalLM, place, base=spec.base, dtype="auto")
        base.save_pretrained(str(out / COPY), max_shard_size=SHARD)


def quantized(method: str | None) -> dict[str, Any]:
    """Return the options of ``from_pretrained`` that load a base model in 4 bits (``nf4``); none for ``None``.

    Norms, embeddings and output head are not quantized.
    """
    if method is None:
        return {}
    if find_spec("bitsandbytes") is None:
        raise ConfigError("ExtraMissing", package="bitsandbytes")
    form = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=method, bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=form
    )
    return {"quantization_config": config, "dtype": form}


def stored(place: str) -> bool:
    """Return whether a folder holds a LoRA adapter."""
    return (Path(place) / CONFIG).is_file()


def loaded(place: str, *, base: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return the base model with a folder's LoRA adapter on it, not merged, and the library's report on the base."""
    folder = Path(place)
    verified = _base(folder)
    # not at module level: only models with an adapter need the library
    from peft import PeftModel

    if (folder / QUANTIZATION).is_file():
        options |= quantized(json.loads((folder / QUANTIZATION).read_bytes())["method"])
    model, report = had(AutoModelForCausalLM, verified, base=base, output_loading_info=True, **options)
    adapted = PeftModel.from_pretrained(model, str(folder)).get_base_model()
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        saved = len(file.keys())
    placed = sum(".lora_" in name for name, _ in adapted.named_parameters())
    # the library leaves the update of a weight without an adapter at zero
    if placed != saved:
        raise unfit(base, f"its adapter has {saved} weights, and the model takes {placed}")
    return adapted, report


def _base(folder: Path) -> str:
    """Return the folder of the base model of an adapter, after comparing its files with the recorded ones."""
    if not (folder / IDENTITY).is_file():
        return str(folder / COPY)
    identity = BaseIdentity.model_validate_json((folder / IDENTITY).read_bytes())
    place = located(identity.base, revision=identity.revision)
    if wrong := {name for name, _ in files_of(place).items() ^ identity.files.items()}:
        raise DataError("BaseAltered", base=identity.base, detail=", ".join(sorted(wrong)))
    return place
