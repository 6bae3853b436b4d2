"""Define the tasks that models are asked to solve: the categories of a scheme that they predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import Category, Scheme, tiers_of


@dataclass(frozen=True)
class Task:
    """What models predict: one category of a label scheme, with its labels in scheme order (severity: ordinal)."""

    key: str
    kind: Literal["single", "multi"]
    ordinal: bool
    labels: tuple[str, ...]
    category: Category

    def seen(self, labels: frozenset[str]) -> frozenset[str]:
        """Return an annotators' label set in the task's labels: merged, without those that the task excludes."""
        return self.category.check(labels, mode="repair", tiers=tiers_of("paper"), task=True).labels

    def encode(self, labels: frozenset[str]) -> npt.NDArray[np.float32]:
        """Return a label set as a row of 0 and 1 in label order; a row of a single-label task has exactly one 1."""
        seen = self.seen(labels)
        if self.kind == "single" and len(seen) != 1:
            raise BadParams(where=f"gold ({self.key})", detail="needs exactly one label")
        return np.array([label in seen for label in self.labels], np.float32)


def task_of(scheme: Scheme, key: str) -> Task:
    """Return the task of predicting the category ``key`` of a label scheme."""
    category = scheme.category(key)
    return Task(category.key, category.kind, category.ordinal, category.names, category)


def tasks_of(scheme: Scheme) -> dict[str, Task]:
    """Return the tasks of a label scheme by key, in the scheme's order: every category that models predict."""
    return {key: task_of(scheme, key) for key, category in scheme.categories.items() if category.predicted}
