"""Write and read the folder of a fine-tuned model: weights, card and lineage.

``model.json`` is written last, so a folder that has one is complete. ``records.parquet`` has the rows of the table
``splits`` that the model was trained on or selected by: ids, by which a deletion finds all models that it affects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, ValidationError

from pipelines.config.base import Section
from pipelines.config.models import EncoderModel, KnnModel, SftModel
from pipelines.datasets.example import LabelSet
from pipelines.datasets.posts import Posts
from pipelines.errors import ConfigError, DataError
from pipelines.storage import tables
from pipelines.taxonomy import load as scheme_of
from pipelines.taxonomy.task import Task, task_of
from pipelines.train.prediction import VOTE

CARD, LINEAGE = "model.json", "records.parquet"

Row = Mapping[str, Any]
Tuned = Annotated[SftModel | EncoderModel | KnnModel, Field(discriminator="kind")]


class NoModel(ConfigError):
    """The folder of a fine-tuned model lacks the model or a part of it."""

    message = "The folder of the fine-tuned model '{folder}' is incomplete: {detail}."
    remedy = (
        "Run `dvc pull --allow-missing`. If files are still missing, run `dvc repro finetune@CORPUS-SUBSET-{folder}` "
        "(unanimous, consensus or gold)."
    )


class NotVoted(ConfigError):
    """The current clone lacks the file with a labeller's votes."""

    message = "The votes of labeller '{labeller}' for {corpus} are missing in the current folder."
    remedy = "Run `dvc pull --allow-missing`. If they are still missing, run `dvc repro votes@{corpus}-{labeller}`."


class ModelOutdated(DataError):
    """A model was fine-tuned for other labels than those that the scheme has now."""

    message = (
        "The model in {folder} was fine-tuned for {found} labels of task '{task}', which are not the {expected} labels "
        "that the scheme has now."
    )
    remedy = "Fine-tune the model again: `dvc repro finetune`."


class TrainingRecords(Section):
    """The number of a model's training records, and the SHA-256 of their sorted ids, one id per line."""

    records: int
    digest: str


class Card(Section):
    """The content of ``model.json``: what is needed to load the model and to trace its origin."""

    kind: Literal["sft", "encoder", "knn"]
    corpus: str
    model: str
    subset: str
    task: str
    scheme: str
    labels: tuple[str, ...]
    base: str
    seed: int
    data_commit: str
    train: TrainingRecords
    spec: Tuned

    @property
    def name(self) -> str:
        """Return the name of the model in tables of predictions."""
        return f"{self.model}-{self.subset}"


def folder_of(corpus: str, *, subset: str, model: str, root: Path) -> Path:
    """Return the folder to which the stage ``finetune`` writes a model."""
    return root / "snapshot" / corpus / "finetuned" / subset / model


def trained_on(record_ids: Collection[str]) -> TrainingRecords:
    """Return the number and the digest of record ids; their order does not matter."""
    lines = "".join(f"{record_id}\n" for record_id in sorted(set(record_ids)))
    return TrainingRecords(records=len(set(record_ids)), digest=hashlib.sha256(lines.encode()).hexdigest())


def write(folder: Path, *, card: Card, material: Posts) -> None:
    """Write the lineage and then the card, whose presence marks the folder as complete."""
    rows = [
        {"record_id": item[0], "image": item[1], "group": material.placed[item][1], "split": material.placed[item][0]}
        for item in (e.item for e in (*material.train, *material.validation))
    ]
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["splits"]), folder / LINEAGE, name="splits")
    half = folder / f".{CARD}"
    half.write_text(card.model_dump_json(indent=2) + "\n")
    half.replace(folder / CARD)


def read(folder: Path) -> Card:
    """Read the card of a fine-tuned model.

    Raises:
        NoModel: the card is missing or malformed.
    """
    try:
        return Card.model_validate_json((folder / CARD).read_bytes())
    except OSError:
        raise NoModel(folder=folder.name, detail=f"{CARD} is missing") from None
    except ValidationError as error:
        raise NoModel(
            folder=folder.name, detail=f"{error.error_count()} entries of {CARD} are missing or unknown"
        ) from None


def lineage(folder: Path) -> dict[str, str]:
    """Return the split of every record on which the model was trained or selected, by record id.

    Raises:
        NoModel: the lineage is missing.
    """
    if not (folder / LINEAGE).is_file():
        raise NoModel(folder=folder.name, detail=f"{LINEAGE} is missing")
    rows = tables.read(folder / LINEAGE, name="splits", columns=["record_id", "split"]).to_pylist()
    return {row["record_id"]: row["split"] for row in rows}


def task_asked(card: Card, *, folder: Path, root: Path = Path()) -> Task:
    """Return the task for which a model was fine-tuned; ``root`` is a clone of the corpus.

    Raises:
        ModelOutdated: the scheme's labels or their order have changed.
    """
    task = task_of(scheme_of(card.scheme, root=root), card.task)
    if task.labels != card.labels:
        found, expected = len(card.labels), len(task.labels)
        raise ModelOutdated(folder=folder.name, task=card.task, found=found, expected=expected)
    return task


def votes(corpus: str, *, labeller: str, task: Task, root: Path) -> dict[str, Row]:
    """Return a labeller's rows of the table ``votes`` for one task by record id.

    Raises:
        NotVoted: the labeller's votes are missing from the clone.
    """
    path = root / "snapshot" / corpus / "votes" / labeller / "votes.parquet"
    if not path.is_file():
        raise NotVoted(corpus=corpus, labeller=labeller)
    rows = tables.read(path, name="votes").to_pylist()
    return {row["record_id"]: row for row in rows if row["category"] == task.key}


def votes_for(spec: Tuned, *, corpus: str, task: Task, root: Path) -> dict[str, LabelSet] | None:
    """Return the votes with which a kNN model is combined, by record id, or ``None`` without a labeller.

    A refusal is not a vote.

    Raises:
        NotVoted: the labeller's votes are missing from the clone.
    """
    if not isinstance(spec, KnnModel) or spec.labeller is None:
        return None
    rows = votes(corpus, labeller=spec.labeller, task=task, root=root)
    return {r: frozenset(row["labels"]) for r, row in rows.items() if row["outcome"] == VOTE}
