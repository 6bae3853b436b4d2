"""Refuse models that must not be packaged: trained on deleted records, or with altered or broken weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from crisis_corpus.integrity import TrainedWeights, different
from pipelines.core.errors import ConfigError, DataError
from pipelines.store.vault import removals
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors.training_records import TrainingRecords, trained_on


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

    Raises:
        LearntFromDeleted: at least one record was taken down; the error states how many.
        LineageAltered: the list is neither the one that the training wrote nor one that a takedown shortened.
        NothingToPack: the metrics have no digest of the list.
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
