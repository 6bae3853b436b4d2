"""Keep the figures of a successor model apart from the row of the paper's model whose entry it has taken.

A vendor retires the model of a row, and a person sets another model in the entry of the old name. The page then names
the entry with its weights, as a row of its own, in every table and drawing.
"""

from __future__ import annotations

from pipelines.evaluate.model_scores import Json
from pipelines.report.papers import stands_for


def told_apart(metrics: Json, *, paper: str) -> Json:
    """Return the content of ``evaluate.json`` with each model named ``entry (weights)`` that is not its row's model."""
    names = {
        name: f"{name} ({model['base']})"
        for task in metrics["tasks"].values()
        for name, model in task["models"].items()
        if not stands_for(paper, model["name"], base=model["base"])
    }
    if not names:
        return metrics
    decoding = {names.get(name, name): told for name, told in metrics["decoding"].items()}
    tasks = {key: _renamed(task, names=names) for key, task in metrics["tasks"].items()}
    return {**metrics, "decoding": decoding, "tasks": tasks}


def _renamed(task: Json, *, names: dict[str, str]) -> Json:
    models = {
        names.get(name, name): {**model, "untuned": names.get(model["untuned"], model["untuned"])}
        for name, model in task["models"].items()
    }
    pairs = [{**pair, **{side: names.get(pair[side], pair[side]) for side in ("a", "b")}} for pair in task["pairs"]]
    return {**task, "models": models, "best": names.get(task["best"], task["best"]), "pairs": pairs}
