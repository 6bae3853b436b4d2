"""What every command shares: answering in JSON, opening the vault, reading the clock."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.config.params import Settings

if TYPE_CHECKING:
    from pipelines.vault.vault import Vault

# Set by what starts a command for an Airflow worker: a person's own may outlive their terminal.
DIES_WITH_PARENT = "CORPUS_DIES_WITH_PARENT"

CorpusName = Annotated[str, typer.Argument(help="memes or posts")]
Month = Annotated[str, typer.Option(help="the partition, YYYY-MM")]


def emit(value: Any) -> None:
    """Print one JSON line: counts and digests, the last line of every step."""
    sys.stdout.write(json.dumps(value) + "\n")


def open_vault(settings: Settings) -> Vault:
    """Open the vault that the settings name."""
    from pipelines.vault.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())


def now() -> datetime:
    """Read the clock, once, at the edge; steps take the time as an argument."""
    return datetime.now(UTC)


def die_with_parent() -> None:
    """Ask Linux to end this process when the Airflow worker that started it dies."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGTERM)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
