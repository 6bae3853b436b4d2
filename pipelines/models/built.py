"""What a model is once it is built, whatever its kind: the loop and the prediction know nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

Batch = dict[str, Any]
"""Tensors by name, first axis the examples; never their labels."""


@dataclass(frozen=True)
class Built:
    """A classifier on the CPU in float32.

    Args:
        module: a ``torch.nn.Module`` whose ``forward(**batch)`` gives logits of shape (examples, labels).
        prepare: makes the tensors of some examples, in their order.
        length: about how much work an example is (tokens; 1 for pictures), to batch alike ones together.
        forget: drops what was kept of examples, for whom they are not asked about again.
    """

    module: Any
    prepare: Callable[[Sequence[Example]], Batch]
    length: Callable[[Example], int]
    forget: Callable[[], None] = lambda: None
