"""Write the predictions of one row and what they cost, and count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.datasets.example import TEST, VALIDATION, Item, Material
from pipelines.models.fitting.card import PREDICTIONS, SPENT
from pipelines.models.prediction import Prediction, Spent
from pipelines.store import tables
from pipelines.store.metrics_file import read_metrics, write_metrics


def write_predictions(
    folder: Path,
    runs: Mapping[int, Mapping[Item, Prediction]],
    *,
    material: Material,
    spent: Spent | None,
    splits: Sequence[str] = (VALIDATION, TEST),
    **about: Any,
) -> dict[str, Any]:
    """Write the predictions of examples of some splits and their cost to ``folder``; no answer is no row.

    Args:
        runs: the predictions by seed and item.
        about: the ``task`` and the ``model`` of the rows.

    Returns:
        Counts of the items by split and outcome (one without a prediction counts as ``missing``), of all runs, items
        ``without`` labels and ``taken_down`` by split, and ``spent``.
    """
    names = {split: material.named(split) for split in (VALIDATION, TEST) if split in splits}
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names.values()}
    rows = []
    for seed, said in runs.items():
        for example in material.asked:
            if example.split in names:
                split, prediction = names[example.split], said.get(example.item)
                outcomes[split][prediction.outcome if prediction else "missing"] += 1
                if prediction is not None:
                    rows.append(prediction.row(example.item, split=split, seed=seed, **about))
    table = pa.Table.from_pylist(rows, schema=tables.SCHEMAS["predictions"])
    tables.write(table, folder / PREDICTIONS, name="predictions")
    # of an earlier attempt
    (folder / SPENT).unlink(missing_ok=True)
    return {
        "records": {name: sum(counts.values()) for name, counts in outcomes.items()},
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "without": {name: material.without[split] for split, name in names.items()},
        "taken_down": {name: material.taken_down[split] for split, name in names.items()},
        "spent": None if spent is None else write_metrics(asdict(spent), folder / SPENT),
    }


def counted(folder: Path) -> dict[str, Any]:
    """Return the counts of :func:`write_predictions` that the files in ``folder`` say."""
    rows = tables.read(folder / PREDICTIONS, name="predictions", columns=["split", "outcome"]).to_pylist()
    outcomes: dict[str, Counter[str]] = {}
    for row in rows:
        outcomes.setdefault(row["split"], Counter())[row["outcome"]] += 1
    return {
        "records": {name: sum(counts.values()) for name, counts in outcomes.items()},
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "spent": read_metrics(folder / SPENT) or None,
    }
