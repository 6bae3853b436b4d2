"""Count the weights of a causal base model from its configuration alone, on torch's meta device, which needs no memory.

The configuration is the cached one, a published one (``published_configs.yaml``), or, as a last resort, a file of a
kilobyte from the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from huggingface_hub import try_to_load_from_cache
from transformers import AutoConfig, AutoModelForCausalLM

from pipelines.core.errors import ConfigError
from pipelines.models.backbones import had, opened
from pipelines.models.base_files import on_hub

PUBLISHED = Path(__file__).with_name("published_configs.yaml")
# bitsandbytes keeps the moments of smaller tensors in 32 bits, and transformers those of embeddings.
SMALL = 4096


@dataclass(frozen=True)
class Architecture:
    """Sizes of a causal model; all but the last four are numbers of weights.

    Args:
        parameters: all weights, each once.
        linear: those in linear layers except the output head, which adapters extend and quantization shrinks.
        ranks: the weights of an adapter of rank 1 on those layers.
        layer: the largest transformer layer.
        ends: embedding and output head, once if they are tied.
        tied: those that a checkpoint in parts has a second time, because the head is the embedding.
        plain: those whose moments an 8-bit optimiser keeps in 32 bits.
        itemsize: bytes of a weight in the base's own number format.
    """

    parameters: int
    linear: int
    ranks: int
    layer: int
    ends: int
    tied: int
    plain: int
    layers: int
    width: int
    vocabulary: int
    itemsize: int


def of(base: str, *, revision: str | None) -> Architecture:
    """Return the sizes of a base model: an id on the hub, a folder, or a ``tiny:`` name; no weight is loaded."""
    return counted(_config(base, revision=revision))


def counted(config: Any) -> Architecture:
    """Return the sizes of the model of a configuration of ``transformers``."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    blocks = set(model._no_split_modules or ())
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    weights = list(model.parameters())
    ends = {id(m.weight): m.weight.numel() for m in (embedding, head) if m is not None}
    text = config.get_text_config()
    return Architecture(
        parameters=sum(p.numel() for p in weights),
        linear=sum(m.weight.numel() for m in linear),
        ranks=sum(m.in_features + m.out_features for m in linear),
        layer=max(_size(m) for m in model.modules() if type(m).__name__ in blocks),
        ends=sum(ends.values()),
        tied=embedding.weight.numel() if head is not None and head.weight is embedding.weight else 0,
        plain=sum(p.numel() for p in weights if p.numel() < SMALL or p is embedding.weight),
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        vocabulary=text.vocab_size,
        itemsize=(text.dtype or config.dtype or torch.float32).itemsize,
    )


def _size(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _config(base: str, *, revision: str | None) -> Any:
    if not on_hub(base):
        with TemporaryDirectory() as folder, opened(base, seed=0, folder=Path(folder)) as place:
            return had(AutoConfig, place, base=base)
    if revision is None:
        raise ConfigError("BaseUnpinned", base=base)
    cached = isinstance(try_to_load_from_cache(base, "config.json", revision=revision), str)
    if not cached and (published := _published().get(f"{base}@{revision}")):
        return AutoConfig.for_model(**published)
    return had(AutoConfig, base, base=base, revision=revision)


@cache
def _published() -> dict[str, dict[str, Any]]:
    configs: dict[str, dict[str, Any]] = yaml.safe_load(PUBLISHED.read_bytes())
    return configs
