"""Refuse models that must not be packaged."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pipelines.errors import ConfigError, DataError
from pipelines.vault.vault import Vault


class NotPackable(ConfigError):
    """The chosen model cannot be registered."""

    message = "'{model}' cannot be registered as '{name}': {detail}."
    remedy = "Set another model under registry.{name} in params.yaml."


class NothingToPack(ConfigError):
    """The current folder lacks inputs of a model package."""

    message = "An input for packaging the model '{name}' is missing: {detail}."
    remedy = (
        "Run the stage that writes it (split, gold, silver, train or finetune: `dvc repro STAGE`) and publish its "
        "result, then run `corpus register {name}` again."
    )


class LearntFromDeleted(DataError):
    """A model was trained or selected on records that were taken down."""

    message = "{count} records on which model '{model}' was trained or selected were taken down afterwards."
    remedy = "The model cannot be registered. Train it again, then register the new model with `corpus register NAME`."
    exit_code = 77


def refuse_deleted(records: Collection[str], *, model: str, vault: Vault) -> None:
    """Reject a model that was trained or selected on records that were taken down.

    Raises:
        LearntFromDeleted: at least one record was taken down; the error states how many.
    """
    if gone := len(vault.tombstoned(set(records))):
        raise LearntFromDeleted(count=gone, model=model)


def public(base: str) -> str:
    """Return a base model's name for publication; for a folder only its last part, which reveals no local path."""
    return Path(base).name if Path(base).is_absolute() or Path(base).is_dir() else base
