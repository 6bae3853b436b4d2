"""Package a fitted model as a self-contained folder, the model package (called ``pack`` in the code).

A model package holds weights (safetensors), what else the model's kind needs (configuration, tokenizer, thresholds,
calibration), the label scheme, ``model.json`` (``described.py``), ``records.parquet`` (the ids of the records that the
model was trained or selected on), the card, and ``files.json``, which has the SHA-256 of all other files and is written
last. It contains no neighbours, texts or images of the corpus.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from crisis_corpus import integrity
from crisis_corpus.integrity import Learnt, TrainedWeights, different, listing, sha256
from pipelines.collect.read.engine import packable
from pipelines.core.config.models import Chosen, Registered
from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.rows import GOLD, Fit, resolve
from pipelines.core.taxonomy import Scheme, path_of
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import TRAIN
from pipelines.datasets.items import split_digest
from pipelines.models import kind
from pipelines.models.fitting import card as fits
from pipelines.models.fitting import training_records
from pipelines.models.fitting.card import Card
from pipelines.models.fitting.training_records import TrainingRecords, trained_on
from pipelines.models.kind import Serving
from pipelines.registry.candidate import present
from pipelines.registry.packaging import card
from pipelines.registry.packaging.described import SCHEME, Described
from pipelines.registry.packaging.inputs import columns
from pipelines.registry.versions import entry
from pipelines.store import tables
from pipelines.store.metrics_file import read_metrics
from pipelines.store.vault import removals
from pipelines.store.vault.vault import Vault


def pack(
    name: str,
    *,
    chosen: Chosen,
    params: Params,
    vault: Vault,
    root: Path,
    to: Path,
    check_out: Callable[..., None] = present,
) -> Path:
    """Write the package of a fitted model to the folder ``to``, which must be new or empty; return ``to``.

    ``check_out`` places files that DVC tracks in the clone ``root``.

    Raises:
        UnknownModel: models cannot be registered under this name.
    """
    return _Source(name, chosen, entry(name, params=params), params, vault, root, check_out).pack(to)


@dataclass(frozen=True)
class _Source:
    """What a model is packaged from."""

    name: str
    chosen: Chosen
    of: Registered
    params: Params
    vault: Vault
    root: Path
    check_out: Callable[..., None]

    def missing(self, detail: str) -> ConfigError:
        return ConfigError("NothingToPack", name=self.name, detail=detail)

    def unfit(self, detail: str) -> ConfigError:
        return ConfigError("NotPackable", name=self.name, model=self.chosen.model, detail=detail)

    def _refuse_kind(self) -> None:
        """Reject a model of a kind that no package can hold."""
        if self.chosen.model not in self.params.models:
            raise self.unfit("section models has no such entry")
        spec = kind.spec(self.params, self.chosen.model)
        if spec.packable is not None:
            raise self.unfit(spec.packable)
        if not type(spec).__module__.startswith(kind.KINDS.package):
            raise self.unfit("its kind is of another distribution, whose code no package can hold")

    @cached_property
    def row(self) -> Fit:
        """The chosen row; of several seeds the one with the best score on validation, the smallest of equals."""
        of, chosen = self.of, self.chosen
        wanted = Registered(corpus=of.corpus, task=of.task, candidates=(chosen,))
        rows = [
            row for row in resolve(self.params, root=self.root).fits.values()
            if row.until is None and wanted.wants(row.corpus, row.task, row.model, row.subset, row.seed)
        ]  # fmt: skip
        if not rows:
            raise self.missing(
                f"train.rows.{of.corpus} does not fit '{chosen.model}' on {chosen.subset} with this seed"
            )
        scores = {row.seed: read_metrics(self.root / self._metrics(row)).get("score") for row in rows}
        known = {seed: score for seed, score in scores.items() if score is not None}
        if not known:
            raise self.missing(f"the stage train@{of.corpus} has no metrics of '{chosen.model}' for '{of.task}'")
        best = min(known, key=lambda seed: (-known[seed], seed))
        return next(row for row in rows if row.seed == best)

    def _metrics(self, row: Fit) -> str:
        return f"metrics/{row.corpus}/train-{row.name}.json"

    def pack(self, to: Path) -> Path:
        self._refuse_kind()
        row, corpus = self.row, self.of.corpus
        folder = fits.folder_of(corpus, row.name, root=self.root)
        stages = [f"snapshot/{corpus}/{stage}" for stage in ("split", "gold", "few_shot")]
        self.check_out(f"snapshot/{corpus}/fits/{row.name}", row.labels, *stages)
        fit, where = fits.read(folder), self._metrics(row)
        metrics, records = read_metrics(self.root / where), fits.lineage(folder)
        task, scheme = fits.task_asked(fit, folder=folder, root=self.root), scheme_of(fit.scheme, root=self.root)
        refuse_deleted(records, metrics=metrics, name=self.name, model=fit.shown, where=where, vault=self.vault)
        self._refuse_relabelled(fit, folder=folder)
        weights = recorded(metrics, name=self.name, where=where)
        to.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=to.parent) as scratch:
            # the digests of copies: the originals could be exchanged between the check and the packing
            copies = Path(scratch) / "fit"
            copies.mkdir()
            fits.copy_parts(folder, to=copies)
            refuse_exchanged(listing(copies), weights=weights, name=self.name, where=where)
            serving = Serving(task=task, scheme=scheme, seed=fit.seed, folder=Path(scratch))
            fit.spec.pack(copies, to=to, serving=serving)
        refuse_degenerate(to, name=self.name)
        described = self._described(fit, task=task, scheme=scheme, weights=weights)
        described.write(to)
        shutil.copy(path_of(described.scheme, root=self.root), to / SCHEME)
        listed = pa.table({"record_id": tables.strings(sorted(records))})
        tables.write(listed, to / integrity.RECORDS, name="pack_records")
        card.write(to, described=described, measured=measured(described, root=self.root))
        (to / integrity.FILES).write_text(json.dumps(listing(to), indent=1, sort_keys=True) + "\n")
        return to

    def _described(self, fit: Card, *, task: Task, scheme: Scheme, weights: TrainedWeights) -> Described:
        shared = {"corpus", "kind", "task", "model", "subset", "shown", "seed", "labels", "scheme", "data_commit"}
        params = self.params
        inputs = columns(params.corpora[fit.corpus].content, reads=fit.spec.inputs)
        images = params.images if "image" in inputs else None
        return Described(
            **{name: getattr(fit, name) for name in shared},
            name=self.name,
            base=public(fit.base),
            definitions={label.name: label.definition.strip() for label in task.category.labels if label.task},
            item=scheme.item,
            items=scheme.items,
            scheme_digest=scheme.digest,
            split_digest=split_digest(fit.corpus, root=self.root),
            votes_digest=self._silver(),
            train=Learnt(**fit.train.model_dump()),
            weights=weights,
            spec={
                key: public(value) if isinstance(value, str) else value
                for key, value in fit.spec.model_dump(exclude_unset=True).items()
            },
            inputs=inputs,
            scrub=params.collect.scrub,
            batch=params.predict.batch,
            decode=images.decode if images else None,
            # a consumer's images must not be sent to a provider just because the corpus's were
            ocr=images.ocr if images and packable(images.ocr) else None,
        )

    def _refuse_relabelled(self, fit: Card, *, folder: Path) -> None:
        """Reject a model if other items have gold in the split on which it was selected than at its fit."""
        selected = {
            (row["record_id"], row["image"])
            for row in tables.read(folder / training_records.FILE, name="splits").to_pylist()
            if row["split"] != TRAIN
        }
        snapshot = self.root / "snapshot" / fit.corpus
        placed, shown = tables.splits(snapshot), tables.examples(snapshot)
        names = {placed[item][0] for item in selected & placed.keys()}
        gold = tables.gold(snapshot, within=placed).get(fit.task, {})
        present = {item for item in gold.keys() - shown if placed[item][0] in names}
        gone = self.vault.tombstoned({record_id for record_id, _ in selected | present})
        if any(item[0] not in gone for item in selected ^ present):
            raise self.unfit("split or gold labels have changed since the training; train it again")

    def _silver(self) -> str | None:
        """Return the SHA-256 of the silver labels that the model was trained on; ``None`` for gold."""
        row = self.row
        if row.subset == GOLD:
            return None
        path = self.root / row.labels / "silver.parquet"
        if not path.is_file():
            raise self.missing(f"{row.labels}, the silver labels on which it was trained, is missing")
        return sha256(path)


def measured(described: Described, *, root: Path) -> dict[str, object]:
    """Return the part of ``metrics/<corpus>/evaluate.json`` about the described model's task."""
    path, stage = root / "metrics" / described.corpus / "evaluate.json", f"the stage evaluate@{described.corpus}"
    if not path.is_file():
        raise ConfigError("NothingToPack", name=described.name, detail=f"{stage} has not run")
    metrics = json.loads(path.read_bytes())
    task = metrics["tasks"].get(described.task, {})
    if described.shown not in task.get("models", {}):
        detail = f"{stage} has no metrics of '{described.shown}'"
        raise ConfigError("NothingToPack", name=described.name, detail=detail)
    return {**task, "sampling": metrics["sampling"], "split": metrics["split"]}


