"""Make MLflow's evaluation tables: scores of models by task and by label, for the tab "Evaluation" of a run.

Rows are models or labels, never items: the tables hold names, counts and scores of ``evaluate.json`` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crisis_corpus.integrity import CARD

Json = dict[str, Any]
Columns = dict[str, list[Any]]
"""A table by column, as ``MlflowClient.log_table`` takes it."""
FOLDER = "evaluation"  # of a run's artifacts
PARTS = ("f1", "precision", "recall")
FIGURES = ("macro_f1", "weighted_f1", "exact")


def of_pack(pack: Path) -> dict[str, Columns]:
    """Return the tables of a model package by file: ``labels.json``, from its card; none if the card has no scores."""
    card = json.loads((pack / CARD).read_bytes())
    measured = card.get("measured") or {} if isinstance(card, dict) else {}
    rows = [
        {"label": label, "items": found["items"], **{key: value for part in PARTS for key, value in _cell(part, found)}}
        for label, found in measured.get("labels", {}).items()
    ]
    return _tables({"labels": rows})


def of_metrics(metrics: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables of ``evaluate.json`` by file: ``scores.json`` (by task and model), ``labels.json``."""
    scores, labels = [], []
    for task, found in sorted(metrics["tasks"].items()):
        for name, model in sorted(found["models"].items()):
            valid = model["valid"] or {"figures": {}, "labels": {}}
            row = {"task": task, "model": name, "kind": model["kind"] or "", "runs": model["runs"], "items": found["n"]}
            scores.append(row | {key: value for part in FIGURES for key, value in _cell(part, valid["figures"])})
            labels += [
                {"task": task, "model": name, "label": label, "items": found["support"].get(label, 0)}
                | {key: value for part in PARTS for key, value in _cell(part, valid["labels"].get(label, {}))}
                for label in found["labels"]
            ]
    return _tables({"scores": scores, "labels": labels})


def _cell(name: str, found: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    """Yield a score and the ends of its interval as columns, such as ``f1``, ``f1_low`` and ``f1_high``."""
    cell = found.get(name) or {}
    yield from ((name, cell.get("mean")), (f"{name}_low", cell.get("low")), (f"{name}_high", cell.get("high")))


def _tables(rows: Mapping[str, list[Json]]) -> dict[str, Columns]:
    return {
        f"{FOLDER}/{name}.json": {column: [row[column] for row in found] for column in found[0]}
        for name, found in rows.items()
        if found
    }
