"""State in the report whose prompt each model was asked with, and mark rows whose prompt knows of printed test errors.

The stages that ask models write the prompt's origin (:attr:`pipelines.llm.prompting.prompts.Prompt.origin`) into their
metrics. Texts of prompts are not read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.core.config import rows
from pipelines.core.config.params import Params
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.models import kind
from pipelines.store.metrics_file import read_metrics

NOTES = "notes"
MARKS = {"learnt": "prompt has rules learnt from the paper's test errors", "own": "prompt of the team's own folder"}
DIGITS = 12
EXPLAINED = (
    "A prompt of the team's own folder is what prompts.folder held, such as the paper's text; the digest identifies "
    "it. All other prompts are this project's, in its own words. Some of our rules were written after the paper had "
    "printed errors of models on its test set. A row whose prompt has such rules is marked: it is not comparable with "
    "the paper's figure, whose models were not told of them. Prompts in mode paper do not have these rules."
)


def origins(corpus: str, *, params: Params, root: Path) -> dict[str, list[Json]]:
    """Return the origins of the prompts of each model in ``evaluate.json``, as far as metrics below ``root`` tell."""
    folder = root / "metrics" / corpus

    def of(name: str) -> list[Json]:
        metrics = read_metrics(folder / f"{name}.json")
        return [metrics["prompt"]] if metrics.get("prompt") else []

    by_model: dict[str, list[Json]] = {}
    for row in rows.resolve(params, root=root).answers.values():
        if row.corpus == corpus:
            entry = params.models[row.model]
            asked = [f"votes-{name}" for name in kind.spec(params, row.model).labellers(params)]
            own = [f"train-{row.name}", f"predict-{row.name}"]
            files = asked if row.seed is None and (entry.votes or entry.silver) else own
            found = by_model.setdefault(row.shown, [])
            found += [origin for name in files for origin in of(name) if origin not in found]
    return {name: each for name, each in by_model.items() if each}


def noted(metrics: Json, *, prompts: Mapping[str, Sequence[Json]]) -> Json:
    """Return ``evaluate.json`` in which each model that a note concerns has ``notes``, sentences for its row."""
    tasks = {}
    for key, task in metrics["tasks"].items():
        models = {**task["models"]}
        for name in models.keys() & prompts.keys():
            notes = [note for kind, note in MARKS.items() if any(origin[kind] for origin in prompts[name])]
            models[name] = {**models[name], NOTES: [*models[name].get(NOTES, ()), *notes]}
        tasks[key] = {**task, "models": models}
    return {**metrics, "tasks": tasks}


def beside(model: Json) -> str:
    """Return the notes of a model's row, to be put after its name or source; empty without notes."""
    return "".join(f"; {note}" for note in model.get(NOTES, ()))


def sheet(metrics: Json, *, prompts: Mapping[str, Sequence[Json]]) -> Sheet | None:
    """Return a table of whose prompt each evaluated model was asked with, or ``None`` if no metrics tell."""
    names = {name for task in metrics["tasks"].values() for name in task["models"]}
    rows = [
        (
            name,
            "the team's" if origin["own"] else "ours",
            origin["digest"][:DIGITS],
            (origin["own"] or "")[:DIGITS] or UNDEFINED,
            "; ".join(origin["learnt"]) or "none",
        )
        for name in sorted(names & prompts.keys())
        for origin in {json.dumps(each, sort_keys=True): each for each in prompts[name]}.values()
    ]
    columns = (
        "Model",
        "Whose prompt",
        "Its digest",
        "Digest of prompts.folder",
        "Rules learnt from printed test errors",
    )
    return Sheet("Prompts that the models were asked with", columns, tuple(rows)) if rows else None
