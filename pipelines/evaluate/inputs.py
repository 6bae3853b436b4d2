"""Read the input of the stage ``evaluate``: gold with splits and groups, and predictions grouped into runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import BadParams
from pipelines.evaluate.model_scores import VOTE, BadPredictions, Item, Run
from pipelines.metrics.label_sets import LabelSet
from pipelines.storage import tables
from pipelines.taxonomy.task import Task

TRAIN, DEV, TEST = "train", "dev", "test"
COLUMNS = ["record_id", "image", "task", "model", "seed", "split", "outcome", "scores", "labels"]
Runs = Mapping[str, Mapping[str, Sequence[Run]]]
"""Task -> model -> its runs, ordered by seed."""


@dataclass(frozen=True)
class EvaluationGold:
    """The gold of a corpus: the ``split`` and ``group`` of each item, and ``labels`` (category -> item -> label set).

    ``examples`` are the items that prompts show: they have gold, but no model is scored on them (SPEC 24).
    """

    split: Mapping[Item, str]
    group: Mapping[Item, str]
    labels: Mapping[str, Mapping[Item, LabelSet]]
    examples: frozenset[Item] = frozenset()

    @classmethod
    def read(cls, folder: Path) -> EvaluationGold:
        """Read the gold from ``folder`` (``snapshot/<corpus>``); gold of an item without a split is left out."""
        split, group = {}, {}
        for row in tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist():
            item = (row["record_id"], row["image"])
            split[item], group[item] = row["split"], row["group"]
        labels: dict[str, dict[Item, LabelSet]] = defaultdict(dict)
        for row in tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist():
            item = (row["record_id"], row["image"])
            if item in split:
                labels[row["category"]][item] = frozenset(row["labels"])
        return cls(split, group, labels, tables.examples(folder))

    def of(self, key: str, *, split: str) -> dict[Item, LabelSet]:
        """Return the gold label sets of one category by item, sorted, for the items of one split."""
        return {item: labels for item, labels in sorted(self.labels.get(key, {}).items()) if self.split[item] == split}

    def seen(self, task: Task, *, split: str) -> dict[Item, LabelSet]:
        """Return a split's gold labels by item as the task defines them, without items used as prompt examples."""
        whole = self.of(task.key, split=split)
        found = {item: task.seen(labels) for item, labels in whole.items() if item not in self.examples}
        if task.kind == "single" and any(len(labels) != 1 for labels in found.values()):
            raise BadParams(where=f"gold ({task.key})", detail="needs exactly one label")
        return found


def runs_of(
    rows: Iterable[Mapping[str, Any]], *, tasks: Mapping[str, Task], gold: EvaluationGold, split: str = TEST
) -> Runs:
    """Group rows of the table ``predictions`` on ``split`` by task, model and seed; the rows of a seed are a run."""
    sorted_rows: dict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["split"] == split and row["task"] in tasks:
            sorted_rows[row["task"], row["model"], row["seed"]].append(row)
    found: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for (key, model, seed), here in sorted(sorted_rows.items()):
        items = [(row["record_id"], row["image"]) for row in here]
        if fault := _fault(items, rows=here, task=tasks[key], gold=gold, split=split):
            raise BadPredictions(model=model, task=key, seed=seed, detail=fault)
        # if gold was withdrawn since, its predictions are not used
        known = [(i, row) for i, row in zip(items, here, strict=True) if i in gold.labels.get(key, {})]
        answers = {item: frozenset(row["labels"]) for item, row in known if row["outcome"] == VOTE}
        scores = {item: tuple(row["scores"]) for item, row in known if item in answers and row.get("scores")}
        found[key][model].append(Run(seed, {item: row["outcome"] for item, row in known}, answers, scores))
    return found


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
