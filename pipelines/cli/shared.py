"""Share arguments, output and vault access between the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.config.params import load
from pipelines.config.settings import Settings

if TYPE_CHECKING:
    from pipelines.vault.vault import Vault

CorpusName = Annotated[str, typer.Argument(help="memes or posts")]
Month = Annotated[str, typer.Option(help="the calendar month to process, YYYY-MM")]


def emit(value: Any) -> None:
    """Print one JSON line (counts and digests), the last line of every step."""
    sys.stdout.write(json.dumps(value) + "\n")


def run_stage(run: Callable[..., Any], corpus: str, *, needs_settings: bool = True, **given: Any) -> None:
    """Run a stage with params and vault, and settings if it needs them, and print its result."""
    settings = Settings.from_env()
    with open_vault(settings) as vault:
        given |= {"settings": settings} if needs_settings else {}
        emit(run(corpus, params=load(), vault=vault, **given))


def open_vault(settings: Settings) -> Vault:
    """Return the open vault that the settings name."""
    from pipelines.vault.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())
