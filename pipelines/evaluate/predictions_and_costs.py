"""Read the tables of ``snapshot/<corpus>/predictions`` with the origin and the cost of each model.

The path of a table gives its source: ``finetuned/<subset>/<model>``, ``repeats/<subset>/<model>/<seed>`` for the same
model with another seed, and ``untuned/<model>`` (posts), ``train`` and ``prompted`` (memes). ``spent.json`` beside a
table has the cost of the predictions. The shape in ``evaluate.json``::

    Spent = {                                         # sums over the model's spent.json
      "records": int, "seconds": float | null, "input_tokens": int, "output_tokens": int, "cost": float,
      "cost_per_1000": float | null,                  # US dollars for 1,000 records
      "seconds_per_record": float | null              # latency; null: not measured (votes that existed already)
    }
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.config.params import Params
from pipelines.errors import DataError
from pipelines.evaluate.inputs import COLUMNS
from pipelines.evaluate.model_scores import Json, number
from pipelines.storage import tables

FINETUNED, REPEATS = "finetuned", "repeats"
AMOUNTS = ("records", "seconds", "input_tokens", "output_tokens", "cost")


class BadSpent(DataError):
    """A file ``spent.json`` with the cost of predictions is invalid, so that the report would show wrong costs."""

    message = "The cost of predictions in {file} is invalid: {detail}."
    remedy = (
        "Run the stage that wrote the file again: `dvc repro --force STAGE` (prompted, predict_finetuned or baselines)."
    )


@dataclass(frozen=True)
class Origin:
    """Where an evaluated model comes from: ``source`` (folder of its predictions), ``name`` in params.models, ``kind``.

    ``subset`` names the labels that a tuned model was trained on, ``base`` its weights (``Params.weights``).

    ``untuned`` names, for a tuned model, the model that is its untuned base (CRADLE T8), and ``deviations`` what its
    recipe computes differently from the paper's.
    """

    source: str | None
    name: str
    subset: str | None = None
    kind: str | None = None
    base: str | None = None
    untuned: str | None = None
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """The rows of all tables of predictions of a corpus, and the origin and cost of each model."""

    rows: list[dict[str, Any]]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    spent: Mapping[str, Json] = field(default_factory=dict)


def read(folder: Path, *, params: Params) -> Found:
    """Read every ``predictions.parquet`` below ``folder``, with the origin and the cost of its model."""
    rows: list[dict[str, Any]] = []
    origins: dict[str, Origin] = {}
    spent: dict[str, list[Json]] = defaultdict(list)
    for path in sorted(folder.rglob("predictions.parquet")):
        here = tables.read(path, name="predictions", columns=COLUMNS).to_pylist()
        rows += here
        told = _spent(path.with_name("spent.json"))
        for model in sorted({row["model"] for row in here}):
            origins.setdefault(model, _origin(model, place=path.relative_to(folder).parts, params=params))
            spent[model] += [told] if told else []
    bases = {o.base: model for model, o in sorted(origins.items(), reverse=True) if o.kind in ("prompted", "local")}
    origins = {
        model: Origin(**{**vars(o), "untuned": bases.get(o.base) if o.source == FINETUNED and o.base else None})
        for model, o in origins.items()
    }
    return Found(rows, origins, {model: total(amounts) for model, amounts in spent.items() if amounts})


def _origin(model: str, *, place: Sequence[str], params: Params) -> Origin:
    source, subset, name = place[0], None, model
    if source in (FINETUNED, REPEATS) and len(place) > 3:
        source, subset, name = FINETUNED, place[1], place[2]
    spec = params.models.get(name)
    return Origin(
        source, name, subset, spec.kind if spec else None, params.weights(name),
        deviations=getattr(spec, "deviations", ()),
    )  # fmt: skip


def _spent(path: Path) -> Json | None:
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadSpent(file=path.name, detail=f"it is not JSON ({type(error).__name__})") from None
    if not isinstance(told, dict):
        raise BadSpent(file=path.name, detail="it is not a JSON object")
    for name in AMOUNTS:
        value = told.get(name)
        if value is None and name == "seconds" and name in told:
            continue  # not measured
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < math.inf):
            raise BadSpent(file=path.name, detail=f"'{name}' is not a number from 0 on")
    return told


def total(amounts: Sequence[Json]) -> Json:
    """Add up the costs of a model's runs to ``Spent`` of ``evaluate.json``; ``seconds``: ``None`` if one has none."""
    seconds = [told["seconds"] for told in amounts]
    records, cost = sum(told["records"] for told in amounts), sum(told["cost"] for told in amounts)
    whole = None if None in seconds else sum(seconds)
    return {
        "records": records,
        "seconds": None if whole is None else number(whole),
        **{name: sum(told[name] for told in amounts) for name in ("input_tokens", "output_tokens")},
        "cost": number(cost),
        "cost_per_1000": number(1000 * cost / records) if records else None,
        "seconds_per_record": number(whole / records) if records and whole is not None else None,
    }
