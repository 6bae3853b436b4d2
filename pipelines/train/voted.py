"""Read a labeller's votes for one task, by record id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.datasets.example import LabelSet
from pipelines.errors import ConfigError
from pipelines.storage import tables
from pipelines.taxonomy.task import Task
from pipelines.train.finetuned import VOTE

Row = Mapping[str, Any]


class NotVoted(ConfigError):
    """A labeller's votes are missing."""

    message = "There are no votes of labeller '{labeller}' for {corpus} in this folder."
    remedy = "Run `dvc pull --allow-missing`, or `dvc repro votes@{corpus}-{labeller}`."


def read(corpus: str, *, labeller: str, task: Task, root: Path) -> dict[str, Row]:
    """Return the rows of the table ``votes`` by record id.

    Raises:
        NotVoted: the labeller has not voted.
    """
    path = root / "snapshot" / corpus / "votes" / labeller / "votes.parquet"
    if not path.is_file():
        raise NotVoted(corpus=corpus, labeller=labeller)
    rows = tables.read(path, name="votes").to_pylist()
    return {row["record_id"]: row for row in rows if row["category"] == task.key}


def labels(rows: Mapping[str, Row]) -> dict[str, LabelSet]:
    """Return the label sets of the rows that are votes; a refusal is not a vote."""
    return {r: frozenset(row["labels"]) for r, row in rows.items() if row["outcome"] == VOTE}
