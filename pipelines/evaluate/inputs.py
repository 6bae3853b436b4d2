"""Read the input of the stage ``evaluate``: gold with splits, predictions grouped into runs, their origins and costs.

Each row of ``answers`` in ``rows.yaml`` has a folder of predictions. ``spent.json`` beside a table has the cost of the
predictions. The shape in ``evaluate.json``::

    Spent = {                                         # sums over the model's spent.json
      "records": int, "seconds": float | null, "input_tokens": int, "output_tokens": int, "cost": float,
      "cost_per_1000": float | null,                  # US dollars for 1,000 records
      "seconds_per_record": float | null              # latency; null: not measured (votes that existed already)
    }

A review asks an expert about items whose gold differs from the votes of named models, and about items that annotators
marked. Gold that it revised may have moved towards these models, so scores are also stated without such items
(CRADLE 3.4, SPEC 31).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.annotate.manifest import opened, rows
from pipelines.core.config.base import faults
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, DataError
from pipelines.core.rows import Answer
from pipelines.core.taxonomy.task import Task
from pipelines.evaluate.model_scores import VOTE, Board, Item, Json, Run, number
from pipelines.metrics.label_sets import LabelSet
from pipelines.models.kind import spec, weights
from pipelines.models.prediction import Spent
from pipelines.store import tables

TRAIN, DEV, VALIDATION, TEST = "train", "dev", "validation", "test"
COLUMNS = ["record_id", "image", "task", "model", "seed", "split", "outcome", "scores", "labels"]
FITTED, ASKED = "fitted", "asked"
Runs = Mapping[str, Mapping[str, Sequence[Run]]]
"""Task -> model -> its runs, ordered by seed."""


@dataclass(frozen=True)
class EvaluationGold:
    """The gold of a corpus: the ``split`` and ``group`` of each item, and ``labels`` (category -> item -> label set).

    ``examples`` are the items that prompts show: they have gold, but no model is scored on them (SPEC 24). ``leaks``
    are those of a published split that share a near-duplicate or an author with an earlier split.
    """

    split: Mapping[Item, str]
    group: Mapping[Item, str]
    labels: Mapping[str, Mapping[Item, LabelSet]]
    examples: frozenset[Item] = frozenset()
    leaks: frozenset[Item] = frozenset()

    @property
    def validation(self) -> str:
        """The corpus's name of the split that models are selected on."""
        return DEV if DEV in self.split.values() else VALIDATION

    @classmethod
    def read(cls, folder: Path) -> EvaluationGold:
        """Read the gold from ``folder`` (``snapshot/<corpus>``); gold of an item without a split is left out."""
        placed = tables.splits(folder)
        split, group = ({item: value[i] for item, value in placed.items()} for i in (0, 1))
        return cls(split, group, tables.gold(folder, within=placed), tables.examples(folder), tables.leaks(folder))

    def of(self, key: str, *, split: str) -> dict[Item, LabelSet]:
        """Return the gold label sets of one category by item, sorted, for the items of one split."""
        return {item: labels for item, labels in sorted(self.labels.get(key, {}).items()) if self.split[item] == split}

    def seen(self, task: Task, *, split: str) -> dict[Item, LabelSet]:
        """Return a split's gold labels by item as the task defines them, without items used as prompt examples."""
        whole = self.of(task.key, split=split)
        defined = {item: task.seen(labels) for item, labels in whole.items() if item not in self.examples}
        if task.kind == "single" and any(len(labels) != 1 for labels in defined.values()):
            raise BadParams(where=f"gold ({task.key})", detail="needs exactly one label")
        return defined


def runs_of(
    rows: Iterable[Mapping[str, Any]], *, tasks: Mapping[str, Task], gold: EvaluationGold, split: str = TEST
) -> Runs:
    """Group rows of the table ``predictions`` on ``split`` by task, model and seed; the rows of a seed are a run."""
    sorted_rows: dict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["split"] == split and row["task"] in tasks:
            sorted_rows[row["task"], row["model"], row["seed"]].append(row)
    runs: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for (key, model, seed), here in sorted(sorted_rows.items()):
        items = [(row["record_id"], row["image"]) for row in here]
        if fault := _fault(items, rows=here, task=tasks[key], gold=gold, split=split):
            raise DataError("BadPredictions", model=model, task=key, seed=seed, detail=fault)
        # if gold was withdrawn since, its predictions are not used
        known = [(i, row) for i, row in zip(items, here, strict=True) if i in gold.labels.get(key, {})]
        answers = {item: frozenset(row["labels"]) for item, row in known if row["outcome"] == VOTE}
        scores = {item: tuple(row["scores"]) for item, row in known if item in answers and row.get("scores")}
        runs[key][model].append(Run(seed, {item: row["outcome"] for item, row in known}, answers, scores))
    return runs


