"""Write, read and open the folder of a tuned model: weights, card and lineage.

``model.json`` is written last, so a folder that has one is complete. ``records.parquet`` has the rows of the table
``splits`` that the model was trained on or selected by: ids, by which a deletion finds all models that it affects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import pyarrow as pa
from pydantic import Field, ValidationError

from pipelines.config.base import Section
from pipelines.config.models import EncoderModel, KnnModel, SftModel
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.example import LabelSet
from pipelines.datasets.posts import Posts
from pipelines.errors import ConfigError, DataError
from pipelines.storage import tables
from pipelines.taxonomy import load as scheme_of
from pipelines.taxonomy.task import Task, task_of
from pipelines.vault.vault import Vault

CARD, LINEAGE = "model.json", "records.parquet"
VOTE, MALFORMED = "vote", "malformed"

Tuned = Annotated[SftModel | EncoderModel | KnnModel, Field(discriminator="kind")]


class NoModel(ConfigError):
    """A command needs a tuned model that is missing from its folder."""

    message = "There is no tuned model in {folder}: {detail}."
    remedy = "Run `dvc pull --allow-missing`, or run the stage finetune of this subset and model."


class ModelOutdated(DataError):
    """A model was tuned for other labels than the scheme has now."""

    message = (
        "The model in {folder} was fine-tuned for other labels of '{task}' than the scheme has now: it knows {found}, "
        "the scheme has {expected}."
    )
    remedy = "Fine-tune the model again: `dvc repro finetune`."


@dataclass(frozen=True)
class Said:
    """A model's prediction for one post, a row of the table ``predictions``.

    ``scores`` are probabilities in the task's order of labels, empty if the model gives none. ``labels`` are set only
    if the outcome is a vote.
    """

    outcome: str
    labels: LabelSet
    scores: tuple[float, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


class Predictor(Protocol):
    """A model that labels posts in this process."""

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Said]:
        """Return a prediction for each text, in their order.

        Args:
            texts: texts of posts, as in ``Post.text``.
            record_ids: the texts' records, for models that use other data of a record (a labeller's vote).
            progress: called with the number of texts that are done.
        """


class Trained(Section):
    """Training records of a model: their number, and the SHA-256 of their sorted ids, one per line."""

    records: int
    digest: str


class Card(Section):
    """Content of ``model.json``: enough to open the model, and to trace its origin."""

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
    train: Trained
    spec: Tuned

    @property
    def name(self) -> str:
        """Return the model's name among predictions."""
        return f"{self.model}-{self.subset}"


def folder_of(corpus: str, *, subset: str, model: str, root: Path) -> Path:
    """Return the folder into which the stage ``finetune`` writes a model."""
    return root / "snapshot" / corpus / "finetuned" / subset / model


def trained_on(record_ids: Collection[str]) -> Trained:
    """Count records and digest their ids; the order does not matter."""
    lines = "".join(f"{record_id}\n" for record_id in sorted(set(record_ids)))
    return Trained(records=len(set(record_ids)), digest=hashlib.sha256(lines.encode()).hexdigest())


def write(folder: Path, *, card: Card, material: Posts) -> None:
    """Write the lineage, and then the card, which marks the folder as complete."""
    rows = [
        {"record_id": item[0], "image": item[1], "group": material.placed[item][1], "split": material.placed[item][0]}
        for item in (e.item for e in (*material.train, *material.validation))
    ]
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["splits"]), folder / LINEAGE, name="splits")
    half = folder / f".{CARD}"
    half.write_text(card.model_dump_json(indent=2) + "\n")
    half.replace(folder / CARD)


def read(folder: Path) -> Card:
    """Read the card of a tuned model.

    Raises:
        NoModel: the card is missing or malformed.
    """
    try:
        return Card.model_validate_json((folder / CARD).read_bytes())
    except OSError:
        raise NoModel(folder=folder.name, detail=f"{CARD} is missing") from None
    except ValidationError as error:
        raise NoModel(folder=folder.name, detail=f"{error.error_count()} entries of {CARD} are unknown") from None


