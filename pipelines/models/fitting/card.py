"""Write and read the folder of a fit: the card, the records that were learnt from, and weights or predictions.

The card is ``model.json``; it is written last, so a folder that has one is complete. The lineage is
``records.parquet``, the list of records that the model was trained on or selected by
(:mod:`pipelines.models.fitting.training_records`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pydantic import SerializeAsAny, ValidationError, ValidationInfo, field_validator

from pipelines.core.config.base import Section
from pipelines.core.config.models import Entry
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.parts import Allowed
from pipelines.core.rows import shown
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.models.fitting import training_records
from pipelines.models.fitting.training_records import TrainingRecords
from pipelines.models.kind import KINDS, Kind
from pipelines.store.tables import CARD, FIT


class Card(Section):
    """The content of ``model.json``: what is needed to load the model and to trace its origin.

    Args:
        ensemble: whose silver labels it learnt; ``None`` for gold.
        base: its base models' names.
        selected: train and validation.
        kept: whether the folder has the weights; else it has the predictions.
    """

    corpus: str
    model: str
    subset: str
    ensemble: str | None
    task: str
    scheme: str
    labels: tuple[str, ...]
    base: str
    seed: int
    data_commit: str
    train: TrainingRecords
    selected: TrainingRecords
    kept: bool
    spec: SerializeAsAny[Kind]

    @field_validator("spec", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        allowed = (info.context or {}).get("allowed", {})
        return value if isinstance(value, Kind) else KINDS.of(Entry.model_validate(value), allowed, where="spec")

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def shown(self) -> str:
        """The model's name in tables of predictions: with the subset, unless people gave the labels."""
        return shown(self.model, self.subset)


def folder_of(corpus: str, name: str, *, root: Path) -> Path:
    return root / "snapshot" / corpus / "fits" / name


def parts(folder: Path) -> dict[str, Path]:
    """Return a model's files by relative path: weights, tokenizer, thresholds; neither card nor lists of records."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path for name, path in files.items() if name not in FIT and name[0] != "."}


def copy_parts(folder: Path, *, to: Path) -> None:
    for name, path in parts(folder).items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to / name)


def write(folder: Path, *, card: Card) -> None:
    """Write a card, whose presence marks the folder as complete."""
    half = folder / f".{CARD}"
    half.write_text(card.model_dump_json(indent=2) + "\n")
    half.replace(folder / CARD)


def read(folder: Path, *, allowed: Allowed | None = None) -> Card:
    """Read the card of a fit; ``allowed`` are the distributions that may add kinds."""
    try:
        return Card.model_validate_json((folder / CARD).read_bytes(), context={"allowed": allowed or {}})
    except OSError:
        raise ConfigError("NoModel", folder=folder.name, detail=f"{CARD} is missing") from None
    except ConfigError:
        raise ConfigError("NoModel", folder=folder.name, detail=f"{CARD} has an unknown kind of model") from None
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
    """Return the task for which a model was fitted; ``root`` is a clone of the corpus."""
    task = task_of(scheme_of(card.scheme, root=root), card.task)
    if task.labels != card.labels:
        trained, expected = len(card.labels), len(task.labels)
        raise DataError("ModelOutdated", folder=folder.name, task=card.task, found=trained, expected=expected)
    return task
