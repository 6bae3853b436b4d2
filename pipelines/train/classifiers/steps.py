"""One optimiser step after another: the loss, the learning rate, and what a GPU or several add to both.

A GPU adds what makes it fast, not what is computed: bfloat16 where it is exact enough (autocast; the weights stay
float32, SPEC 2.4, trap 2), fused AdamW, batches prepared ahead by threads, nothing that waits for the GPU inside an
epoch, and gradient checkpointing where memory is short.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from pipelines.datasets.example import Example, targets
from pipelines.models.built import Batch, Built
from pipelines.taxonomy.task import Task
from pipelines.train.classifiers.batches import ahead, shuffled
from pipelines.train.classifiers.class_weights import Weights

# Ours: threads that prepare batches for a GPU while it works on others.
WORKERS = 4
# float32 weights, their gradients and AdamW's two moments
BYTES_PER_PARAMETER = 16
# Ours: above this share of a GPU's memory for them, activations are computed twice instead of kept.
SHORT_OF_MEMORY = 0.25


class Recipe(Protocol):
    """How a model is fitted: the section ``train``, or what a tuned encoder has instead of it."""

    @property
    def mode(self) -> Literal["paper", "improved"]: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float: ...
    @property
    def min_positives(self) -> int: ...
    @property
    def checkpoint_steps(self) -> int: ...

    def model_dump(self, *, mode: str, exclude: set[str]) -> dict[str, Any]:
        """Return everything that the weights depend on, as JSON."""


class Loop:
    """The optimiser's steps over the examples, one epoch after another."""

    def __init__(
        self, built: Built, *, examples: Sequence[Example], task: Task, settings: Recipe, seed: int, weights: Weights
    ) -> None:
        self.built, self.examples, self.task, self.settings, self.seed = built, examples, task, settings, seed
        self.machine = machine()
        device = self.machine.device
        gpu = device.type == "cuda"
        spare_memory(built.module, memory=torch.cuda.get_device_properties(device).total_memory if gpu else None)
        self.module = self.machine.prepare_model(built.module)
        self.optimizer = optimizer(built.module, settings=settings, device=device)
        self.targets = torch.from_numpy(targets(examples, task=task)).to(device)
        self.weights = torch.from_numpy(weights.values).to(device)
        self.lengths = [built.length(example) for example in examples]
        self.total = len(self.batches(0)) * settings.epochs
        self.step = 0
        self.loss = torch.zeros((), dtype=torch.float64, device=device)

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch, the same in every process."""
        return shuffled(self.lengths, batch=self.settings.batch, seed=self.seed, epoch=epoch)

    def rate(self) -> float:
        """Return the learning rate of the next step: up from 0 over the warm-up, then down to 0, both linear."""
        warm = math.ceil(self.settings.warmup * self.total)
        part = self.step / warm if self.step < warm else (self.total - self.step) / max(1, self.total - warm)
        return self.settings.learning_rate * max(0.0, part)

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[int]:
        """Do the steps of epoch ``number`` from its batch ``skip`` on; yield how many batches are done after each.

        ``loss`` adds up the epoch's loss, each batch's times its examples, and is the caller's to set.
        """
        self.module.train()
        batches = self.batches(number)[skip:]
        # each process takes its part of every batch; one that would have nothing takes a row that does not count
        world, rank = self.machine.num_processes, self.machine.process_index
        mine = [rows[rank::world] or rows[:1] for rows in batches]
        made = prepared(self.built, examples=self.examples, batches=mine, machine=self.machine)
        for done, (whole, (rows, batch)) in enumerate(zip(batches, made, strict=True), skip + 1):
            self._update(on(self.machine, batch), rows=rows, whole=whole, counts=rank < len(whole))
            yield done

    def _update(self, batch: Batch, *, rows: list[int], whole: list[int], counts: bool) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        with autocast(self.machine):
            logits = self.module(**batch)
        loss = self._loss(logits.float(), truth=self.targets[rows], whole=self.targets[whole]) * float(counts)
        # gradients are averaged over the processes, and each has its part of the sum
        self.machine.backward(loss * self.machine.num_processes)
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss += loss.detach().double() * len(whole)
        self.step += 1

    def _loss(self, logits: Any, *, truth: Any, whole: Any) -> Any:
        """Return these rows' part of the loss of the whole batch: weighted mean (single), mean of cells (multi)."""
        ask = torch.nn.functional
        if self.task.kind == "single":
            loss = ask.cross_entropy(logits, truth.argmax(1), weight=self.weights, reduction="sum")
            return loss / self.weights[whole.argmax(1)].sum().clamp_min(1e-12)
        loss = ask.binary_cross_entropy_with_logits(logits, truth, pos_weight=self.weights, reduction="sum")
        return loss / whole.numel()

    def mean_loss(self) -> float:
        """Return the mean loss of an example in the epoch that just ended, over all processes."""
        return float(self.machine.reduce(self.loss, reduction="sum")) / len(self.examples)


def optimizer(module: Any, *, settings: Recipe, device: Any) -> Any:
    """Return AdamW, without decay for what has fewer than two axes: biases, norms and scales."""
    learned = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=device.type == "cuda")


def machine() -> Accelerator:
    """Return what this process runs on; its precision is left alone, see :func:`autocast`."""
    # parts of a pretrained model that a head does not use have no gradient, which several GPUs must know
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no", kwargs_handlers=[unused])


def autocast(where: Accelerator) -> Any:
    """Return the context of a forward pass: bfloat16 on a GPU that has it, float32 elsewhere."""
    gpu = where.device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast(where.device.type, dtype=torch.bfloat16, enabled=gpu)


def on(where: Accelerator, batch: Batch) -> Batch:
    """Return the batch on the device, without waiting for it."""
    return {name: tensor.to(where.device, non_blocking=True) for name, tensor in batch.items()}


def prepared(
    built: Built, *, examples: Sequence[Example], batches: Sequence[list[int]], machine: Accelerator
) -> Iterator[tuple[list[int], Batch]]:
    """Yield each batch's rows and tensors, for a GPU ahead of time and in pinned memory."""
    gpu = machine.device.type == "cuda"

    def make(rows: list[int]) -> tuple[list[int], Batch]:
        batch = built.prepare([examples[i] for i in rows])
        return rows, {name: t.pin_memory() for name, t in batch.items()} if gpu else batch

    return ahead(make, batches, workers=WORKERS if gpu else 0)


def spare_memory(module: Any, *, memory: int | None) -> None:
    """Turn gradient checkpointing on where weights and optimiser take much of a GPU's memory, so that a batch fits.

    Args:
        module: asked by ``gradient_checkpointing_enable()``; one without it is left as it is.
        memory: the GPU's, in bytes; ``None`` without one.
    """
    needed = BYTES_PER_PARAMETER * sum(p.numel() for p in module.parameters() if p.requires_grad)
    if memory is not None and needed > SHORT_OF_MEMORY * memory and hasattr(module, "gradient_checkpointing_enable"):
        module.gradient_checkpointing_enable()


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed every generator, and on a CPU take only algorithms that repeat bit for bit; put all back afterwards."""
    gpu, rank = torch.cuda.is_available(), machine().process_index
    strict, python, legacy = torch.are_deterministic_algorithms_enabled(), random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if gpu else []):
        # processes drop out different cells
        torch.manual_seed(seed + 1_000_003 * rank)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.use_deterministic_algorithms(not gpu)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict)
            random.setstate(python)
            np.random.set_state(legacy)
