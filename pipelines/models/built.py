"""Define the common interface of built models, which is all that training and prediction use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.datasets.example import Example

Batch = dict[str, Any]
"""Tensors by name; the first axis is the examples; never their labels."""


@dataclass(frozen=True)
class Built:
    """A classifier on the CPU in float32.

    Args:
        module: a ``torch.nn.Module`` whose ``forward(**batch)`` returns logits of shape (examples, labels).
        prepare: returns the tensors of the examples, in their order.
        length: returns the approximate work of an example (tokens; 1 for pictures), to batch similar ones together.
        forget: clears the cache of prepared examples.
    """

    module: Any
    prepare: Callable[[Sequence[Example]], Batch]
    length: Callable[[Example], int]
    forget: Callable[[], None] = lambda: None
