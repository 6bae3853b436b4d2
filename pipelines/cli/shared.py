"""Provide arguments, output and vault access for all commands."""

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
    """Print ``value`` (counts and digests) as one JSON line; this is the last line that a step prints."""
    sys.stdout.write(json.dumps(value) + "\n")


def run_stage(run: Callable[..., Any], corpus: str, *, needs_settings: bool = True, **given: Any) -> None:
    """Run a stage with parameters, vault and (if ``needs_settings``) settings, and print its result as JSON."""
    settings = Settings.from_env()
    with open_vault(settings) as vault:
        given |= {"settings": settings} if needs_settings else {}
        emit(run(corpus, params=load(), vault=vault, **given))


def open_vault(settings: Settings) -> Vault:
    """Open the vault at ``settings.vault_url``."""
    from pipelines.vault.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())
