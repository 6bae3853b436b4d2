"""Turn a fine-tuning recipe (an entry of ``params.models``) into settings for this machine: formats, rows, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from transformers.utils import is_flash_attn_2_available
from trl import SFTConfig

from pipelines.config.models import SftModel
from pipelines.errors import BadParams, ExtraMissing
from pipelines.models.pretrained.backbones import had
from pipelines.train.classifiers.loss_and_optimizer import BYTES_PER_PARAMETER
from pipelines.train.sft import launch, packing
from pipelines.train.sft.packing import TokenizedSample

# Ours: tokens of a packed row. Fewer leave a GPU idle; more need memory and gain no more than a bigger batch would.
ROW = 4096
# Ours: bytes of activations for each token, layer and unit of width, without attention scores (Korthikanti et al. 2022
# count 34 for a plain block; gated ones have more), bytes of a frozen weight, and the share of a GPU's memory to use.
ACTIVATION_BYTES, BYTES_FROZEN, SHARE = 40, 2, 0.7


def plans(
    spec: SftModel,
    *,
    rows: Sequence[TokenizedSample],
    judged: Sequence[TokenizedSample],
    beginning: int | None,
    seed: int,
) -> list[packing.PackingPlan]:
    """Return two plans of how samples are packed into input rows: for training, and for validation (a single step)."""
    start = beginning or 0
    room = None if beginning is None else max(ROW, spec.max_length) - start
    common: dict[str, Any] = {"seed": seed, "room": room, "processes": launch.world(), "batch": spec.batch}
    lengths = [[len(sample.ids) - start for sample in samples] for samples in (rows, judged)]
    return [
        packing.plan(lengths[0], step=spec.batch * spec.accumulation, epochs=spec.epochs, **common),
        packing.plan(lengths[1], step=len(judged), epochs=1, **common),
    ]


def base_of(spec: SftModel, *, place: str) -> Any:
    """Load the base model in float32, or in its own format if its weights are frozen and a GPU is used (SPEC 2.4)."""
    gpu = torch.cuda.is_available()
    frozen = spec.tuning == "lora" and gpu
    attention = "flash_attention_2" if gpu and not spec.packing and is_flash_attn_2_available() else "sdpa"
    return had(
        AutoModelForCausalLM, place, base=spec.base, dtype="auto" if frozen else torch.float32,
        attn_implementation=attention,
    )  # fmt: skip


def check(spec: SftModel, *, processes: int) -> None:
    """Check that this machine can run a recipe for fewer GPUs.

    Raises:
        BadParams: several processes cannot share the optimizer's 8-bit moments.
        ExtraMissing: bitsandbytes is not installed.
    """
    reduced = spec.quantization or spec.optimizer == "adamw8bit"
    if spec.optimizer == "adamw8bit" and processes > 1:
        detail = f"optimizer: adamw8bit runs in a single process, not in {processes}; use offload: cpu with several GPUs"
        raise BadParams(where=f"models ({spec.base})", detail=detail)
    if reduced and find_spec("bitsandbytes") is None:
        raise ExtraMissing(package="bitsandbytes")


def adapter(spec: SftModel) -> LoraConfig | None:
    """Return the LoRA configuration for all linear layers (SPEC 29: the paper names none); ``None`` for full tuning."""
    if spec.tuning == "full":
        return None
    if spec.rank is None or spec.alpha is None:
        raise BadParams(where=f"models ({spec.base})", detail="LoRA needs rank and alpha")
    return LoraConfig(
        r=spec.rank, lora_alpha=spec.alpha, lora_dropout=spec.dropout or 0.0, target_modules="all-linear",
        task_type="CAUSAL_LM",
    )  # fmt: skip


def arguments(
    spec: SftModel, *, model: Any, plan: packing.PackingPlan, folder: Path, seed: int, beginning: int | None
) -> SFTConfig:
    """Return the arguments of the library's trainer for a recipe, a model and the number of this machine's processes.

    Args:
        spec: the recipe.
        model: the loaded base model.
        plan: how the training samples are packed into rows.
        folder: where the trainer writes checkpoints.
        seed: the trainer's seed.
        beginning: the length of the packed samples' common prefix; ``None`` if rows are padded instead.
    """
    gpu = torch.cuda.is_available()
    short = short_of_memory(
        spec,
        config=model.config,
        weights=sum(p.numel() for p in model.parameters()),
        row=max(ROW, spec.max_length) if beginning is not None else spec.batch * spec.max_length,
        memory=torch.cuda.get_device_properties(0).total_memory if gpu else None,
        processes=launch.world(),
    )
    return SFTConfig(
        output_dir=str(folder),
        num_train_epochs=spec.epochs,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.rows,
        learning_rate=spec.learning_rate,
        lr_scheduler_type="linear",
        # an integer: the library reads a float of 1 as a count too
        warmup_steps=math.ceil(spec.warmup * len(plan.steps[0]) * spec.epochs),
        weight_decay=spec.weight_decay,
        optim="adamw_torch_fused" if gpu else "adamw_torch",
        bf16=gpu and torch.cuda.is_bf16_supported(),
        use_cpu=not gpu,
        activation_checkpointing=short,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        seed=seed,
        report_to="none",
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def short_of_memory(spec: SftModel, *, config: Any, weights: int, row: int, memory: int | None, processes: int) -> bool:
    """Return whether activations must be recomputed, because GPU memory is too small for them.

    Args:
        spec: says whether all weights are trained, with an optimiser state, or only an adapter.
        config: the model's configuration, for its depth and width.
        weights: number of the model's weights.
        row: tokens in one forward pass.
        memory: the memory of one GPU in bytes; ``None`` without a GPU.
        processes: number of processes that share the weights.
    """
    if memory is None:
        return False
    text = config.get_text_config()
    activations = ACTIVATION_BYTES * row * text.num_hidden_layers * text.hidden_size
    held = (BYTES_PER_PARAMETER if spec.tuning == "full" else BYTES_FROZEN) * weights / processes
    return bool(held + activations > SHARE * memory)
