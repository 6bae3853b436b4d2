"""Package a trained model as a self-contained folder, the model package (called ``pack`` in the code).

A model package holds weights (safetensors), the base model's configuration and tokenizer, the label scheme, thresholds
and calibration, ``model.json`` (:class:`pipelines.packaging.model_described.Described`), ``records.parquet`` (the ids
of the records that the model was trained or selected on), the card, and ``files.json``, which has the SHA-256 of all
other files and is written last. It contains no neighbours, texts or images of the corpus.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import TrainedWeights, listing, sha256
from crisis_corpus.versions import UnknownVersion, missing
from pipelines.collect.read.engine import packable
from pipelines.core.config.models import Chosen, EncoderModel, FusionModel, ImageModel, KnnModel, TextModel
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.loader import path_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import TRAIN, VALIDATION
from pipelines.datasets.posts import GOLD, split_digest
from pipelines.packaging import card
from pipelines.packaging.model_described import REST, SCHEME, Described
from pipelines.packaging.refusals import public, recorded, refuse_degenerate, refuse_deleted, refuse_exchanged
from pipelines.registry.versions import Registry, subject
from pipelines.store import tables
from pipelines.store.metrics_file import read_metrics
from pipelines.store.tables import items_of
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors import finetuned, training_records
from pipelines.train.predictors.inference import AT_ONCE

HEAD = "head."
SCORE = "validation_macro_f1"
Spec = TextModel | ImageModel | FusionModel


@dataclass(frozen=True)
class Source:
    """What a model is packaged from: its registered name, the choice in ``params.yaml``, and a clone at ``root``."""

    name: str
    chosen: Chosen
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @property
    def subject(self) -> tuple[str, str]:
        """The corpus and the category of the scheme that the registered name stands for."""
        return subject(self.name, params=self.params)

    def missing(self, detail: str) -> ConfigError:
        return ConfigError("NothingToPack", name=self.name, detail=detail)

    def unfit(self, detail: str) -> ConfigError:
        return ConfigError("NotPackable", name=self.name, model=self.chosen.model, detail=detail)

    def weights(
        self, metrics: Mapping[str, Any], *, records: Collection[str], model: str, where: str
    ) -> TrainedWeights:
        """Return the run and digests that a training recorded in ``metrics``; refuse a model of deleted records."""
        refuse_deleted(records, metrics=metrics, name=self.name, model=model, where=where, vault=self.vault)
        return recorded(metrics, name=self.name, where=where)

    def described(self, *, scheme: Scheme, task: Task, spec: Any, base: str, **values: Any) -> Described:
        """Return the content of ``model.json``: what all kinds share, and the ``values`` of this kind."""
        corpus, _ = self.subject
        return Described(
            name=self.name,
            corpus=corpus,
            kind=spec.kind,
            task=task.key,
            model=self.chosen.model,
            base=public(base),
            labels=task.labels,
            definitions={label.name: label.definition.strip() for label in task.category.labels if label.task},
            scheme=scheme.name,
            scheme_digest=scheme.digest,
            split_digest=split_digest(corpus, root=self.root),
            spec=spec.model_copy(update={"base": public(base)}),
            scrub=self.params.collect.scrub,
            **values,
        )


def pack(name: str, *, chosen: Chosen, params: Params, settings: Settings, vault: Vault, root: Path, to: Path) -> Path:
    """Write the package of a trained model to the folder ``to``, which must be new or empty; return ``to``.

    Raises:
        UnknownModel: models cannot be registered under this name.
        NotPackable: the model is of an unsupported kind, or of another task.
        NothingToPack: files, metrics or weights are missing.
        LearntFromDeleted: a record that the model was trained or selected on was taken down.
        WeightsChanged: the weights are not those whose digest the training stage committed.
        NoModel, ModelOutdated: see ``train.predictors.finetuned``.
    """
    source = Source(name, chosen, params, settings, vault, root)
    to.mkdir(parents=True, exist_ok=True)
    of_posts = params.corpora[source.subject[0]].content == "texts"
    described, records = (_posts if of_posts else _memes)(source, to=to)
    refuse_degenerate(to, name=name)
    described.write(to)
    shutil.copy(path_of(described.scheme, root=root), to / SCHEME)
    pq.write_table(pa.table({"record_id": pa.array(sorted(records), pa.string())}), to / integrity.RECORDS)
    card.write(to, described=described, measured=measured(described, root=root))
    (to / integrity.FILES).write_text(json.dumps(listing(to), indent=1, sort_keys=True) + "\n")
    return to


def measured(described: Described, *, root: Path) -> dict[str, object]:
    """Return the part of ``metrics/<corpus>/evaluate.json`` about the described model's task."""
    path, stage = root / "metrics" / described.corpus / "evaluate.json", f"the stage evaluate@{described.corpus}"
    if not path.is_file():
        raise ConfigError("NothingToPack", name=described.name, detail=f"{stage} has not run")
    metrics = json.loads(path.read_bytes())
    task = metrics["tasks"].get(described.task, {})
    if described.measured_as not in task.get("models", {}):
        detail = f"{stage} has no metrics of '{described.measured_as}'"
        raise ConfigError("NothingToPack", name=described.name, detail=detail)
    return {**task, "sampling": metrics["sampling"], "split": metrics["split"]}


