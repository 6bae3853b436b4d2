"""Write and read the folder of a fine-tuned model: weights, card and lineage.

The card is ``model.json``; it is written last, so a folder that has one is complete. The lineage is
``records.parquet``, the list of records that the model was trained on or selected by
(:mod:`pipelines.train.predictors.training_records`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from pipelines.core.config.base import Section
from pipelines.core.config.models import EncoderModel, Finetune, KnnModel, SftModel
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example, LabelSet
from pipelines.store import tables
from pipelines.train.predictors import training_records
from pipelines.train.predictors.prediction import VOTE
from pipelines.train.predictors.training_records import TrainingRecords

CARD = "model.json"
OWN = frozenset({CARD, training_records.FILE})

Row = Mapping[str, Any]
Tuned = Annotated[SftModel | EncoderModel | KnnModel, Field(discriminator="kind")]


class Card(Section):
    """The content of a fine-tuned model's ``model.json``: what is needed to load the model and to trace its origin."""

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
    selected: TrainingRecords  # train and dev
    spec: Tuned

    @property
    def name(self) -> str:
        """The name of the fine-tuned model in tables of predictions."""
        return f"{self.model}-{self.subset}"


S = TypeVar("S", bound=SftModel | EncoderModel | KnnModel)


@dataclass(frozen=True)
class FinetuneJob(Generic[S]):
    """What a model is fine-tuned on and written to.

    Args:
        spec: the base model and the recipe.
        seed: seeds the order of the samples, dropout and new weights.
        folder: for checkpoints of this run alone; must outlive a killed process; the caller removes it.
        processes: number of processes that divide the model; ``None`` for one for each GPU, or one on a CPU.
    """

    spec: S
    train: Sequence[Example]
    validation: Sequence[Example]
    task: Task
    scheme: Scheme
    seed: int
    settings: Finetune
    folder: Path
    out: Path
    processes: int | None = None


def folder_of(corpus: str, *, subset: str, model: str, root: Path) -> Path:
    """Return the folder to which the stage ``finetune`` writes a model."""
    return root / "snapshot" / corpus / "finetuned" / subset / model


def parts(folder: Path) -> dict[str, Path]:
    """Return a model's files by relative path, without card and list of records: weights, tokenizer, thresholds."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path for name, path in files.items() if name not in OWN and name[0] != "."}


def write(folder: Path, *, card: Card) -> None:
    """Write a fine-tuned model's card (``model.json``), whose presence marks the model's folder as complete."""
    half = folder / f".{CARD}"
    half.write_text(card.model_dump_json(indent=2) + "\n")
    half.replace(folder / CARD)


def read(folder: Path) -> Card:
    """Read the card of a fine-tuned model."""
    try:
        return Card.model_validate_json((folder / CARD).read_bytes())
    except OSError:
        raise ConfigError("NoModel", folder=folder.name, detail=f"{CARD} is missing") from None
    except ValidationError as error:
        raise ConfigError(
            "NoModel", folder=folder.name, detail=f"{error.error_count()} entries of {CARD} are missing or unknown"
        ) from None


def lineage(folder: Path) -> dict[str, str]:
    """Return the split of every record on which the model was trained or selected, by record id."""
    splits = training_records.read(folder)
    if splits is None:
        raise ConfigError("NoModel", folder=folder.name, detail=f"{training_records.FILE} is missing")
    return splits


def task_asked(card: Card, *, folder: Path, root: Path = Path()) -> Task:
    """Return the task for which a model was fine-tuned; ``root`` is a clone of the corpus."""
    task = task_of(scheme_of(card.scheme, root=root), card.task)
    if task.labels != card.labels:
        trained, expected = len(card.labels), len(task.labels)
        raise DataError("ModelOutdated", folder=folder.name, task=card.task, found=trained, expected=expected)
    return task


def votes(corpus: str, *, labeller: str, task: Task, root: Path) -> dict[str, Row]:
    """Return a labeller's rows of the table ``votes`` for one task by record id."""
    path = root / "snapshot" / corpus / "votes" / labeller / "votes.parquet"
    if not path.is_file():
        raise ConfigError("NotVoted", corpus=corpus, labeller=labeller)
    rows = tables.read(path, name="votes").to_pylist()
    return {row["record_id"]: row for row in rows if row["category"] == task.key}


def votes_for(spec: Tuned, *, corpus: str, task: Task, root: Path) -> dict[str, LabelSet] | None:
    """Return the votes of the labeller that a kNN model is blended with, by record; ``None`` without a labeller."""
    if not isinstance(spec, KnnModel) or spec.labeller is None:
        return None
    rows = votes(corpus, labeller=spec.labeller, task=task, root=root)
    return {r: frozenset(row["labels"]) for r, row in rows.items() if row["outcome"] == VOTE}
