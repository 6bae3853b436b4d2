"""Run the optimiser steps of a training: batches, class weights, loss, learning rate, and several GPUs.

Class weights make rare labels count. FigSIM 5.1 reweights the classes and does not say how; the formulas are SPEC 1.2,
item 8. They use train alone: label frequencies of validation or test are answers that a model must not know.

A GPU adds speed and does not change what is computed: bfloat16 where it is exact enough (autocast; the weights stay
float32, SPEC 2.4, trap 2), fused AdamW, batches prepared ahead by threads, no synchronisation with the GPU inside an
epoch, recorded kernels where a model allows it, and gradient checkpointing if memory is short.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TRAIN, Example, only, targets
from pipelines.models.backbones import Batch, Built
from pipelines.models.fitting.inference import Recordings, autocast, cut, machine, on, prepared
from pipelines.models.fitting.recipe import TrainingSettings

# Ours: batches that are sorted together. A larger value pads less, a smaller one mixes better (transformers 4 took 50).
MEGA = 16
# float32 weights, their gradients and AdamW's two moments
BYTES_PER_PARAMETER = 16
# Ours: above this share of a GPU's memory, activations are recomputed instead of kept.
SHORT_OF_MEMORY = 0.25
# A step's inputs beside the model's: targets and weights of a process's rows, and targets of the whole batch.
TRUTH, SHARES, WHOLE = "truth of rows", "shares of rows", "truth of batch"


@dataclass(frozen=True)
class Weights:
    """The loss weights of the labels, in the task's order, shape (labels,).

    ``values`` are class weights of cross-entropy for a single-label task, ``pos_weight`` of binary cross-entropy for a
    multi-label one. ``empty`` names the labels that no example has: their weight is 0 and they cannot be learned,
    which a report must state.
    """

    values: npt.NDArray[np.float32]
    empty: tuple[str, ...]


def weigh(examples: Sequence[Example], *, task: Task, max_pos_weight: float, reweighted: bool = True) -> Weights:
    """Compute the loss weights of the task's labels from the examples of train.

    Single: n / (K n_k), where K counts all classes of the task. Multi: min(negatives / positives, ``max_pos_weight``),
    and 1 for a label that every example has (ours: there is nothing to balance, and 0 would unlearn it). All weights
    are 1 for a recipe that does not reweight labels.

    Raises:
        BadParams: an example of a single-label task does not have exactly one gold label.
    """
    truth = targets(only(examples, splits={TRAIN}), task=task).astype(np.float64)
    n, positives = len(truth), truth.sum(axis=0)
    at_least_one = np.maximum(positives, 1)
    if task.kind == "single":
        values = n / (len(task.labels) * at_least_one)
    else:
        values = np.where(positives == n, 1.0, np.minimum((n - positives) / at_least_one, max_pos_weight))
    values = np.where(positives > 0, values, 0.0) if reweighted else np.ones(len(task.labels))
    empty = tuple(label for label, count in zip(task.labels, positives, strict=True) if not count)
    return Weights(values.astype(np.float32), empty)


class Loop:
    """Runs the optimiser steps of a training over all examples, one epoch after another."""

    # turned off to compare steps with and without recordings
    recordable = True

    def __init__(
        self,
        built: Built,
        *,
        examples: Sequence[Example],
        task: Task,
        settings: TrainingSettings,
        seed: int,
        weights: Weights,
    ) -> None:
        self.built, self.examples, self.task, self.settings, self.seed = built, examples, task, settings, seed
        self.machine = machine()
        device = self.machine.device
        gpu = device.type == "cuda"
        spared = spare_memory(
            built.module, memory=torch.cuda.get_device_properties(device).total_memory if gpu else None
        )
        self.module = self.machine.prepare_model(built.module)
        self.optimizer = optimizer(built.module, settings=settings, device=device)
        truth = targets(examples, task=task)
        self.soft = any(example.shares is not None for example in examples)
        for row, example in zip(truth, examples, strict=True):
            row[:] = row if example.shares is None else example.shares
        self.targets = torch.from_numpy(truth)
        self.weights = torch.from_numpy(weights.values).to(device)
        shares = torch.tensor([example.weight for example in examples])
        # without weights of examples, the sum over the batch stays the library's own, to the last bit
        self.shares = shares if (shares != 1).any() else None
        self.lengths = [built.length(example) for example in examples]
        self.total = len(self.batches(0)) * settings.epochs
        self.step = 0
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        alone = gpu and self.machine.num_processes == 1
        recorded = self.recordable and alone and built.recordable and not spared
        self.recordings = Recordings(self._computed) if recorded else None

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the training batches of an epoch as positions of examples; every process gets the same batches."""
        return shuffled(self.lengths, batch=self.settings.batch, seed=self.seed, epoch=epoch)

    def rate(self) -> float:
        """Return the learning rate of the next step: linear warm-up from 0, then linear decay to 0, or none."""
        settings, warm = self.settings, math.ceil(self.settings.warmup * self.total)
        part = self.step / warm if self.step < warm else (self.total - self.step) / max(1, self.total - warm)
        if self.step >= warm and settings.schedule == "constant":
            part = 1.0
        return self.settings.learning_rate * max(0.0, part)

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[int]:
        """Run the steps of epoch ``number`` from batch ``skip`` on; yield the number of finished batches after each.

        ``loss`` accumulates the epoch's loss, weighted by examples in each batch; the caller resets it.
        """
        self.module.train()
        batches = self.batches(number)[skip:]
        # each process takes its share of every batch; one without a share takes a row that is not counted
        world, rank = self.machine.num_processes, self.machine.process_index
        mine = [rows[rank::world] or rows[:1] for rows in batches]
        made = prepared(self.built, examples=self.examples, batches=mine, machine=self.machine)
        for done, (whole, (rows, batch)) in enumerate(zip(batches, made, strict=True), skip + 1):
            self._update(on(self.machine, batch), rows=rows, whole=whole, counts=rank < len(whole))
            yield done

    def _update(self, batch: Batch, *, rows: list[int], whole: list[int], counts: bool) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        inputs = {**batch, TRUTH: self._sent(self.targets[rows]), WHOLE: self._sent(self.targets[whole])}
        if self.shares is not None:
            inputs[SHARES] = self._sent(self.shares[rows])
        loss = self.recordings(inputs) if self.recordings else self._computed(inputs, counts=counts)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.recordings is None)
        self.loss += loss.double() * len(whole)
        self.step += 1

    def _computed(self, inputs: Batch, *, counts: bool = True) -> Any:
        """Return the loss of a process's rows, and leave the gradients in the weights."""
        batch = {name: tensor for name, tensor in inputs.items() if name not in (TRUTH, SHARES, WHOLE)}
        with autocast(self.machine):
            logits = self.module(**batch)
        loss = self._loss(logits.float(), truth=inputs[TRUTH], whole=inputs[WHOLE], shares=inputs.get(SHARES))
        loss = loss * float(counts)
        # gradients are averaged over the processes, but each process holds only its share of the sum
        self.machine.backward(loss * self.machine.num_processes)
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip)
        return loss.detach()

    def _sent(self, values: Any) -> Any:
        device = self.machine.device
        return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values

    def _loss(self, logits: Any, *, truth: Any, whole: Any, shares: Any) -> Any:
        """Return these rows' share of the loss of the whole batch: weighted mean (single), mean of cells (multi)."""
        ask, how = torch.nn.functional, "sum" if shares is None else "none"
        if self.task.kind == "single":
            # of hard targets, classes: to the last bit what it was
            loss = ask.cross_entropy(
                logits, truth if self.soft else truth.argmax(1), weight=self.weights, reduction=how
            )
            classes = whole @ self.weights if self.soft else self.weights[whole.argmax(1)]
            whole_weight = classes.sum().clamp_min(1e-12)
        else:
            loss = ask.binary_cross_entropy_with_logits(logits, truth, pos_weight=self.weights, reduction=how)
            loss, whole_weight = loss if shares is None else loss.sum(1), whole.numel()
        return (loss if shares is None else (loss * shares).sum()) / whole_weight

    def mean_loss(self) -> float:
        """Return the mean loss per example in the last epoch, over all processes."""
        return float(self.machine.reduce(self.loss, reduction="sum")) / len(self.examples)


