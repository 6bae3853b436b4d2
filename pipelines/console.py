"""What every command shares: answering in JSON, opening the vault, reading the clock."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.errors import ConfigError
from pipelines.params import Settings

if TYPE_CHECKING:
    from pipelines.privacy.vault import Vault

CorpusName = Annotated[str, typer.Argument(help="memes or posts")]
Month = Annotated[str, typer.Option(help="the partition, YYYY-MM")]


class NotInRunCache(ConfigError):
    """A replay met a stage whose result is not there."""

    message = "Stage '{stage}' is not in the run-cache, and a publish never runs anything."
    remedy = "Clear the stage's own task in Airflow (or run `dvc repro` in a clone and push with --run-cache)."


def emit(value: Any) -> None:
    """Print one JSON line: counts and digests, the last line of every step."""
    sys.stdout.write(json.dumps(value) + "\n")


def open_vault(settings: Settings) -> Vault:
    """Open the vault that the settings name."""
    from pipelines.privacy.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())


def now() -> datetime:
    """Read the clock, once, at the edge; steps take the time as an argument."""
    return datetime.now(UTC)


def not_in_a_replay(stage: str) -> None:
    """Refuse to run a stage while a publish replays what has run.

    Raises:
        NotInRunCache: always, in a replay.
    """
    if os.environ.get("CORPUS_REPLAY"):
        raise NotInRunCache(stage=stage)
