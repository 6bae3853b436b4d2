"""Make MLflow's evaluation tables (scores of models by task and by label) and find the test scores of training runs.

Rows are models or labels, never items: the tables hold names, counts and scores of ``evaluate.json`` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Columns = dict[str, list[Any]]
"""A table by column, as ``MlflowClient.log_table`` takes it."""
FOLDER = "evaluation"  # of a run's artifacts
PARTS = ("f1", "precision", "recall")
FIGURES = ("macro_f1", "weighted_f1", "exact")


def of_metrics(metrics: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables of ``evaluate.json`` by file: ``scores.json`` (by task and model), ``labels.json``."""
    scores, labels = [], []
    for key, task in sorted(metrics["tasks"].items()):
        for name, model in sorted(task["models"].items()):
            valid = model["valid"] or {"figures": {}, "labels": {}}
            row = {"task": key, "model": name, "kind": model["kind"] or "", "runs": model["runs"], "items": task["n"]}
            scores.append(row | _cells(valid["figures"], FIGURES))
            labels += [
                {"task": key, "model": name, "label": label, "items": task["support"].get(label, 0)}
                | _cells(valid["labels"].get(label, {}), PARTS)
                for label in task["labels"]
            ]
    return {
        f"{FOLDER}/{name}.json": {column: [row[column] for row in table] for column in table[0]}
        for name, table in (("scores", scores), ("labels", labels))
        if table
    }


def _cells(scores: Mapping[str, Any], names: Iterable[str]) -> Json:
    ends = {"": "mean", "_low": "low", "_high": "high"}
    return {f"{name}{suffix}": (scores.get(name) or {}).get(end) for name in names for suffix, end in ends.items()}


def of_runs(root: Path, *, corpus: str, metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the scores on test by MLflow run: ``test_macro_f1`` and others; a missing answer counts as wrong.

    ``metrics`` is the ``evaluate.json`` of the corpus. Training runs have ended before these scores are computed.
    """
    folder, by_run = root / "metrics" / corpus, dict[str, dict[str, float]]()
    models = [(key, *model) for key, task in metrics["tasks"].items() for model in task["models"].items()]
    seeds = [(key, name, *part) for key, name, model in models for part in model.get("by_seed", {}).items()]
    for task, name, seed, part in seeds:
        scores = (part.get("all") or {}).get("figures") or {}
        files = [folder / f"train-{task}-{name}-{seed}.json"]
        # named by the subset of its labels: see `Described.measured_as`
        model, _, subset = name.rpartition("-")
        if not (folder / f"repeats-{subset}-{model}-{seed}.json").exists():
            files.append(folder / f"finetune-{subset}-{model}.json")
        for file in filter(Path.is_file, files):
            if run := (json.loads(file.read_bytes()).get("weights") or {}).get("run"):
                by_run[run] = {f"test_{key}": scores[key] for key in FIGURES if scores.get(key) is not None}
    return by_run