def shuffled(lengths: Sequence[int], *, batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the training batches of one epoch, as lists of positions of examples; each position is in one batch.

    Equal arguments give equal batches.

    All positions are shuffled and cut into runs of :data:`MEGA` batches; each run is sorted by length, and the batches
    are shuffled again. Examples of similar length share a batch, and batches differ between epochs. A last batch of one
    is appended to the batch before it, because a batch of one cannot be normalised (batch normalisation of the image
    models).
    """
    random = np.random.default_rng([seed, epoch])
    order: list[int] = random.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for begin in range(0, len(order), MEGA * batch):
        alike = sorted(order[begin : begin + MEGA * batch], key=lambda i: -lengths[i])
        batches += cut(alike, batch=batch)
    if len(batches) > 1 and len(batches[-1]) == 1:
        alone = batches.pop()
        batches[-1] += alone
    return [batches[i] for i in random.permutation(len(batches))]


def optimizer(module: Any, *, settings: TrainingSettings, device: Any) -> Any:
    """Return AdamW for a module; its biases, norms and scales (fewer than two axes) have no weight decay."""
    learned = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=device.type == "cuda")


def spare_memory(module: Any, *, memory: int | None) -> bool:
    """Turn on a module's gradient checkpointing if its weights and optimiser leave a GPU too little memory for a batch.

    Returns whether it was turned on.

    Args:
        module: a module without ``gradient_checkpointing_enable()`` is left unchanged.
        memory: the GPU's memory in bytes; ``None`` without a GPU.
    """
    needed = BYTES_PER_PARAMETER * sum(p.numel() for p in module.parameters() if p.requires_grad)
    short = memory is not None and needed > SHORT_OF_MEMORY * memory
    if short and hasattr(module, "gradient_checkpointing_enable"):
        module.gradient_checkpointing_enable()
        return True
    return False


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed all random generators and allow only deterministic algorithms on a CPU; restore the state afterwards."""
    gpu, rank = torch.cuda.is_available(), machine().process_index
    strict, python, legacy = torch.are_deterministic_algorithms_enabled(), random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if gpu else []):
        # each process drops out different cells
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
