"""Predict with a trained classifier, on a CPU, one GPU or several, with batches that are prepared ahead of use.

Training prepares its batches with the same functions, and records the kernels of its steps (:class:`Recordings`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedDataParallelKwargs, gather_object

from pipelines.core.errors import DataError
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example
from pipelines.models.backbones import Batch, Built

# Ours: prediction keeps no gradients, so more examples fit into the same memory.
AT_ONCE = 4
# Ours: threads that prepare batches for a GPU while it works on others.
WORKERS = 4

T = TypeVar("T")
R = TypeVar("R")


class Diverged(DataError):
    """The training loss became infinite or undefined; a retry would give the same result."""


def predict(built: Built, *, examples: Sequence[Example], task: Task, batch: int) -> npt.NDArray[np.float32]:
    """Return the label probabilities of a classifier, shape (examples, labels), in the order of ``examples``.

    ``batch`` is the batch size of training, which affects speed and memory, not the result.

    Rows of a single-label task add up to 1 (softmax); cells of a multi-label task are independent (sigmoid).
    """
    # no Accelerator: a consumer's own one, with another precision, may exist where a registered model predicts
    where = PartialState(cpu=not torch.cuda.is_available())
    module = built.module.to(where.device).eval()
    lengths = [built.length(example) for example in examples]
    order = sorted(range(len(examples)), key=lambda i: -lengths[i])
    batches = cut(order, batch=AT_ONCE * batch)[where.process_index :: where.num_processes]
    parts: list[tuple[list[int], npt.NDArray[np.float32]]] = []
    with torch.no_grad():
        for rows, tensors in prepared(built, examples=examples, batches=batches, machine=where):
            with autocast(where):
                logits = module(**on(where, tensors)).float()
            if logits.shape != (len(rows), len(task.labels)):
                raise DataError(
                    "BadScores", task=task.key, detail=f"{len(rows)} examples gave logits of {tuple(logits.shape)}"
                )
            parts.append((rows, (logits.softmax(-1) if task.kind == "single" else logits.sigmoid()).cpu().numpy()))
    scores = np.full((len(examples), len(task.labels)), np.nan, np.float32)
    for rows, values in gather_object(parts):
        scores[rows] = values
    if np.isnan(scores).any():
        raise Diverged(task=task.key, detail="a probability is undefined")
    return scores


def machine() -> Accelerator:
    """Return this process's ``accelerate.Accelerator``, which does not set the precision; :func:`autocast` does."""
    # parts of a pretrained model that a head does not use have no gradient; DDP must know about them
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no", kwargs_handlers=[unused])


def autocast(where: Accelerator | PartialState) -> Any:
    """Return the context manager that sets the precision of forward passes: bfloat16 on a GPU with it, else float32."""
    gpu = where.device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast(where.device.type, dtype=torch.bfloat16, enabled=gpu)


def on(where: Accelerator | PartialState, batch: Batch) -> Batch:
    """Return a copy of the batch on the device of ``where``; the transfer does not block."""
    return {name: tensor.to(where.device, non_blocking=True) for name, tensor in batch.items()}


def prepared(
    built: Built, *, examples: Sequence[Example], batches: Sequence[list[int]], machine: Accelerator | PartialState
) -> Iterator[tuple[list[int], Batch]]:
    """Yield each batch's positions of examples and its tensors; for a GPU, threads prepare batches ahead."""
    gpu = machine.device.type == "cuda"

    def make(rows: list[int]) -> tuple[list[int], Batch]:
        batch = built.prepare([examples[i] for i in rows])
        return rows, {name: t.pin_memory() for name, t in batch.items()} if gpu else batch

    return ahead(make, batches, workers=WORKERS if gpu else 0)


def cut(rows: Sequence[int], *, batch: int) -> list[list[int]]:
    """Split ``rows`` into parts of ``batch`` rows; the last part may be shorter."""
    return [list(rows[i : i + batch]) for i in range(0, len(rows), batch)]


def ahead(make: Callable[[T], R], items: Iterable[T], *, workers: int) -> Iterator[R]:
    """Yield ``make(item)`` in order, while threads prepare up to 2 * ``workers`` further items."""
    if not workers:
        yield from map(make, items)
        return
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class Recordings:
    """Computes losses and gradients of batches on a GPU, by a recording for each shape of a batch (CUDA graphs).

    A step of a model of base size starts about a thousand kernels, which takes a processor several times as long as a
    GPU needs to compute them (docs/log/performance.md); a replayed recording starts them together.

    The first batch of a shape is computed without one, which also initialises the libraries; the second is recorded.
    Random numbers are drawn as without recordings. Recordings add to the gradients in place, so these must be set to
    zero between calls, and never be replaced.

    Args:
        compute: returns the loss of a batch and adds to the gradients. It must start the same kernels for all batches
            of a shape: a choice by a value, or a random number of the CPU, would be repeated.
    """

    def __init__(self, compute: Callable[[Batch], Any]) -> None:
        self._compute = compute
        # the graph of a shape, its inputs and its loss
        self._made: dict[tuple[Any, ...], tuple[Any, Batch, Any] | None] = {}
        self._pool: Any = None

    def __call__(self, inputs: Batch) -> Any:
        """Return the loss of a batch; it is overwritten by the next call with the same shapes."""
        shapes = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
        if shapes not in self._made:
            self._made[shapes] = None
            return self._compute(inputs)
        graph, own, loss = self._made[shapes] = self._made[shapes] or self._recorded(inputs)
        for name, tensor in inputs.items():
            own[name].copy_(tensor)
        graph.replay()
        return loss

    def _recorded(self, inputs: Batch) -> tuple[Any, Batch, Any]:
        own = {name: tensor.clone() for name, tensor in inputs.items()}
        graph = torch.cuda.CUDAGraph()
        # other threads, which prepare batches, may allocate meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._compute(own)
        self._pool = graph.pool()
        return graph, own, loss