def lineage(folder: Path) -> dict[str, str]:
    """Return the split, by record id, of every record that the model was trained on or selected by.

    Raises:
        NoModel: the lineage is missing.
    """
    if not (folder / LINEAGE).is_file():
        raise NoModel(folder=folder.name, detail=f"{LINEAGE} is missing")
    rows = tables.read(folder / LINEAGE, name="splits", columns=["record_id", "split"]).to_pylist()
    return {row["record_id"]: row["split"] for row in rows}


def task_asked(card: Card, *, folder: Path) -> Task:
    """Return the task that a model was tuned for.

    Raises:
        ModelOutdated: the scheme's labels or their order have changed.
    """
    task = task_of(scheme_of(card.scheme), card.task)
    if task.labels != card.labels:
        found, expected = len(card.labels), len(task.labels)
        raise ModelOutdated(folder=folder.name, task=card.task, found=found, expected=expected)
    return task


def open_model(
    folder: Path,
    *,
    params: Params,
    settings: Settings,
    vault: Vault,
    said: Mapping[str, LabelSet] | None = None,
) -> Predictor:
    """Return a tuned model, ready to predict.

    Args:
        folder: the path from :func:`folder_of`, or a copy of that folder.
        params: provides ``finetune.max_new_tokens`` and ``predict.batch``.
        settings: provides a place for temporary tiny bases.
        vault: its keys open the neighbours of a kNN model.
        said: the votes, by record id, of the labeller that a kNN model is blended with.

    Raises:
        NoModel: the folder holds no model.
        ModelOutdated: the model was tuned for other labels.
        SealBroken: a neighbour was altered, or belongs to another vault.
    """
    card = read(folder)
    task = task_asked(card, folder=folder)
    spec = card.spec
    if isinstance(spec, SftModel):
        from pipelines.train.sft.generate import Generator

        generator = Generator.open(
            folder,
            task=task,
            scheme=scheme_of(card.scheme),
            max_length=spec.max_length,
            max_new_tokens=params.finetune.max_new_tokens,
            batch=params.predict_finetuned.batch,
            seed=card.seed,
            folder=settings.home / "train",
        )
        return Causal(generator)
    if isinstance(spec, EncoderModel):
        from pipelines.train.classifiers.encoder_predictor import EncoderPredictor

        return Classifier(EncoderPredictor.open(folder, task=task))
    from pipelines.train.knn.knn import KnnPredictor

    return Classifier(KnnPredictor.open(folder, task=task, vault=vault, said=said), by_record=True)


class Causal:
    """A causal model as a predictor: labels without probabilities."""

    def __init__(self, generator: Any) -> None:
        """Take a :class:`pipelines.train.sft.generate.Generator`."""
        self._generator = generator

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Said]:
        """See :meth:`Predictor.predict`."""
        return [
            Said(
                outcome=MALFORMED if one.labels is None else VOTE,
                labels=one.labels or frozenset(),
                input_tokens=one.input_tokens,
                output_tokens=one.output_tokens,
            )
            for one in self._generator.answer(texts, progress=progress)
        ]


class Classifier:
    """An encoder or a kNN model as a predictor: calibrated probabilities, and the label sets decided from them."""

    def __init__(self, model: Any, *, by_record: bool = False) -> None:
        """Take an ``EncoderPredictor``, or with ``by_record`` a ``KnnPredictor``, which may use a record's votes."""
        self._model, self._by_record = model, by_record

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Said]:
        """See :meth:`Predictor.predict`."""
        whose = {"record_ids": record_ids} if self._by_record else {}
        scores = self._model.probabilities(texts, progress=progress, **whose)
        decided = self._model.labels(scores)
        tokens = self._model.tokens(texts)
        return [
            Said(VOTE, labels, tuple(row), input_tokens=read)
            for labels, row, read in zip(decided, scores.tolist(), tokens, strict=True)
        ]