def _fault(
    items: Sequence[Item], *, rows: Sequence[Mapping[str, Any]], task: Task, gold: EvaluationGold, split: str
) -> str | None:
    answers = [frozenset(row["labels"] or ()) for row in rows if row["outcome"] == VOTE]
    if len(set(items)) < len(items):
        return "an item has two rows"
    if any(gold.split.get(item, split) != split for item in items):
        return f"rows name split {split} for items of another split"
    if any(not answer <= set(task.labels) for answer in answers):
        return "a row has labels that are not in the task"
    if task.kind == "single" and any(len(answer) != 1 for answer in answers):
        return "a row does not have exactly one label"
    scores = [row["scores"] for row in rows if row["outcome"] == VOTE and row.get("scores")]
    if any(len(s) != len(task.labels) or not all(0 <= p <= 1 for p in s) for s in scores):
        return "a row has scores that are not one probability for each label of the task"
    return None


@dataclass(frozen=True)
class Origin:
    """Where an evaluated model comes from: ``source`` (fitted on this corpus, or asked), ``name`` in params.models.

    ``subset`` names the labels that a fitted model learnt from, ``base`` its weights, ``untuned`` the model that is its
    base (CRADLE T8), ``deviations`` what its recipe computes differently from the paper's, ``note`` what a reader of
    its figures must know about its kind.
    """

    source: str | None
    name: str
    subset: str | None = None
    kind: str | None = None
    base: str | None = None
    untuned: str | None = None
    deviations: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class Predictions:
    """The rows of all tables of predictions of a corpus, and the origin and cost of each model."""

    rows: list[dict[str, Any]]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    spent: Mapping[str, Json] = field(default_factory=dict)


def read_predictions(folder: Path, *, answers: Iterable[Answer], params: Params) -> Predictions:
    """Read the predictions of rows below ``folder``, with the origin and the cost of each model."""
    found: list[dict[str, Any]] = []
    origins: dict[str, Origin] = {}
    spent: dict[str, list[Spent]] = defaultdict(list)
    for row in answers:
        path = folder / row.name / "predictions.parquet"
        if not path.is_file():
            continue
        found += tables.read(path, name="predictions", columns=COLUMNS).to_pylist()
        amounts = _spent(path.with_name("spent.json"))
        origins.setdefault(row.shown, _origin(row, params=params))
        spent[row.shown] += [amounts] if amounts else []
    read = {name for name, entry in params.models.items() if entry.votes or entry.silver}
    alone = [
        (model, o) for model, o in sorted(origins.items(), reverse=True) if o.source == ASKED and o.name not in read
    ]
    asked = {o.base: model for model, o in alone if o.base}
    origins = {
        model: replace(o, untuned=asked.get(o.base) if o.base and o.source == FITTED else None)
        for model, o in origins.items()
    }
    return Predictions(found, origins, {model: total(costs) for model, costs in spent.items() if costs})


def _origin(row: Answer, *, params: Params) -> Origin:
    source = FITTED if row.subset is not None else ASKED
    if row.model not in params.models:
        return Origin(source, row.model, row.subset)
    model = spec(params, row.model)
    base = (model.named or None) if source == FITTED else weights(params, row.model)
    return Origin(source, row.model, row.subset, model.kind, base, deviations=model.deviations, note=model.note)


def reached(models: Iterable[str], *, params: Params) -> dict[str, frozenset[str]]:
    """Return, of models that have a map of another corpus's labels, the labels that they can give (transfer)."""
    maps = {name: getattr(spec(params, name), "labels", None) for name in models if name in params.models}
    return {name: frozenset(filter(None, labels.values())) for name, labels in maps.items() if labels}


def _spent(path: Path) -> Spent | None:
    if not path.is_file():
        return None
    try:
        return Spent.model_validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError) as error:
        detail = faults(error) if isinstance(error, ValidationError) else type(error).__name__
        raise DataError("BadSpent", file=path.name, detail=detail) from None


def total(amounts: Sequence[Spent]) -> Json:
    """Add up the costs of a model's runs to ``Spent`` of ``evaluate.json``; ``seconds``: ``None`` if one has none."""
    seconds = [amount.seconds for amount in amounts if amount.seconds is not None]
    records, cost = sum(amount.records for amount in amounts), sum(amount.cost for amount in amounts)
    whole = sum(seconds) if len(seconds) == len(amounts) else None
    return {
        "records": records,
        "seconds": None if whole is None else number(whole),
        "input_tokens": sum(amount.input_tokens for amount in amounts),
        "output_tokens": sum(amount.output_tokens for amount in amounts),
        "cost": number(cost),
        "cost_per_1000": number(1000 * cost / records) if records else None,
        "seconds_per_record": number(whole / records) if records and whole is not None else None,
    }


def reviewed(corpus: str, *, root: Path) -> frozenset[Item]:
    """Return the items of the corpus's reviews (rounds with ``draw: disagreement``), with gold kept or revised."""
    items: set[Item] = set()
    for manifest in opened(root, corpus):
        if manifest.draw == "disagreement":
            items |= {(row["record_id"], row["image"]) for row in rows(root, manifest, "assignments") or ()}
    return frozenset(items)


def without_items(board: Board, *, items: Collection[Item]) -> Board:
    """Return a task's test set without ``items``: the same object if it has none of them."""
    kept = [i for i, item in enumerate(board.items) if item not in items]
    if len(kept) == len(board.items):
        return board
    return replace(
        board,
        items=tuple(board.items[i] for i in kept),
        gold=tuple(board.gold[i] for i in kept),
        groups=tuple(board.groups[i] for i in kept),
    )
