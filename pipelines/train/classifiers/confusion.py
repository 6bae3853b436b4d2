"""Draw the confusion matrix of a training run: counts and label names, no items."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def confusion(
    truth: npt.NDArray[np.bool_], *, predicted: npt.NDArray[np.bool_], labels: tuple[str, ...], single: bool
) -> Any:
    """Return a matplotlib figure of counts: true by predicted class, or right and wrong predictions of each label.

    Args:
        truth: shape (examples, labels).
        predicted: the same shape.
        labels: the names of the second axis.
        single: whether each row has exactly one label.
    """
    from matplotlib.figure import Figure

    if single:
        counts, columns = truth.astype(int).T @ predicted.astype(int), labels
    else:
        parts = (truth & predicted, ~truth & predicted, truth & ~predicted, ~truth & ~predicted)
        counts = np.stack([part.sum(axis=0) for part in parts], axis=1)
        columns = ("right", "over", "under", "rightly absent")
    figure = Figure(figsize=(2.5 + len(columns), 1.5 + 0.6 * len(labels)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylabel("annotators")
    axes.set_xlabel("model")
    for row, column in np.ndindex(counts.shape):
        dark = counts[row, column] * 2 > counts[row].sum()
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", color="white" if dark else "black")
    return figure
