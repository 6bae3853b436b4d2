"""Find the test scores of training runs, which the stage ``evaluate`` computes after they have ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FIGURES = ("macro_f1", "weighted_f1", "exact")


def of_runs(root: Path, *, corpus: str, metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the scores on test by MLflow run: ``test_macro_f1`` and others; a missing answer counts as wrong.

    Args:
        metrics: its ``evaluate.json``.
    """
    folder, found = root / "metrics" / corpus, dict[str, dict[str, float]]()
    for task, name, of_seed, scores in _by_seed(metrics):
        files = [folder / f"train-{task}-{name}-{of_seed}.json"]
        # named by the subset of its labels: see `Described.measured_as`
        model, _, subset = name.rpartition("-")
        if not (folder / f"repeats-{subset}-{model}-{of_seed}.json").exists():
            files.append(folder / f"finetune-{subset}-{model}.json")
        for file in files:
            run = _run(file)
            if run is not None:
                found[run] = {f"test_{key}": scores[key] for key in FIGURES if scores.get(key) is not None}
    return found


def _by_seed(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for task, one in metrics["tasks"].items():
        for name, model in one["models"].items():
            for seed, part in model.get("by_seed", {}).items():
                yield task, name, seed, (part.get("all") or {}).get("figures") or {}


def _run(file: Path) -> str | None:
    try:
        weights = json.loads(file.read_bytes()).get("weights") or {}
    except OSError:
        return None
    return weights.get("run")