def _posts(source: Source, *, to: Path) -> tuple[Described, Collection[str]]:
    """Copy a post model into ``to``; return its description and the ids that it was trained or selected on."""
    chosen, params, root, (corpus, category) = source.chosen, source.params, source.root, source.subject
    if chosen.subset is None:
        raise source.unfit("registry in params.yaml names no subset of training labels for it")
    folder = finetuned.folder_of(corpus, subset=chosen.subset, model=chosen.model, root=root)
    model = finetuned.read(folder)
    if isinstance(model.spec, KnnModel):
        raise source.unfit("its neighbours are posts, sealed under keys that consumers do not have")
    if model.task != category:
        raise source.unfit(f"it predicts '{model.task}', not '{category}'")
    task = finetuned.task_asked(model, folder=folder, root=root)
    records = finetuned.lineage(folder)
    where = f"metrics/{corpus}/finetune-{model.subset}-{model.model}.json"
    if not (root / where).is_file():
        raise source.missing(f"{where} is missing")
    metrics = json.loads((root / where).read_bytes())
    weights = source.weights(metrics, records=records, model=model.name, where=where)
    # the digests of the copies: the originals could be exchanged between the check and the copy
    copied = {part: _copied(path, to / part) for part, path in finetuned.parts(folder).items()}
    refuse_exchanged(copied, weights=weights, name=source.name, where=where)
    encoder = isinstance(model.spec, EncoderModel)
    described = source.described(
        scheme=scheme_of(model.scheme, root=root),
        task=task,
        spec=model.spec,
        base=model.base,
        subset=model.subset,
        seed=model.seed,
        data_commit=model.data_commit,
        votes_digest=None if model.subset == GOLD else _silver(source),
        train=model.train.model_dump(),
        weights=weights,
        # for an encoder the batch of the stage ``predict_finetuned``
        batch=AT_ONCE * model.spec.batch if encoder else params.predict_finetuned.batch,
        max_new_tokens=None if encoder else params.finetune.max_new_tokens,
    )
    return described, records.keys()


def _copied(path: Path, to: Path) -> str:
    to.parent.mkdir(parents=True, exist_ok=True)
    return sha256(Path(shutil.copy(path, to)))


def _silver(source: Source) -> str:
    """Return the SHA-256 of the silver labels that the model was trained on."""
    ensemble = source.params.finetune.ensemble
    path = source.root / "snapshot" / source.subject[0] / "silver" / ensemble / "silver.parquet"
    if not path.is_file():
        raise source.missing(f"the silver labels of ensemble '{ensemble}', which it was trained on, are missing")
    return sha256(path)


def _memes(source: Source, *, to: Path) -> tuple[Described, Collection[str]]:
    """Write a meme model into ``to``; return its description and the ids that it was trained or selected on."""
    params, (corpus, category) = source.params, source.subject
    spec = _spec(source)
    scheme = scheme_of(params.corpora[corpus].scheme, root=source.root)
    task = task_of(scheme, category)
    seed, metrics = _best(source, task=task)
    where = f"metrics/{corpus}/train-{task.key}-{source.chosen.model}-{seed}.json"
    learnt, weights = _learnt(source, task=task, seed=seed, metrics=metrics, where=where)
    with TemporaryDirectory(dir=to.parent) as scratch:
        data_commit, file = _downloaded(source, weights=weights, to=Path(scratch))
        refuse_exchanged({file.name: sha256(file)}, weights=weights, name=source.name, where=where)
        write(spec, weights=file, task=task, seed=seed, max_tokens=params.train.max_tokens, to=to)
    train = training_records.trained_on([record_id for record_id, split in learnt.items() if split == TRAIN])
    described = source.described(
        scheme=scheme,
        task=task,
        spec=spec,
        base=spec.base,
        seed=seed,
        data_commit=data_commit,
        train=train.model_dump(),
        weights=weights,
        batch=AT_ONCE * params.train.batch,
        max_tokens=params.train.max_tokens,
        thresholds=tuple(metrics["thresholds"][label] for label in task.labels),
        decode=params.images.decode,
        # a consumer's images must not be sent to Google just because the corpus's were
        ocr=params.images.ocr if packable(params.images.ocr) else None,
    )
    return described, learnt.keys()


