"""Run the stage ``predict_finetuned``: predict dev and test with a fine-tuned model, and record time and tokens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.models import EncoderModel, SftModel
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.core.progress import reporter
from pipelines.core.taxonomy import load as scheme_of
from pipelines.datasets import posts
from pipelines.datasets.example import TEST, TRAIN, VALIDATION, Example, LabelSet
from pipelines.datasets.posts import Posts
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors import finetuned
from pipelines.train.predictors.prediction import Prediction, Predictor

PREDICTIONS, SPENT = "predictions.parquet", "spent.json"
Votes = Mapping[str, LabelSet] | None

MICROSECONDS = 6  # digits of a time


@dataclass(frozen=True)
class Spent:
    """What predictions cost: US dollars, tokens, and ``seconds`` of wall time (``None`` if not measured)."""

    records: int
    seconds: float | None
    input_tokens: int
    output_tokens: int
    cost: float

    @classmethod
    def of(cls, predictions: Sequence[Prediction], *, cost: float = 0.0, seconds: float | None = None) -> Spent:
        """Return the cost of predictions and their tokens; those made on this machine cost no US dollars."""
        read, written = sum(p.input_tokens for p in predictions), sum(p.output_tokens for p in predictions)
        return cls(len(predictions), None if seconds is None else round(seconds, MICROSECONDS), read, written, cost)


def run(
    corpus: str, *, subset: str, model: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Predict dev and test; write ``snapshot/<corpus>/predictions/finetuned/<subset>/<model>/`` and metrics.

    ``predictions.parquet`` has a row for each record of test with gold or of dev, except the prompt's examples;
    ``spent.json`` has the cost, without loading the model. Predictions do not depend on one another.

    Returns:
        ``kind``, ``records`` and ``outcomes`` by split, ``without`` and ``taken_down`` (see ``datasets.posts.load``),
        ``taken_down_since`` (records that the model was trained on or selected by, and that were taken down since),
        ``data_commit`` of the training, and ``spent`` as in ``spent.json``.
    """
    folder = finetuned.folder_of(corpus, subset=subset, model=model, root=root)
    place = root / "snapshot" / corpus / "predictions" / "finetuned" / subset / model
    metrics = predict_with(folder, corpus=corpus, params=params, settings=settings, vault=vault, root=root, place=place)
    return write_metrics(metrics, root / "metrics" / corpus / f"predict_finetuned-{subset}-{model}.json")


def predict_with(
    folder: Path, *, corpus: str, params: Params, settings: Settings, vault: Vault, root: Path, place: Path
) -> dict[str, Any]:
    """Predict dev and test (see :func:`run`) with the model in ``folder``; write to ``place``, return the metrics."""
    card = finetuned.read(folder)
    task = finetuned.task_asked(card, folder=folder, root=root)
    material = posts.load(corpus, task=task, subset=None, ensemble=None, params=params, vault=vault, root=root)
    seen = finetuned.lineage(folder)
    refuse_seen(material, seen=seen, model=card.name)
    said = finetuned.votes_for(card.spec, corpus=corpus, task=task, root=root)
    predictor = open_model(folder, params=params, settings=settings, vault=vault, said=said, root=root)
    answers, spent = ask(predictor, material.asked, name=card.name)
    return {
        "kind": card.kind,
        **write(place, answers, material=material, task=task.key, model=card.name, seed=card.seed, spent=spent),
        "taken_down_since": len(vault.tombstoned(seen)),
        "data_commit": card.data_commit,
    }


def refuse_seen(material: Posts, *, seen: Mapping[str, str], model: str) -> None:
    """Raise an error if dev or test has records that the model was trained on, or test ones that it was selected by.

    Args:
        seen: record id -> its split when the model was trained.
    """
    items = sum(
        seen.get(example.item[0]) == TRAIN or (example.split == TEST and example.item[0] in seen)
        for example in material.asked
    )
    if items:
        raise DataError("SeenInTraining", model=model, items=items)


def open_model(
    folder: Path, *, params: Params, settings: Settings, vault: Vault, said: Votes = None, root: Path = Path()
) -> Predictor:
    """Load a fine-tuned model for prediction.

    Args:
        folder: the path from :func:`pipelines.train.predictors.finetuned.folder_of`, or a copy of that folder.
        said: record id -> vote of the labeller that a kNN model is blended with.

    Raises:
        NoModel: the folder holds no model.
        ModelOutdated: the model was tuned for other labels.
        SealBroken: a neighbour was altered, or belongs to another vault.
    """
    card = finetuned.read(folder)
    task = finetuned.task_asked(card, folder=folder, root=root)
    spec = card.spec
    if isinstance(spec, SftModel):
        from pipelines.train.predictors.generate import Generator

        room, batch = params.finetune.max_new_tokens, params.predict_finetuned.batch
        sizes: dict[str, Any] = {"max_length": spec.max_length, "max_new_tokens": room, "batch": batch}
        scheme, checkpoints = scheme_of(card.scheme, root=root), settings.home / "train"
        return Generator(folder, task=task, scheme=scheme, seed=card.seed, folder=checkpoints, **sizes)
    if isinstance(spec, EncoderModel):
        from pipelines.train.predictors.encoder_predictor import EncoderPredictor

        return EncoderPredictor(folder, task=task)
    from pipelines.train.predictors.knn import KnnPredictor

    return KnnPredictor(folder, task=task, vault=vault, said=said)


def ask(predictor: Predictor, examples: Sequence[Example], *, name: str) -> tuple[list[Prediction], Spent]:
    """Return a model's predictions for all examples, in their order, and what they cost on this machine."""
    began = time.monotonic()
    texts, ids = [example.text for example in examples], [example.item[0] for example in examples]
    answers = predictor.predict(texts, record_ids=ids, progress=reporter(name, total=len(examples)))
    return answers, Spent.of(answers, seconds=time.monotonic() - began)


def write(
    folder: Path, answers: Sequence[Prediction | None], *, material: Posts, spent: Spent | None, **about: Any
) -> dict[str, Any]:
    """Write the predictions of ``material.asked`` and their cost to ``folder``; a record without an answer has no row.

    ``about`` are the ``task`` and the ``model`` of the rows, and the ``seed``.

    Returns:
        Counts of the records by split and outcome (one without a prediction counts as ``missing``), and ``spent``.
    """
    names = {VALIDATION: material.validation_name, TEST: TEST}
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names.values()}
    rows = []
    for example, said in zip(material.asked, answers, strict=True):
        split = material.split_of(example)
        outcomes[split][said.outcome if said else "missing"] += 1
        if said is not None:
            rows.append(said.row(example.item, split=split, **about))
    table = pa.Table.from_pylist(rows, schema=tables.SCHEMAS["predictions"])
    tables.write(table, folder / PREDICTIONS, name="predictions")
    # of an earlier attempt
    (folder / SPENT).unlink(missing_ok=True)
    return {
        "records": {name: sum(counts.values()) for name, counts in outcomes.items()},
        "outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        "without": {name: material.without[split] for split, name in names.items()},
        "taken_down": {name: material.taken_down[split] for split, name in names.items()},
        "spent": None if spent is None else write_metrics(asdict(spent), folder / SPENT),
    }
