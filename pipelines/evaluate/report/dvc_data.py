"""Write the few numbers that ``dvc metrics show`` prints and the points that ``dvc plots show`` draws.

``dvc.yaml`` names the folders, not the files: DVC reports an error for a file that a corpus does not have yet. They are
beside the metrics of single corpora, in ``metrics/all-corpora``, a name that no corpus can have:

    summary/<corpus>.json  ``test`` (scored items), ``models``, and ``macro_f1`` of each task's best model
    scores/<corpus>.json   [{"model": "<task>: <model>", "macro_f1"}], baselines included
    labels/<corpus>.json   [{"label": "<task>: <label>", "f1"}] of each task's best model
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.core.config.params import ALL_CORPORA
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import parts
from pipelines.evaluate.report.results import BASELINES

DIGITS = 4


def write(metrics: Json, *, corpus: str, root: Path) -> None:
    """Write the files of one corpus from its ``evaluate.json`` as arranged for the report."""
    tasks = metrics["tasks"]
    for kind, content in {"summary": _summary(tasks), "scores": _scores(tasks), "labels": _labels(tasks)}.items():
        path = root / "metrics" / ALL_CORPORA / kind / f"{corpus}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")


def _summary(tasks: Json) -> Json:
    best = {key: _macro_f1(parts.best_of(task)) for key, task in tasks.items()}
    return {
        "test": max((task["n"] for task in tasks.values()), default=0),
        "models": len({name for task in tasks.values() for name in task["models"]}),
        "macro_f1": {key: value for key, value in best.items() if value is not None},
    }


def _scores(tasks: Json) -> list[dict[str, Any]]:
    rows = []
    for task in tasks.values():
        values = {name: _macro_f1(model) for name, model in sorted(task["models"].items())}
        values |= {BASELINES[name]: row["figures"]["macro_f1"] for name, row in task["baselines"].items()}
        rows += [
            {"model": f"{task['title']}: {name}", "macro_f1": _rounded(value)}
            for name, value in values.items()
            if value is not None
        ]
    return rows


def _labels(tasks: Json) -> list[dict[str, Any]]:
    rows = []
    for task in tasks.values():
        best = parts.best_of(task)
        for label in task["labels"] if best and best["valid"] else ():
            value = best["valid"]["labels"][label]["f1"]["mean"] if best and task["support"].get(label) else None
            if value is not None:
                rows.append({"label": f"{task['title']}: {label}", "f1": _rounded(value)})
    return rows


def _macro_f1(model: Json | None) -> float | None:
    return _rounded(parts.figures_of(model).get("macro_f1", {}).get("mean"))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
