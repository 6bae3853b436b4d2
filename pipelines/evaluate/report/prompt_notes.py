"""State in the report whose prompt each model was asked with, and mark rows whose prompt knows of printed test errors.

The stages that ask models write the prompt's origin (:attr:`pipelines.llm.prompting.prompts.Prompt.origin`) into their
metrics. Texts of prompts are not read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.core import rows
from pipelines.core.config.params import Params
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.store.metrics_file import read_metrics

MARKS = {"learnt": "prompt has rules learnt from the paper's test errors", "own": "prompt of the team's own folder"}
DIGITS = 12


def origins(corpus: str, *, params: Params, root: Path) -> dict[str, list[Json]]:
    """Return the origins of the prompts of each model in ``evaluate.json``, as far as metrics below ``root`` tell."""
    folder = root / "metrics" / corpus

    def of(name: str) -> list[Json]:
        metrics = read_metrics(folder / f"{name}.json")
        return [metrics["prompt"]] if metrics.get("prompt") else []

    by_model: dict[str, list[Json]] = {}
    for row in rows.read(root).answers.values():
        if row.corpus == corpus and (entry := params.models.get(row.model)):
            own = [*of(f"predict-{row.name}"), *(of(f"train-{row.name}") if row.subset else ())]
            members = params.ensembles[entry.silver].members if entry.silver else ()
            labellers = (*members, *((entry.votes,) if entry.votes and not row.subset else ()))
            found = own or [origin for name in labellers for origin in of(f"votes-{name}")]
            by_model.setdefault(row.shown, []).extend(found)
    return {name: each for name, each in by_model.items() if each}


def notes(prompts: Mapping[str, Sequence[Json]]) -> dict[str, list[str]]:
    """Return what is noted beside the rows of models because of their prompts."""
    return {
        name: [mark for kind, mark in MARKS.items() if any(origin[kind] for origin in origins)]
        for name, origins in prompts.items()
    }


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
    whose = ("Whose prompt", "Its digest", "Digest of prompts.folder", "Rules learnt from printed test errors")
    return Sheet("Prompts that the models were asked with", ("Model", *whose), tuple(rows)) if rows else None
