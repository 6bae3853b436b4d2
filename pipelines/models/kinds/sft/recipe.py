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

from pipelines.core.errors import BadParams, ConfigError
from pipelines.models.backbones import had
from pipelines.models.fitting.adapter import quantized
from pipelines.models.fitting.loss_and_optimizer import BYTES_PER_PARAMETER
from pipelines.models.kinds.sft import Sft, launch, packing
from pipelines.models.kinds.sft.packing import TokenizedSample

Samples = Sequence[TokenizedSample]

# Ours: tokens of a packed row. Fewer leave a GPU idle; more need memory and gain no more than a bigger batch would.
ROW = 4096
# Ours: bytes of activations for each token, layer and unit of width, without attention scores (Korthikanti et al. 2022
# count 34 for a plain block; one of Qwen3-14B's proportions has 49.5 beside weights in float32, measured), bytes of a
# frozen weight, and the share of a GPU's memory to use.
ACTIVATION_BYTES, BYTES_FROZEN, BYTES_QUANTIZED, SHARE = 56, 2, 0.52, 0.7


def plans(spec: Sft, *, rows: Samples, judged: Samples, beginning: int | None, seed: int) -> list[packing.PackingPlan]:
    """Return two plans of how samples are packed into input rows: for training, and for validation (a single step)."""
    start = beginning or 0
    room = None if beginning is None else max(ROW, spec.max_length) - start
    common: dict[str, Any] = {"seed": seed, "room": room, "processes": launch.world(), "batch": spec.batch}
    lengths = [[len(sample.ids) - start for sample in samples] for samples in (rows, judged)]
    return [
        packing.plan(lengths[0], step=spec.batch * spec.accumulation, epochs=spec.epochs, **common),
        packing.plan(lengths[1], step=len(judged), epochs=1, **common),
    ]


def base_of(spec: Sft, *, place: str) -> Any:
    """Load the base model: trained in float32, frozen in 4 bits or, on a GPU, in its own format (SPEC 2.4)."""
    gpu = torch.cuda.is_available()
    frozen = spec.tuning == "lora" and gpu
    attention = "flash_attention_2" if gpu and not spec.packing and is_flash_attn_2_available() else "sdpa"
    form = {"dtype": "auto" if frozen else torch.float32} | quantized(spec.quantization)
    return had(AutoModelForCausalLM, place, base=spec.base, attn_implementation=attention, **form)


def processes(spec: Sft, *, asked: int | None) -> int:
    """Return in how many processes to fine-tune: ``asked``, else one for each GPU that a recipe can use, else 1."""
    where = f"models ({spec.base})"
    if spec.single and (asked or 1) > 1:
        # bitsandbytes 0.50 with FSDP 2: in two processes 4 bits gave wrong losses after an epoch, and 8 bits failed
        reduced = "quantization: nf4" if spec.quantization else "optimizer: adamw8bit"
        detail = f"{reduced} runs in one process, not in {asked}: unset CORPUS_FINETUNE_PROCESSES, or use offload: cpu"
        raise BadParams(where=where, detail=detail)
    if spec.single and find_spec("bitsandbytes") is None:
        raise ConfigError("ExtraMissing", package="bitsandbytes")
    return 1 if spec.single else launch.processes(asked)


def adapter(spec: Sft) -> LoraConfig | None:
    """Return the LoRA configuration for all linear layers (SPEC 29: the paper names none); ``None`` for full tuning."""
    if spec.tuning == "full":
        return None
    if spec.rank is None or spec.alpha is None:
        raise BadParams(where=f"models ({spec.base})", detail="LoRA needs rank and alpha")
    return LoraConfig(
        r=spec.rank, lora_alpha=spec.alpha, lora_dropout=spec.dropout or 0.0, target_modules="all-linear",
        task_type="CAUSAL_LM",
    )  # fmt: skip


def arguments(spec: Sft, *, model: Any, plan: packing.PackingPlan, folder: Path, seed: int) -> SFTConfig:
    """Return the arguments of the library's trainer for a recipe and a model."""
    gpu = torch.cuda.is_available()
    text = model.config.get_text_config()
    short = short_of_memory(
        spec,
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        weights=sum(p.numel() for p in model.parameters()),
        memory=torch.cuda.get_device_properties(0).total_memory if gpu else None,
        processes=launch.world(),
    )
    made = SFTConfig(
        output_dir=str(folder),
        num_train_epochs=spec.epochs,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.rows,
        learning_rate=spec.learning_rate,
        lr_scheduler_type="linear",
        # an integer: the library reads a float of 1 as a count too
        warmup_steps=math.ceil(spec.warmup * len(plan.steps[0]) * spec.epochs),
        weight_decay=spec.weight_decay,
        optim="adamw_bnb_8bit" if spec.optimizer == "adamw8bit" else "adamw_torch_fused" if gpu else "adamw_torch",
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
        # else each process would hold the gradients of the whole model between the rows of a step
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": launch.grouped()}},
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    # a single process on a host of several GPUs uses one, and no copies of the model on the others
    made._n_gpu = min(made.n_gpu, 1)
    return made


def short_of_memory(spec: Sft, *, layers: int, width: int, weights: int, memory: int | None, processes: int) -> bool:
    """Return whether activations must be recomputed, because GPU memory is too small for them.

    Args:
        memory: the memory of one GPU in bytes; ``None`` without a GPU.
    """
    if memory is None:
        return False
    frozen = BYTES_QUANTIZED if spec.quantization else BYTES_FROZEN
    each = 0 if spec.offload else BYTES_PER_PARAMETER if spec.tuning == "full" else frozen
    return bool(each * weights / processes + ACTIVATION_BYTES * row_of(spec) * layers * width > SHARE * memory)


def row_of(spec: Sft) -> int:
    """Return the number of tokens in one forward pass: of a packed row, or of a padded batch."""
    return max(ROW, spec.max_length) if spec.packing else spec.batch * spec.max_length
