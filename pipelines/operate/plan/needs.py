"""Tell what a row of a profile takes (GPU memory, disk, hours), and what it lacks here, with commands that supply it.

Memory and disk of fine-tuning are those of its preflight (:mod:`pipelines.models.kinds.sft.preflight`). All else is
simple arithmetic from numbers of parameters; every constant is ours unless a source is named.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from huggingface_hub import get_token
from pydantic import Field

from pipelines.collect.read.engine import ENGINES
from pipelines.core.config.base import Positive, Section
from pipelines.core.config.label import Consent, RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.llm.vendor import Provider
from pipelines.models.kind import spec

TABLE = Path(__file__).with_name("base_sizes.yaml")


class BaseSize(Section):
    """The size of one base model; ``base_sizes.yaml`` explains the fields."""

    parameters: Positive
    bytes: Annotated[float, Field(gt=0)] = 2
    gated: bool = False
    model: str
    config: str
    sizes: dict[str, Any]


@cache
def base_sizes() -> Mapping[str, BaseSize]:
    """Return the sizes of all known base models by their id on the hub."""
    sizes = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {name: BaseSize.model_validate(row) for name, row in sizes.items()}


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


def tuned(model: str, *, entry: Any, params: Params, posts: int, runs: int, of_gb: float) -> HardwareNeed:
    """Return what fine-tuning a causal model takes, one run after another on all its GPUs."""
    size = parameters([entry.base])
    if not size:
        return UNKNOWN if size is None else HardwareNeed(of_gb=of_gb)
    from pipelines.models.kinds.sft import preflight

    try:
        required = preflight.requirements(model, params=params, card=int(of_gb * GB))
    except ConfigError:
        return UNKNOWN  # its configuration is neither published here nor cached, or has no commit
    rate, usual = FULL_RATE if entry.tuning == "full" else LORA_RATE
    tokens = posts * entry.epochs * POST_TOKENS
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


@dataclass(frozen=True)
class Gap:
    """Something that must be there before a row can run, and the command or step that supplies it."""

    what: str
    command: str


def put(key: str, value: str) -> str:
    """Return the command that sets a parameter of the corpus."""
    return f"corpus params set {key} {value} --reason …"


def access(provider: str, *, params: Params, settings: Settings, today: date, serve: str = "") -> Iterator[Gap]:
    """Yield what is missing to ask a provider: an address or a key, and a consent.

    ``serve`` is the model to serve, for a provider that is a server of your own.
    """
    asked = Provider.of(provider, params=params, settings=settings)
    address, key, name = asked.endpoint.url, asked.endpoint.key.get_secret_value(), asked.variable
    if asked.vendor.resource:
        if not (address and key):
            command = f"export {name}_URL={asked.vendor.resource} {name}_KEY=…"
            yield Gap(f"address and key of provider {provider}", command)
    elif asked.own_server:
        if not address:
            start = f"vllm serve {serve} (docs/howto/served.md), then " if serve else ""
            yield Gap(f"address of provider {provider}", f"{start}export {name}_URL=http://HOST:8000/v1")
            return  # a server on this machine needs no consent
    elif not (address or key):
        yield Gap(f"key of provider {provider}", f"export {name}_KEY=…")
    if not asked.here:
        yield from consent(provider, params=params, today=today)


def consent(provider: str, *, params: Params, today: date) -> Iterator[Gap]:
    """Yield the consent of a provider if it is missing or does not cover today."""
    state = params.consents.get(provider, Consent()).told(provider, today=today)
    if not state.startswith("until"):
        fields = ", ".join(f"{name}: …" for name in Consent.model_fields)
        yield Gap(f"consent for provider {provider}: {state}", put(f"consents.{provider}", f"'{{{fields}}}'"))


def served(name: str, *, params: Params, settings: Settings, today: date) -> tuple[list[Gap], list[str]]:
    """Return what is missing to ask a labeller, and notes: the vendor's notice of a retirement that is still ahead."""
    labeller = params.labellers[name]
    if not isinstance(labeller, RemoteLabeller):
        return [], []
    gaps = list(access(labeller.provider, params=params, settings=settings, today=today, serve=labeller.model))
    asked = Provider.of(labeller.provider, params=params, settings=settings)
    notice = asked.retirement(labeller.model)
    if notice is None:
        return gaps, []
    text = f"{labeller.model} {notice.told(today=today)}"
    if notice.afterwards == "routed":
        text += f", which then answers with {notice.successor}"
    if notice.retired > today:
        return gaps, [text]
    command = (
        f"export {asked.variable}_URL=… of a host that still serves it, or enter a successor "
        f"(the vendor names {notice.successor}) as labeller and model of its own: a row of its own"
    )
    return [*gaps, Gap(text, command)], []


def bases(model: str, *, params: Params) -> Iterator[Gap]:
    """Yield what is missing to load a model's base models from the hub: a commit, and access to gated ones."""
    entry = spec(params, model)
    for base, revision in entry.bases:
        if base.startswith((TINY, "/")):
            continue
        if revision is None:
            field = next(name for name, value in entry if value == base)
            key = f"models.{model}.{'revision' if field == 'base' else f'{field}_revision'}"
            yield Gap(f"commit of {base}", f"{put(key, 'COMMIT')} (`hf models info {base}`)")
        size = base_sizes().get(base)
        if size is not None and size.gated and not (get_token() or os.environ.get("HF_HUB_OFFLINE")):
            yield Gap(f"access to {base}", f"accept its terms at huggingface.co/{base}, then hf auth login")


def gpus(need: HardwareNeed, *, here: Sequence[float]) -> Iterator[Gap]:
    """Yield the GPU memory that this host lacks; ``here`` is the memory of its GPUs in GB."""
    if (need.memory_gb or 0.0) > sum(here):
        has = f"{len(here)} with {sum(here):.0f} GB" if here else "none"
        what = f"{need.memory_gb:.0f} GB of GPU memory ({need.gpus} GPUs of {need.of_gb:.0f} GB); this host: {has}"
        yield Gap(what, "repeat this command on a worker of queue gpu (docs/howto/gpu.md)")


def of_corpus(corpus: str, *, sources: Sequence[str], params: Params, today: date) -> Iterator[Gap]:
    """Yield the approvals to read the sources that are not on record, and what the corpus's OCR engine lacks."""
    for name in sources:
        for key in params.sources[name].unset:
            yield Gap(f"{key.replace('_', ' ')} of source {name}", put(f"sources.{name}.{key}", "…"))
    engine = params.images.ocr.engine
    if params.corpora[corpus].content == "images" and (part := ENGINES.get(engine, params.distributions)).remote:
        for variable in part.variables:
            if not os.environ.get(variable):
                yield Gap(f"credentials of {engine}", f"export {variable}=FILE")
        yield from consent(engine, params=params, today=today)
