"""Share arguments, output and vault access between the commands."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.config.settings import Settings

if TYPE_CHECKING:
    from pipelines.vault.vault import Vault

CorpusName = Annotated[str, typer.Argument(help="memes or posts")]
Month = Annotated[str, typer.Option(help="the partition, YYYY-MM")]


def emit(value: Any) -> None:
    """Print one JSON line (counts and digests), the last line of every step."""
    sys.stdout.write(json.dumps(value) + "\n")


def open_vault(settings: Settings) -> Vault:
    """Return the open vault that the settings name."""
    from pipelines.vault.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())
