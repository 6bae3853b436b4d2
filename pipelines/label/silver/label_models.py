"""Infer the probability of every valid label set of an item from an ensemble's votes or scores.

The probabilities are stored with the silver labels, so that the uncertainty of a label is not lost with the vote. They
assume that members err independently and are therefore too sure of sets on which members err together: the stage's
metrics compare them with gold (``posterior``).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.label.silver.ballots import LabelSet
from pipelines.metrics.decoding import worth_of_sets
from pipelines.store.tables import Item

if TYPE_CHECKING:
    from pipelines.core.taxonomy import Category

Floats = npt.NDArray[np.float64]

# ours: an abstained label has probability 0, whose logit would outvote everything; scores are clipped here
SUREST = 1e-6


@dataclass(frozen=True)
class LabelModel:
    """The inferred probabilities of every valid label set: ``worth`` (log-probability up to a constant), by item."""

    items: tuple[Item, ...]
    category: Category
    sets: list[LabelSet]
    worth: Floats

    @classmethod
    def of(cls, items: Mapping[Item, object], probabilities: Floats, *, category: Category) -> LabelModel:
        """Create a model from the probability of each label, shape (items, labels)."""
        return cls(tuple(items), category, *worth_of_sets(probabilities, category=category))

    def best(self) -> dict[Item, LabelSet]:
        """Return each item's most probable set, without items on which several sets tie."""
        ties = (self.worth == self.worth.max(axis=1, keepdims=True)).sum(axis=1) > 1
        chosen = zip(self.items, self.worth.argmax(axis=1), ties, strict=True)
        return {item: self.sets[best] for item, best, tie in chosen if not tie}

    def posterior(self, item: Item, *, labels: LabelSet) -> float | None:
        """Return the probability of an item's label set; ``None`` if too few members voted or the set is invalid."""
        row, column = self._rows.get(item), self._columns.get(labels)
        return None if row is None or column is None else float(self._shares[row, column])

    def scores(self, item: Item) -> list[float] | None:
        """Return the probability of every label for an item, in the category's order; ``None`` with too few votes."""
        row = self._rows.get(item)
        return None if row is None else [float(p) for p in self._marginals[row]]

    @cached_property
    def _rows(self) -> dict[Item, int]:
        return {item: row for row, item in enumerate(self.items)}

    @cached_property
    def _columns(self) -> dict[LabelSet, int]:
        return {labels: column for column, labels in enumerate(self.sets)}

    @cached_property
    def _shares(self) -> Floats:
        raised = np.exp(self.worth - self.worth.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    @cached_property
    def _marginals(self) -> Floats:
        member = np.array([[name in labels for name in self.category.names] for labels in self.sets], np.float64)
        return np.clip(self._shares @ member, 0.0, 1.0)


def crowd(tasks: Mapping[Item, Mapping[str, LabelSet]], *, category: Category) -> LabelModel:
    """Fit the model of Dawid and Skene (1979) to votes (item -> member -> labels): one binary model per label.

    Labels are modelled separately because three voters on whole sets leave most cells of a confusion matrix over
    hundreds of sets empty, while two error rates per label and member can be estimated. It is fitted on all of the
    items without gold. Rows are sorted because crowd-kit starts from majorities and adds up in row order.
    """
    from crowdkit.aggregation import DawidSkene

    rows = [(row, member, labels) for row, cast in enumerate(tasks.values()) for member, labels in cast.items()]
    probabilities = np.zeros((len(tasks), len(category.names)))
    with warnings.catch_warnings():
        # crowd-kit's use of pandas features to be removed would fill the task's log
        warnings.simplefilter("ignore", DeprecationWarning)
        for column, label in enumerate(category.names):
            given = [int(label in labels) for _, _, labels in rows]
            if any(given):
                long = pa.table({"task": [r for r, _, _ in rows], "worker": [m for _, m, _ in rows], "label": given})
                posterior = DawidSkene(n_iter=100).fit_predict_proba(long.to_pandas())
                probabilities[:, column] = posterior[1].reindex(range(len(tasks))).to_numpy()
    return LabelModel.of(tasks, probabilities, category=category)


def pool(tasks: Mapping[Item, Mapping[str, tuple[float, ...]]], *, category: Category) -> LabelModel:
    """Pool an ensemble's calibrated scores (item -> member -> probabilities) by their mean logit (SPEC 2.3)."""
    means = np.zeros((len(tasks), len(category.names)))
    for row, given in enumerate(tasks.values()):
        p = np.clip(np.array(list(given.values()), dtype=np.float64), SUREST, 1 - SUREST)
        means[row] = np.log(p / (1 - p)).mean(axis=0)
    return LabelModel.of(tasks, 1 / (1 + np.exp(-means)), category=category)