def recorded(metrics: Mapping[str, Any], *, name: str, where: str) -> TrainedWeights:
    """Return the training run and the digests of weights that a training stage committed with its metrics."""
    if "weights" not in metrics:
        raise ConfigError("NothingToPack", name=name, detail=f"{where} names no weights")
    return TrainedWeights.model_validate(metrics["weights"])


def refuse_exchanged(files: Mapping[str, str], *, weights: TrainedWeights, name: str, where: str) -> None:
    """Reject a model whose files (name -> SHA-256) differ from those that its training recorded."""
    if wrong := different(files, weights.files):
        raise DataError("WeightsChanged", name=name, metrics=where, detail=", ".join(wrong))


def refuse_degenerate(folder: Path, *, name: str) -> None:
    """Reject a model if a file of weights in its folder is all zero or contains a value that is not finite."""
    from safetensors import safe_open

    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            checks = [(bool(t.any()), bool(t.isfinite().all())) for t in map(file.get_tensor, file.keys())]
        if not any(nonzero for nonzero, _ in checks) or not all(finite for _, finite in checks):
            raise DataError("WeightsDegenerate", name=name, file=path.name)


def refuse_deleted(
    records: Collection[str], *, metrics: Mapping[str, Any], name: str, model: str, where: str, vault: Vault
) -> None:
    """Reject a model that was trained or selected on records that were taken down.

    ``records`` is the model's list of ids, from which takedowns remove deleted records; ``metrics["selected"]`` has its
    digest from before.
    """
    if not metrics.get("selected"):
        raise ConfigError("NothingToPack", name=name, detail=f"{where} names no records")
    wanted, present = TrainingRecords.model_validate(metrics["selected"]), trained_on(records)
    lost = removals.removed(vault, before=wanted.digest, after=present.digest)
    if lost is None:
        raise DataError("LineageAltered", model=model, found=present.records, wanted=wanted.records, metrics=where)
    if gone := lost + len(vault.tombstoned(set(records))):
        raise DataError("LearntFromDeleted", count=gone, model=model)


def public(base: str) -> str:
    """Return a base model's name for publication; for a folder only its last part, which reveals no local path."""
    return Path(base).name if Path(base).is_absolute() or Path(base).is_dir() else base
