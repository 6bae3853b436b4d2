"""Estimate GPU memory, disk and hours of a row, to know before anything starts which machines a profile needs.

Memory and disk of fine-tuning are those of its preflight (:mod:`pipelines.train.preflight`). All else is simple
arithmetic from numbers of parameters; every constant is ours unless a source is named.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.core.config.base_sizes import base_sizes
from pipelines.core.config.models import SftModel
from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError

GB = 10**9
TINY = "tiny:"
# The GPU to count in where this host has none: an A100 or H100.
USUAL_GB = 80
# Of a GPU's memory; the rest is taken by the driver, the libraries and fragments.
USABLE = 0.9
# Weights, gradients and both moments of AdamW in float32 (SPEC 2.4, trap 2).
TRAINED_BYTES = 16
# Activations, caches of keys and values.
ROOM_GB = 6.0
# SPEC 2.4: tokens a second and GPU (H200), full tuning of 14B and LoRA of 70B, and the tokens of a post with its prompt
# that follow from 14 minutes on three GPUs for three epochs of 4,181 posts.
FULL_RATE, LORA_RATE = (4_500, 14.8e9), (1_100, 70.6e9)
POST_TOKENS = 900
# About a third of an A100's peak in bfloat16; a token costs two operations a parameter.
OPERATIONS = 1e14
# Memes a second of an encoder with as many parameters as BERT-base, training, on one such GPU.
ENCODER_RATE = (100, 1.1e8)
# A process that loads its libraries and weights.
START_HOURS = 0.05
GPU_SECONDS = 8


@dataclass(frozen=True)
class HardwareNeed:
    """GPU memory, GPUs of ``of_gb``, files of base models and hours of one row; ``None``: a base of unknown size."""

    memory_gb: float | None = 0.0
    gpus: int | None = 0
    of_gb: float = USUAL_GB
    disk_gb: float | None = 0.0
    hours: float | None = 0.0


UNKNOWN = HardwareNeed(memory_gb=None, gpus=None, disk_gb=None, hours=None)


def available() -> list[float]:
    """Return the memory in GB of each GPU of this host, none without a driver."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    # in MiB
    return [int(line) * 2**20 / GB for line in done.stdout.split() if line.isdigit()]


def parameters(bases: Sequence[str]) -> float | None:
    """Return the number of parameters of base models together; ``tiny:`` ones count as nothing."""
    if any(base not in base_sizes() and not base.startswith(TINY) for base in bases):
        return None
    return float(sum(base_sizes()[base].parameters for base in bases if base in base_sizes()))


def encoder(bases: Sequence[str], *, items: int, epochs: int, runs: int, of_gb: float) -> HardwareNeed:
    """Return what training a meme classifier takes, one run after another on one GPU."""
    size = parameters(bases)
    rate, usual = ENCODER_RATE
    hours = runs * (START_HOURS + items * epochs * (size or 0) / (rate * usual) / 3600)
    return _need(bases, weights=(size or 0) * TRAINED_BYTES / GB, hours=hours, of_gb=of_gb)


def asked(base: str, *, tokens: int, of_gb: float) -> HardwareNeed:
    """Return what a model takes that reads and writes ``tokens``, in this process or behind a server of your own."""
    hours = tokens * 2 * (parameters([base]) or 0) / OPERATIONS / 3600
    return _need([base], weights=_files([base]), hours=hours, of_gb=of_gb, shared=True)


def tuned(model: str, *, spec: SftModel, params: Params, posts: int, runs: int, of_gb: float) -> HardwareNeed:
    """Return what fine-tuning a causal model takes, one run after another on all its GPUs."""
    size = parameters([spec.base])
    if not size:
        return UNKNOWN if size is None else HardwareNeed(of_gb=of_gb)
    from pipelines.train import preflight

    try:
        required = preflight.requirements(model, params=params, card=int(of_gb * GB))
    except ConfigError:
        return UNKNOWN  # its configuration is neither published here nor cached, or has no commit
    rate, usual = FULL_RATE if spec.tuning == "full" else LORA_RATE
    tokens = posts * spec.epochs * POST_TOKENS
    hours = runs * (START_HOURS + tokens * size / (rate * usual) / required.gpus / 3600)
    memory, disk = required.gpus * required.gpu_bytes / GB, required.disk_bytes / GB
    return HardwareNeed(round(memory, 1), required.gpus, of_gb, round(disk, 1), round(hours, 2))


def _files(bases: Sequence[str]) -> float:
    sizes = [base_sizes()[base] for base in bases if base in base_sizes()]
    return sum(size.parameters * size.bytes for size in sizes) / GB


def _need(bases: Sequence[str], *, weights: float, hours: float, of_gb: float, shared: bool = False) -> HardwareNeed:
    """Return the need of models with ``weights`` GB in memory; ``shared``: all GPUs share the hours after the start."""
    size = parameters(bases)
    if not size:
        return UNKNOWN if size is None else HardwareNeed(of_gb=of_gb)
    memory = weights + ROOM_GB
    gpus = math.ceil(memory / (of_gb * USABLE))
    hours = START_HOURS + hours / gpus if shared else hours
    return HardwareNeed(round(memory, 1), gpus, of_gb, round(_files(bases), 1), round(hours, 2))