def write(spec: Spec, *, weights: Path, task: Task, seed: int, max_tokens: int, to: Path) -> None:
    """Write a trained meme model to ``to``: the encoder in the format of ``transformers``, its head beside it."""
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


def _spec(source: Source) -> Spec:
    spec = source.params.models.get(source.chosen.model)
    if isinstance(spec, TextModel | ImageModel | FusionModel):
        return spec
    reasons = {
        "infused": "it needs a labeller's rationales for every meme, which consumers do not have",
        "m3h": "it needs a labeller's rationales and memes of train, which consumers do not have",
        "yadav": "it has two base models, and a package can hold only one",
    }
    kind = spec.kind if spec else "unknown"
    raise source.unfit(reasons.get(kind, f"its kind is {kind}; only text, image and fusion can be packaged"))


def _best(source: Source, *, task: Task) -> tuple[int, Mapping[str, Any]]:
    """Return the seed with the best validation macro-F1 (the smallest on ties), and the metrics of its run."""
    corpus, model = source.subject[0], source.chosen.model
    folder, seeds = source.root / "metrics" / corpus, source.params.train.seeds
    runs = {seed: read_metrics(folder / f"train-{task.key}-{model}-{seed}.json") for seed in seeds}
    known = {seed: metrics for seed, metrics in runs.items() if SCORE in metrics}
    if not known:
        raise source.missing(f"the stage train@{corpus} has no metrics of '{model}' for '{task.key}'")
    best = min(known, key=lambda seed: (-known[seed][SCORE], seed))
    return best, known[best]


def _learnt(
    source: Source, *, task: Task, seed: int, metrics: Mapping[str, Any], where: str
) -> tuple[dict[str, str], TrainedWeights]:
    """Return the splits of a run's records and its weights, if the gold labels that selected it are unchanged."""
    folder, model = source.root / "snapshot" / source.subject[0], source.chosen.model
    predictions = folder / "predictions" / "train" / task.key / model / str(seed)
    folders = {"splits": folder / "split", "gold": folder / "gold", "predictions": predictions}
    paths = {kind: place / f"{kind}.parquet" for kind, place in folders.items()}
    if absent := [p.name for p in (*paths.values(), predictions / training_records.FILE) if not p.is_file()]:
        raise source.missing(f"{', '.join(absent)} of '{model}' is missing")
    learnt = training_records.read(predictions) or {}
    weights = source.weights(metrics, records=learnt, model=model, where=where)
    wanted = {"splits": ("split", VALIDATION), "gold": ("category", task.key), "predictions": ("split", VALIDATION)}
    placed, answered, judged = (
        set(items_of(tables.read(path, name=kind).filter(pc.field(wanted[kind][0]) == wanted[kind][1])))
        for kind, path in paths.items()
    )
    validation = placed & answered
    gone = source.vault.tombstoned({record_id for record_id, _ in validation})
    if judged != {item for item in validation if item[0] not in gone}:
        raise source.unfit("split or gold labels have changed since the training; train it again")
    return learnt, weights


def _downloaded(source: Source, *, weights: TrainedWeights, to: Path) -> tuple[str, Path]:
    """Return the commit of the run that the metrics name, after checking that it is finished, and its weights.

    A stage from DVC's run cache has the metrics of a run on an earlier commit, so the run's commit is not HEAD.
    """
    client, run_id = Registry.open(source.settings).client, weights.run or ""
    with suppress(UnknownVersion), missing(name=source.name, version=None):
        run = client.get_run(run_id)
        if run.info.status == "FINISHED":
            paths = [file.path for file in client.list_artifacts(run_id, "model") if file.path.endswith(".safetensors")]
            if len(paths) != 1:
                raise source.missing(f"run {run_id} has {len(paths)} files of weights, expected one")
            commit = str(run.data.tags.get("data_commit", "none"))
            return commit, Path(client.download_artifacts(run_id, paths[0], str(to)))
    raise source.missing(f"MLflow has no finished run '{run_id}' of '{source.chosen.model}'")
