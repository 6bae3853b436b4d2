"""Fill the model package of a meme model with the weights of its MLflow run and the files of its base model."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crisis_corpus.integrity import sha256
from crisis_corpus.versions import UnknownVersion, missing
from pipelines.config.models import Chosen, FusionModel, ImageModel, TextModel
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.example import TRAIN, VALIDATION
from pipelines.datasets.posts import split_digest
from pipelines.packaging.model_described import REST, Described, TrainingSet
from pipelines.packaging.refusals import (
    NothingToPack,
    NotPackable,
    public,
    recorded,
    refuse_deleted,
    refuse_exchanged,
)
from pipelines.registry.versions import Registry
from pipelines.storage import tables
from pipelines.taxonomy import load as scheme_of
from pipelines.taxonomy.task import Task, task_of
from pipelines.train.predictors import training_records
from pipelines.train.predictors.inference import AT_ONCE
from pipelines.vault.vault import Vault

HEAD = "head."
SCORE = "validation_macro_f1"
# Tolerance for equal metrics: about the precision of a float.
SAME = 1e-12
Spec = TextModel | ImageModel | FusionModel


def filled(
    name: str,
    *,
    corpus: str,
    category: str,
    chosen: Chosen,
    params: Params,
    settings: Settings,
    vault: Vault,
    root: Path,
    to: Path,
) -> tuple[Described, Collection[str]]:
    """Write a meme model's weights, configuration, tokenizer and image processor into ``to``.

    Returns the model's description and the ids of the records on which it was trained or selected.
    """
    spec = _spec(name, model=chosen.model, params=params)
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    task = task_of(scheme, category)
    of_model: dict[str, Any] = {"corpus": corpus, "task": task, "model": chosen.model}
    seed, metrics = _best(name, params=params, root=root, **of_model)
    of_run = of_model | {"seed": seed, "metrics": metrics}
    records = _records(name, vault=vault, root=root, **of_run)
    with TemporaryDirectory(dir=to.parent) as scratch:
        where = f"metrics/{corpus}/train-{task.key}-{chosen.model}-{seed}.json"
        weights = recorded(metrics, name=name, where=where)
        data_commit = _run(name, run_id=weights.run, settings=settings, **of_run)
        file = _weights(name, run_id=str(weights.run), settings=settings, to=Path(scratch) / "weights")
        refuse_exchanged({file.name: sha256(file)}, weights=weights, name=name, where=where)
        write(spec, weights=file, task=task, seed=seed, max_tokens=params.train.max_tokens, to=to)
    described = Described(
        name=name,
        corpus=corpus,
        kind=spec.kind,
        task=task.key,
        model=chosen.model,
        subset=None,
        base=public(spec.base),
        seed=seed,
        labels=task.labels,
        definitions={label.name: label.definition.strip() for label in task.category.labels if label.task},
        scheme=scheme.name,
        scheme_digest=scheme.digest,
        data_commit=data_commit,
        split_digest=split_digest(corpus, root=root),
        votes_digest=None,
        train=TrainingSet(**training_records.trained_on(records[TRAIN]).model_dump()),
        weights=weights,
        spec=spec.model_copy(update={"base": public(spec.base)}),
        scrub=params.collect.scrub,
        batch=AT_ONCE * params.train.batch,
        max_tokens=params.train.max_tokens,
        thresholds=tuple(metrics["thresholds"][label] for label in task.labels),
        decode=params.images.decode,
        # a consumer's images must not be sent to Google just because the corpus's were
        ocr=None if params.images.ocr.engine == "google_vision" else params.images.ocr,
    )
    return described, records[TRAIN] | records[VALIDATION]


def write(spec: Spec, *, weights: Path, task: Task, seed: int, max_tokens: int, to: Path) -> None:
    """Write a trained meme model to ``to``: the encoder in the format of ``transformers``, the head in a separate file."""
    from safetensors.torch import load_model, save_file
    from transformers import AutoImageProcessor, AutoTokenizer

    from pipelines.models import build
    from pipelines.models.pretrained.backbones import had, opened

    built = build(spec, task=task, seed=seed, folder=to.parent, max_tokens=max_tokens)
    load_model(built.module, str(weights))
    with opened(spec.base, revision=spec.revision, seed=seed, folder=to.parent) as place:
        _whole(built.module, place=place, base=spec.base).save_pretrained(to)
        if not isinstance(spec, ImageModel):
            had(AutoTokenizer, place, base=spec.base).save_pretrained(to)
        if not isinstance(spec, TextModel):
            had(AutoImageProcessor, place, base=spec.base, backend="pil").save_pretrained(to)
    head = {key: value.contiguous() for key, value in built.module.state_dict().items() if key.startswith(HEAD)}
    if head:
        save_file(head, to / REST)


def _whole(module: Any, *, place: str, base: str) -> Any:
    """Return the library's model inside a module."""
    from transformers import Blip2ForImageTextRetrieval

    from pipelines.models.fusion import QFormer
    from pipelines.models.pretrained.backbones import weights

    if not isinstance(module, QFormer):
        return module.model
    whole = weights(Blip2ForImageTextRetrieval, place, base=base)
    whole.vision_model, whole.qformer, whole.embeddings = module.vision, module.qformer, module.embeddings
    whole.query_tokens = module.queries
    return whole


