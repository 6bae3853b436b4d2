"""Write the predictions of one row and what they cost, and count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.datasets.example import TEST, VALIDATION, Item, Material
from pipelines.models.prediction import Prediction, Spent
from pipelines.store import tables
from pipelines.store.metrics_file import read_metrics, write_metrics
from pipelines.store.vault.vault import Vault


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
    tables.write_rows(rows, folder / tables.PREDICTIONS, name="predictions")
    return {
        "records": {name: sum(counts.values()) for name, counts in outcomes.items()},
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "without": {name: material.without[split] for split, name in names.items()},
        "taken_down": {name: material.taken_down[split] for split, name in names.items()},
        "spent": _write_spent(spent.model_dump() if spent else None, to=folder),
    }


def copied(folder: Path, *, to: Path, vault: Vault) -> dict[str, Any]:
    """Copy predictions and their cost, without those of records that were taken down since; return their counts."""
    table = tables.read(folder / tables.PREDICTIONS, name="predictions")
    table = tables.without(table, vault.tombstoned(set(table["record_id"].to_pylist())))
    tables.write(table, to / tables.PREDICTIONS, name="predictions")
    outcomes: dict[str, Counter[str]] = {}
    for row in table.select(["split", "outcome"]).to_pylist():
        outcomes.setdefault(row["split"], Counter())[row["outcome"]] += 1
    return {
        "records": {name: sum(counts.values()) for name, counts in outcomes.items()},
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "spent": _write_spent(read_metrics(folder / tables.SPENT), to=to),
    }


def _write_spent(spent: dict[str, Any] | None, *, to: Path) -> dict[str, Any] | None:
    # of an earlier attempt, and perhaps a link into DVC's cache
    (to / tables.SPENT).unlink(missing_ok=True)
    return None if spent is None else write_metrics(spent, to / tables.SPENT)
