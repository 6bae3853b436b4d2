"""Fill the model package of a fine-tuned post model from the output folder of the stage ``finetune``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from crisis_corpus.integrity import sha256
from pipelines.config.models import Chosen, EncoderModel, KnnModel
from pipelines.config.params import Params
from pipelines.datasets.posts import GOLD, split_digest
from pipelines.packaging.model_described import Described, TrainingSet
from pipelines.packaging.refusals import NothingToPack, NotPackable, public, recorded, refuse_deleted, refuse_exchanged
from pipelines.taxonomy import load as scheme_of
from pipelines.train.predictors import finetuned
from pipelines.train.predictors.inference import AT_ONCE
from pipelines.vault.vault import Vault


def filled(
    name: str,
    *,
    corpus: str,
    category: str,
    chosen: Chosen,
    params: Params,
    vault: Vault,
    root: Path,
    to: Path,
) -> tuple[Described, Collection[str]]:
    """Copy a post model's weights, tokenizer, alerts and calibration into ``to``.

    Returns the model's description and the ids of the records on which it was trained or selected.
    """
    if chosen.subset is None:
        raise NotPackable(
            name=name, model=chosen.model, detail="registry in params.yaml names no subset of training labels for it"
        )
    folder = finetuned.folder_of(corpus, subset=chosen.subset, model=chosen.model, root=root)
    told = finetuned.read(folder)
    if isinstance(told.spec, KnnModel):
        detail = "its neighbours are posts, sealed under keys that consumers do not have"
        raise NotPackable(name=name, model=chosen.model, detail=detail)
    if told.task != category:
        raise NotPackable(name=name, model=chosen.model, detail=f"it predicts '{told.task}', not '{category}'")
    task = finetuned.task_asked(told, folder=folder, root=root)
    records = finetuned.lineage(folder)
    where = f"metrics/{corpus}/finetune-{told.subset}-{told.model}.json"
    if not (root / where).is_file():
        raise NothingToPack(name=name, detail=f"{where} is missing")
    metrics = json.loads((root / where).read_bytes())
    refuse_deleted(records, metrics=metrics, name=name, model=told.name, where=where, vault=vault)
    weights = recorded(metrics, name=name, where=where)
    # the digests of the copies: the originals could be exchanged between the check and the copy
    copied = {part: _copied(path, to / part) for part, path in finetuned.parts(folder).items()}
    refuse_exchanged(copied, weights=weights, name=name, where=where)
    described = Described(
        name=name,
        corpus=corpus,
        kind=told.kind,
        task=told.task,
        model=told.model,
        subset=told.subset,
        base=public(told.base),
        seed=told.seed,
        labels=told.labels,
        definitions={label.name: label.definition.strip() for label in task.category.labels if label.task},
        scheme=told.scheme,
        scheme_digest=scheme_of(told.scheme, root=root).digest,
        data_commit=told.data_commit,
        split_digest=split_digest(corpus, root=root),
        votes_digest=None if told.subset == GOLD else _silver(name, corpus=corpus, params=params, root=root),
        train=TrainingSet(**told.train.model_dump()),
        weights=weights,
        spec=told.spec.model_copy(update={"base": public(told.base)}),
        scrub=params.collect.scrub,
        # for an encoder the batch of the stage ``predict_finetuned``
        batch=AT_ONCE * told.spec.batch if isinstance(told.spec, EncoderModel) else params.predict_finetuned.batch,
        max_new_tokens=None if isinstance(told.spec, EncoderModel) else params.finetune.max_new_tokens,
    )
    return described, records


def _copied(path: Path, to: Path) -> str:
    """Copy a file and return the SHA-256 of the copy."""
    to.parent.mkdir(parents=True, exist_ok=True)
    return sha256(Path(shutil.copy(path, to)))


def _silver(name: str, *, corpus: str, params: Params, root: Path) -> str:
    """Return the SHA-256 of the silver labels that the model was trained on."""
    path = root / "snapshot" / corpus / "silver" / params.finetune.ensemble / "silver.parquet"
    if not path.is_file():
        detail = f"the silver labels of ensemble '{params.finetune.ensemble}', which it was trained on, are missing"
        raise NothingToPack(name=name, detail=detail)
    return sha256(path)