def _spec(name: str, *, model: str, params: Params) -> Spec:
    spec = params.models.get(model)
    if isinstance(spec, TextModel | ImageModel | FusionModel):
        return spec
    reasons = {
        "infused": "it needs a labeller's rationales for every meme, which consumers do not have",
        "m3h": "it needs a labeller's rationales and memes of train, which consumers do not have",
        "yadav": "it has two base models, and a package can hold only one",
    }
    kind = spec.kind if spec else "unknown"
    detail = reasons.get(kind, f"its kind is {kind}; only text, image and fusion can be packaged")
    raise NotPackable(name=name, model=model, detail=detail)


def _best(
    name: str, *, corpus: str, task: Task, model: str, params: Params, root: Path
) -> tuple[int, Mapping[str, Any]]:
    """Return the seed with the best validation macro-F1 (the smallest on ties), and the metrics of its run."""
    found = {}
    for seed in params.train.seeds:
        path = root / "metrics" / corpus / f"train-{task.key}-{model}-{seed}.json"
        if path.is_file():
            found[seed] = json.loads(path.read_bytes())
    known = {seed: metrics for seed, metrics in found.items() if SCORE in metrics}
    if not known:
        detail = f"the stage train@{corpus} has no metrics of '{model}' for '{task.key}'"
        raise NothingToPack(name=name, detail=detail)
    best = min(known, key=lambda seed: (-known[seed][SCORE], seed))
    return best, known[best]


def _records(
    name: str,
    *,
    corpus: str,
    task: Task,
    model: str,
    seed: int,
    metrics: Mapping[str, Any],
    vault: Vault,
    root: Path,
) -> dict[str, set[str]]:
    """Return by split the records that the run learnt from or was selected on, if its gold labels are unchanged."""
    folder = root / "snapshot" / corpus
    predictions = folder / "predictions" / "train" / task.key / model / str(seed) / "predictions.parquet"
    paths = folder / "split" / "splits.parquet", folder / "gold" / "gold.parquet", predictions
    learnt = training_records.read(predictions.parent) or {}
    if absent := [path.name for path in (*paths, predictions.with_name(training_records.FILE)) if not path.is_file()]:
        raise NothingToPack(name=name, detail=f"{', '.join(absent)} of '{model}' is missing")
    splits, gold, said = (
        tables.read(path, name=kind).to_pylist()
        for path, kind in zip(paths, ("splits", "gold", "predictions"), strict=True)
    )
    where = f"metrics/{corpus}/train-{task.key}-{model}-{seed}.json"
    refuse_deleted(learnt, metrics=metrics, name=name, model=model, where=where, vault=vault)
    placed = {(row["record_id"], row["image"]): row["split"] for row in splits}
    answered = {(row["record_id"], row["image"]) for row in gold if row["category"] == task.key}
    gone = vault.tombstoned({record_id for record_id, _ in placed})
    validation = {i for i in answered & placed.keys() if i[0] not in gone and placed[i] == VALIDATION}
    judged = {(row["record_id"], row["image"]) for row in said if row["split"] == VALIDATION}
    if judged != validation:
        raise NotPackable(
            name=name, model=model, detail="split or gold labels have changed since the training; train it again"
        )
    return {split: {r for r, own in learnt.items() if own == split} for split in (TRAIN, VALIDATION)}


def _run(
    name: str,
    *,
    run_id: str | None,
    corpus: str,
    task: Task,
    model: str,
    seed: int,
    metrics: Mapping[str, Any],
    settings: Settings,
) -> str:
    """Return the commit of the run that the metrics name, after checking that it is finished and has their scores.

    A stage from DVC's run cache has the metrics of a run on an earlier commit, so the run's commit is not HEAD.
    """
    registry = Registry.open(settings)
    wanted = {int(epoch["epoch"]): epoch[SCORE] for epoch in metrics["history"]}
    detail = f"MLflow has no finished run of '{model}', seed {seed}, with the metrics in metrics/{corpus}"
    with suppress(UnknownVersion), missing(name=name, version=None):
        run = registry.client.get_run(run_id or "")
        history = {m.step: m.value for m in registry.client.get_metric_history(run.info.run_id, SCORE)}
        same = history.keys() == wanted.keys() and all(abs(history[step] - wanted[step]) < SAME for step in wanted)
        if same and run.info.status == "FINISHED":
            return str(run.data.tags.get("data_commit", "none"))
    raise NothingToPack(name=name, detail=detail)


def _weights(name: str, *, run_id: str, settings: Settings, to: Path) -> Path:
    """Download the weights of a run."""
    client = Registry.open(settings).client
    paths = [file.path for file in client.list_artifacts(run_id, "model") if file.path.endswith(".safetensors")]
    if len(paths) != 1:
        detail = f"run {run_id} has {len(paths)} files of weights, expected one"
        raise NothingToPack(name=name, detail=detail)
    to.mkdir()
    return Path(client.download_artifacts(run_id, paths[0], str(to)))
