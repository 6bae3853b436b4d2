"""One pass over many inputs: alike ones together, answers in the order of the inputs, on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from pipelines.models.built import Batch
from pipelines.train.classifiers.batches import cut


def ready(module: Any) -> Any:
    """Return a module on the device that there is, in evaluation mode and without gradients."""
    return module.to(_device()).eval().requires_grad_(False)


def probabilities(
    module: Any,
    *,
    lengths: Sequence[int],
    prepare: Callable[[list[int]], Batch],
    batch: int,
    labels: int,
    kind: Literal["single", "multi"],
) -> npt.NDArray[np.float32]:
    """Return what a module says of each input, shape (inputs, labels).

    The longest come first, so that what does not fit in memory shows at once. An input's answer is the same in any
    company, but for float32's last digits.

    Args:
        module: what :func:`ready` gave; its ``forward(**batch)`` gives logits.
        lengths: about how much work each input is.
        prepare: makes the tensors of the inputs at these places.
        batch: inputs that are read together.
        labels: how many.
        kind: ``single`` rows add up to 1; of ``multi`` each cell is its own.
    """
    where = _device()
    gpu = where.type == "cuda" and torch.cuda.is_bf16_supported()
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    scores = np.zeros((len(lengths), labels), np.float32)
    # as ``train.loop.predict`` does, without what only several processes need
    with torch.inference_mode(), torch.autocast(where.type, dtype=torch.bfloat16, enabled=gpu):
        for rows in cut(order, batch=batch):
            tensors = {name: tensor.to(where, non_blocking=True) for name, tensor in prepare(rows).items()}
            logits = module(**tensors).float()
            scores[rows] = (logits.softmax(-1) if kind == "single" else logits.sigmoid()).cpu().numpy()
    return scores


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
