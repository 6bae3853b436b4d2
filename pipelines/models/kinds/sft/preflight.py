"""Compute the memory and disk space that fine-tuning a causal model needs, before anything is loaded, and refuse less.

All figures follow from the model's configuration (``architecture.py``) and its recipe, an entry of ``params.models``:
weights, gradients and AdamW's two moments exactly, activations and what a layer needs while it is computed as upper
bounds. Everything is in bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.models import kind
from pipelines.models.kinds.sft import Sft
from pipelines.models.kinds.sft.architecture import Architecture

# float32; Micikevicius et al. 2018 for master weights beside products in bfloat16.
WORD, HALF = 4, 2
# QLoRA's nf4: 4 bits, an 8-bit scale per 64 weights, and a float32 scale per 256 scales (Dettmers et al. 2023).
NF4 = 0.5 + 1 / 64 + WORD / (64 * 256)
# Two moments of a byte, each with a float32 scale per 256 weights (Dettmers et al. 2022).
EIGHT_BIT = 2 * (1 + WORD / 256)
# Ours: answers of a row's posts, whose logits are float32, beside their softmax and its gradient.
ANSWERS, LOGITS = 512, 3 * WORD
# Ours: CUDA's context, communication buffers and fragments.
RESERVE = 4 * 10**9
# Ours: a card with the memory of an H100 or A100 of 80 GB, as its vendor counts, and how many of them a host may have.
CARD, HOSTS = 80 * 10**9, (1, 2, 4, 8, 16)
# Files of the tokenizer and the configuration.
FILES = 20 * 10**6


@dataclass(frozen=True)
class Requirements:
    """What fine-tuning one model needs; sizes are bytes by use.

    ``gpus`` GPUs, or processes on a CPU, divide the model; ``gpu`` is the memory of each. A machine without a GPU needs
    it besides ``host``, the memory of the host. ``disk`` has ``base`` (the download), ``checkpoints`` (at most at one
    time), and ``model`` (its weights and their copy in DVC's cache). ``recompute``: activations are computed a second
    time instead of kept. ``deviations``: what the recipe computes differently from the paper's.
    """

    model: str
    base: str
    parameters: int
    trained: int
    gpus: int
    recompute: bool
    gpu: Mapping[str, int]
    host: Mapping[str, int]
    disk: Mapping[str, int]
    deviations: tuple[str, ...] = ()

    @property
    def gpu_bytes(self) -> int:
        return sum(self.gpu.values())

    @property
    def host_bytes(self) -> int:
        return sum(self.host.values())

    @property
    def disk_bytes(self) -> int:
        return sum(self.disk.values())

    def as_json(self) -> dict[str, Any]:
        sums = {"gpu_bytes": self.gpu_bytes, "host_bytes": self.host_bytes, "disk_bytes": self.disk_bytes}
        return {**asdict(self), **sums}

    def lines(self) -> Iterator[str]:
        """Yield the requirements as lines of text, in gigabytes."""
        yield f"{self.model}: {self.parameters:,} weights of {self.base}, {self.trained:,} trained"
        kept = "computed twice" if self.recompute else "kept"
        yield f"each of {self.gpus} GPU(s): {_gb(self.gpu_bytes)} ({_listed(self.gpu)}); activations are {kept}"
        yield f"memory of the host: {_gb(self.host_bytes)} ({_listed(self.host)})"
        yield f"disk: {_gb(self.disk_bytes)} ({_listed(self.disk)})"
        if self.deviations:
            yield f"differs from the paper's recipe: {', '.join(self.deviations)}"


def entry(model: str, *, params: Params) -> Sft:
    """Return an entry of section ``models`` of this kind."""
    if model in params.models and isinstance(found := kind.spec(params, model), Sft):
        return found
    known = sorted(name for name in params.models if isinstance(kind.spec(params, name), Sft))
    raise ConfigError("UnknownName", kind="model of kind sft", name=model, known=", ".join(known))


def requirements(model: str, *, params: Params, gpus: int | None = None, card: int = CARD) -> Requirements:
    """Return what fine-tuning a model of kind ``sft`` needs.

    ``gpus`` is by default the smallest of :data:`HOSTS` with which each GPU needs at most ``card`` bytes, or the
    largest if none is enough; ``card`` also decides whether activations are kept.
    """
    # the libraries take seconds to import
    from pipelines.models.kinds.sft import architecture

    spec = entry(model, params=params)
    sizes = architecture.of(spec.base, revision=spec.revision)
    counts = (gpus,) if gpus else HOSTS[:1] if spec.single else HOSTS
    hosts = [estimated(model, spec=spec, sizes=sizes, gpus=count, card=card) for count in counts]
    return next((host for host in hosts if host.gpu_bytes <= card), hosts[-1])


def estimated(model: str, *, spec: Sft, sizes: Architecture, gpus: int, card: int | None = CARD) -> Requirements:
    """Return what a recipe needs with a base model of these sizes; ``card`` is ``None`` on a machine without a GPU."""
    from pipelines.models.kinds.sft import recipe

    adapter = sizes.ranks * (spec.rank or 0) if spec.tuning == "lora" else 0
    trained = adapter or sizes.parameters
    shared = gpus > 1 or spec.offload is not None
    whole = {
        "weights": _weights(spec, sizes=sizes, adapter=adapter),
        "gradients": WORD * trained,
        "optimizer": moments(spec, sizes=sizes, trained=trained),
    }
    parts = {use: -(-size // gpus) for use, size in whole.items()}
    recompute = recipe.short_of_memory(
        spec, layers=sizes.layers, width=sizes.width, weights=sizes.parameters, memory=card, processes=gpus
    )
    held = dict.fromkeys(parts, 0) if spec.offload else parts
    working = {
        "gathered": _gathered(spec, sizes=sizes, shared=shared),
        "activations": activations(spec, sizes=sizes, recompute=recompute),
        "logits": ANSWERS * sizes.vocabulary * LOGITS,
    }
    # the first process reads the base; a part that is offloaded is there from then on
    loaded = (WORD if spec.tuning == "full" else sizes.itemsize) * sizes.parameters
    return Requirements(
        model=model,
        base=spec.base,
        parameters=sizes.parameters,
        trained=trained,
        gpus=gpus,
        recompute=recompute,
        gpu={**held, **working, "reserve": RESERVE if card else 0},
        host={"base": loaded} | ({use: size * gpus for use, size in parts.items()} if spec.offload else {}),
        disk={
            "base": sizes.itemsize * sizes.parameters + FILES,
            "checkpoints": checkpoints(spec, sizes=sizes, trained=trained, shared=shared),
            "model": 2 * (WORD * adapter or sizes.itemsize * sizes.parameters),
        },
        deviations=spec.deviations,
    )


def _weights(spec: Sft, *, sizes: Architecture, adapter: int) -> int:
    """Return the bytes of all weights: float32 if trained, else the base's own format or 4 bits (SPEC 2.4)."""
    if spec.tuning == "full":
        return WORD * sizes.parameters
    packed = int(NF4 * sizes.linear) if spec.quantization else sizes.itemsize * sizes.linear
    return packed + sizes.itemsize * (sizes.parameters - sizes.linear) + WORD * adapter


def moments(spec: Sft, *, sizes: Architecture, trained: int) -> int:
    """Return the bytes of AdamW's two moments of all trained weights."""
    if spec.optimizer == "adamw":
        return 2 * WORD * trained
    plain = sizes.plain if spec.tuning == "full" else 0
    return 2 * WORD * plain + int(EIGHT_BIT * (trained - plain))


def activations(spec: Sft, *, sizes: Architecture, recompute: bool) -> int:
    """Return an upper bound of the bytes that a row's forward pass keeps for its backward pass."""
    from pipelines.models.kinds.sft.recipe import ACTIVATION_BYTES, row_of

    tokens = row_of(spec)
    layer = ACTIVATION_BYTES * tokens * sizes.width
    # of each layer only its input, in float32; and the final norm
    return WORD * tokens * sizes.width * (sizes.layers + 4) + layer if recompute else layer * sizes.layers


def _gathered(spec: Sft, *, sizes: Architecture, shared: bool) -> int:
    """Return the bytes of weights in bfloat16 that a process needs beside its own part, and of their gradients."""
    if not shared:
        # autocast keeps a copy of each trained weight during a pass
        return HALF * sizes.parameters if spec.tuning == "full" else 0
    # this layer and the next one, and both ends, which stay from the forward to the backward pass
    gradients = HALF * (sizes.layer + sizes.ends) if spec.tuning == "full" else 0
    return HALF * (2 * sizes.layer + sizes.ends) + gradients


def checkpoints(spec: Sft, *, sizes: Architecture, trained: int, shared: bool) -> int:
    """Return the disk space of checkpoints at the worst moment (``trainer.Keeper``).

    That is while one is written: the newest before it has weights and moments, the best epoch's has weights alone.
    """
    twice = sizes.tied if shared and spec.tuning == "full" else 0
    weights = WORD * (trained + twice)
    return 3 * weights + 2 * moments(spec, sizes=sizes, trained=trained)


def check(model: str, *, params: Params, settings: Settings, root: Path, folder: Path | None = None) -> Requirements:
    """Compare what fine-tuning a model needs with this machine's GPUs, memory and disks, before anything is loaded.

    ``root`` is the clone to which the model is written, and ``folder`` that of the run's checkpoints: those of a killed
    attempt are not needed a second time.
    """
    import psutil
    import torch

    from pipelines.models.kinds.sft import architecture, recipe

    spec = entry(model, params=params)
    count = recipe.processes(spec, asked=settings.finetune_processes)
    cards = [torch.cuda.mem_get_info(n) for n in range(torch.cuda.device_count())][:count]
    card = min((whole for _, whole in cards), default=None)
    sizes = architecture.of(spec.base, revision=spec.revision)
    needed = estimated(model, spec=spec, sizes=sizes, gpus=count, card=card)
    free = min((free for free, _ in cards), default=None)
    available = psutil.virtual_memory().available
    missing = list(_short(needed, free=free, available=available))
    if missing:
        advice = _advice(needed, spec=spec, sizes=sizes, free=free, available=available)
        raise ConfigError("NotEnough", model=model, detail="; ".join(missing), advice=advice)
    kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder else 0
    if missing := list(_full(needed, places=_places(settings, root=root, spec=spec), kept=kept)):
        advice = "Free that space, or move the folder and set HF_HOME (base) or CORPUS_HOME (checkpoints)."
        raise ConfigError("NotEnough", model=model, detail="; ".join(missing), advice=advice)
    return needed


def _short(needed: Requirements, *, free: int | None, available: int) -> Iterator[str]:
    """Yield which memory is too small; without a GPU, all of it is the host's."""
    if free is not None and needed.gpu_bytes > free:
        yield f"{_gb(needed.gpu_bytes)} on each of {needed.gpus} GPU(s), of which {_gb(free)} are free"
    host = needed.host_bytes + (0 if free is not None else needed.gpus * needed.gpu_bytes)
    if host > available:
        yield f"{_gb(host)} of the host's memory, of which {_gb(available)} are available"


def _advice(needed: Requirements, *, spec: Sft, sizes: Architecture, free: int | None, available: int) -> str:
    """Return which settings of the model's entry would fit this machine, or how many GPUs would."""
    ways = [{"offload": "cpu"}]
    ways += [{"quantization": "nf4"}] if spec.tuning == "lora" else []
    ways += [{"optimizer": "adamw8bit"}] if needed.gpus == 1 else []
    for way in ways:
        changed = Sft.model_construct(**{**dict(spec), "offload": None, **way})
        other = estimated(needed.model, spec=changed, sizes=sizes, gpus=needed.gpus, card=free)
        if not list(_short(other, free=free, available=available)):
            [(name, value)] = way.items()
            return f"It would fit with `corpus params set models.{needed.model}.{name} {value}` (docs/models.md)."
    for count in HOSTS:
        if estimated(needed.model, spec=spec, sizes=sizes, gpus=count).gpu_bytes <= CARD:
            return f"It needs {count} GPU(s) of {_gb(CARD)}."
    return "No host of 16 GPUs has enough: set quantization or offload of its entry (docs/models.md)."


def _places(settings: Settings, *, root: Path, spec: Sft) -> dict[str, Path | None]:
    """Return the folder of each use of the disk; ``None`` if nothing has to be written, because it is there."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    from pipelines.models.base_files import on_hub

    cache = None
    if on_hub(spec.base):
        cache = Path(constants.HF_HUB_CACHE)
        folder = cache / repo_folder_name(repo_id=spec.base, repo_type="model") / "snapshots" / str(spec.revision)
        cache = None if any(folder.glob("*.safetensors")) else cache
    return {"base": cache, "checkpoints": settings.home / "train", "model": root}


def _full(needed: Requirements, *, places: Mapping[str, Path | None], kept: int) -> Iterator[str]:
    """Yield the file systems that are too full, with the uses that share each; ``kept``: bytes of kept checkpoints."""
    still = {**needed.disk, "checkpoints": max(0, needed.disk["checkpoints"] - kept)}
    shared: dict[int, list[str]] = {}
    folders = {
        use: next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
        for use, place in places.items()
        if place is not None
    }
    for use, folder in folders.items():
        shared.setdefault(folder.stat().st_dev, []).append(use)
    for uses in shared.values():
        wanted, free = sum(still[use] for use in uses), shutil.disk_usage(folders[uses[0]]).free
        if wanted > free:
            yield f"{_gb(wanted)} of disk space for {' and '.join(uses)}, of which {_gb(free)} are free"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


def _listed(uses: Mapping[str, int]) -> str:
    return ", ".join(f"{use} {_gb(size)}" for use, size in uses.items() if size)
