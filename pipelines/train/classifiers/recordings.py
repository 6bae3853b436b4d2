"""Record the kernels of a training step, and replay them in place of starting each one (CUDA graphs).

A step of a model of base size starts about a thousand kernels, which takes a processor several times as long as a GPU
needs to compute them (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """The kernels for batches of one shape; they read ``inputs`` and write ``loss``."""

    graph: Any
    inputs: Tensors
    loss: Any


class Recordings:
    """Computes losses and gradients of batches on a GPU, by a recording for each shape of a batch.

    The first batch of a shape is computed without one, which also initialises the libraries; the second is recorded.
    Random numbers are drawn as without recordings. Recordings add to the gradients in place, so these must be set to
    zero between calls, and never be replaced.

    Args:
        compute: returns the loss of a batch and adds to the gradients. It must start the same kernels for all batches
            of a shape: a choice by a value, or a random number of the CPU, would be repeated.
    """

    def __init__(self, compute: Callable[[Tensors], Any]) -> None:
        self._compute = compute
        self._made: dict[tuple[Any, ...], Recording | None] = {}
        self._pool: Any = None

    def __call__(self, inputs: Tensors) -> Any:
        """Return the loss of a batch; it is overwritten by the next call with the same shapes."""
        shapes = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
        if shapes not in self._made:
            self._made[shapes] = None
            return self._compute(inputs)
        made = self._made[shapes] = self._made[shapes] or self._recorded(inputs)
        for name, tensor in inputs.items():
            made.inputs[name].copy_(tensor)
        made.graph.replay()
        return made.loss

    def _recorded(self, inputs: Tensors) -> Recording:
        own = {name: tensor.clone() for name, tensor in inputs.items()}
        graph = torch.cuda.CUDAGraph()
        # other threads, which prepare batches, may allocate meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._compute(own)
        self._pool = graph.pool()
        return Recording(graph, own, loss)
