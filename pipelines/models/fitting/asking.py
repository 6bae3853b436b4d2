"""Ask a model in this process about examples, or read the stored votes of labellers, with what they cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.core.process import reporter
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example, Item
from pipelines.models.prediction import VOTE, Prediction, Predictor, Spent, Votes
from pipelines.store import tables


def ask(predictor: Predictor, examples: Sequence[Example], *, name: str) -> tuple[dict[Item, Prediction], Spent]:
    """Return a model's predictions for all examples, and what they cost on this machine."""
    began = time.monotonic()
    answers = predictor.predict(examples, progress=reporter(name, total=len(examples)))
    spent = Spent.of(answers, seconds=time.monotonic() - began)
    return {example.item: said for example, said in zip(examples, answers, strict=True)}, spent


DECIMALS = 6  # of US dollars, as in the stage votes

Rows = Mapping[Item, Mapping[str, Any]]


def votes(corpus: str, *, labeller: str, task: Task, root: Path) -> Rows:
    """Return a labeller's rows of the table ``votes`` for one task by item."""
    path = root / "snapshot" / corpus / "votes" / labeller / "votes.parquet"
    if not path.is_file():
        raise ConfigError("NotVoted", corpus=corpus, labeller=labeller)
    rows = tables.read(path, name="votes").to_pylist()
    return {(row["record_id"], row["image"]): row for row in rows if row["category"] == task.key}


def valid(rows: Rows) -> Votes:
    return {item: frozenset(row["labels"]) for item, row in rows.items() if row["outcome"] == VOTE}


def bill(bills: Sequence[Rows], *, items: Collection[Item]) -> Spent:
    """Sum up the cost of votes about some items; sorted, so that the order of rows does not change the last bit."""
    rows = [rows[item] for rows in bills for item in items if item in rows]
    return Spent(
        records=len(items),
        seconds=None,
        input_tokens=sum(row["input_tokens"] or 0 for row in rows),
        output_tokens=sum(row["output_tokens"] or 0 for row in rows),
        cost=round(sum(sorted(row["cost"] or 0.0 for row in rows)), DECIMALS),
    )
