"""Refuse models that must not be packaged."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pipelines.errors import ConfigError, DataError
from pipelines.vault.vault import Vault


class NotPackable(ConfigError):
    """What was chosen is no model that can be registered."""

    message = "'{model}' cannot be registered as '{name}': {detail}."
    remedy = "Name another model under registry.{name} in params.yaml."


class NothingToPack(ConfigError):
    """What a pack is made of is not where the command was started."""

    message = "There is nothing to package as '{name}': {detail}."
    remedy = "Start it in a clone of the corpus after `dvc pull --allow-missing`, or run that stage."


class LearntFromDeleted(DataError):
    """A model knows somebody who asked to be forgotten."""

    message = "{count} of the records that '{model}' has learnt from, or was chosen by, were taken down since."
    remedy = "It cannot be registered. Train it again, and register that."
    exit_code = 77


def refuse_deleted(records: Collection[str], *, model: str, vault: Vault) -> None:
    """Refuse a model that knows records which were taken down.

    Raises:
        LearntFromDeleted: naming how many.
    """
    if gone := len(vault.tombstoned(set(records))):
        raise LearntFromDeleted(count=gone, model=model)


def public(base: str) -> str:
    """Return a base by its name: where a folder lies on this machine is nobody's business."""
    return Path(base).name if Path(base).is_absolute() or Path(base).is_dir() else base
