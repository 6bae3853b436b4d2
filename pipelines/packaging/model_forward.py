"""Compute probabilities of many inputs in batches of similar length, on a GPU if available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from pipelines.models.pretrained.backbones import Batch


def ready(module: Any) -> Any:
    """Prepare a PyTorch module for inference: move it to the best device, turn off training mode and gradients."""
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
    """Return the probabilities of each input, shape (inputs, labels), in the order of the inputs.

    The longest inputs are computed first, so that an input that does not fit in memory fails at once. An input's
    probabilities do not depend on the other inputs of its batch, except for rounding in float32.

    Args:
        module: the result of :func:`ready`; its ``forward(**batch)`` returns logits.
        lengths: the approximate cost of each input, such as its number of tokens.
        prepare: returns the tensors of the inputs at these indices.
        kind: ``single``: rows sum to 1; ``multi``: cells are independent.
    """
    where = _device()
    gpu = where.type == "cuda" and torch.cuda.is_bf16_supported()
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    scores = np.zeros((len(lengths), labels), np.float32)
    # as ``inference.predict``, without its handling of several processes
    with torch.inference_mode(), torch.autocast(where.type, dtype=torch.bfloat16, enabled=gpu):
        for rows in (order[begin : begin + batch] for begin in range(0, len(order), batch)):
            tensors = {name: tensor.to(where, non_blocking=True) for name, tensor in prepare(rows).items()}
            logits = module(**tensors).float()
            scores[rows] = (logits.softmax(-1) if kind == "single" else logits.sigmoid()).cpu().numpy()
    return scores


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
