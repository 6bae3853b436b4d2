"""Define the commands of the vault: export and replay tombstones, rotate the secret, encrypt tables again."""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import Yes, confirm, emit, open_vault, records
from pipelines.config.settings import Settings
from pipelines.errors import BadParams

app = typer.Typer(
    no_args_is_help=True,
    help="Export and replay tombstones (records of deletions), rotate the project secret, and encrypt tables again.",
)

# The first 32 bytes of the secret determine the record ids and never change.
IDENTITY = 32


@app.command("tombstones")
def tombstones() -> None:
    """Print all tombstones (ids of deleted records) as JSON; store the output apart from the vault's backups."""
    with open_vault(Settings.from_env()) as vault:
        found = {i: [t.deleted_at.isoformat(), t.reason] for i, t in vault.tombstones().items()}
    sys.stdout.write(json.dumps(found) + "\n")


@app.command("replay")
def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="a file of tombstones, the output of `corpus vault tombstones`",
        ),
    ],
    yes: Yes = False,
) -> None:
    """Destroy the keys of all records that a file of tombstones (deletions) lists; run it after restoring a backup."""
    from pipelines.takedown.receipts import read_tombstones

    saved = read_tombstones(file)
    with open_vault(Settings.from_env()) as vault:
        fresh = len(saved) - len(vault.tombstoned(saved))
        confirm(f"destroys the keys of {records(fresh)}, without which nothing can read them", count=fresh, yes=yes)
        emit({"tombstones": len(saved), "destroyed": vault.replay(saved)})


@app.command("rotate")
def rotate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            dir_okay=False,
            help="the file to write the new project secret to, or an interrupted rotation's file",
        ),
    ],
    yes: Yes = False,
) -> None:
    """Encrypt the keys of all records under a new project secret; older backups still need the old secret."""
    settings = Settings.from_env()
    with open_vault(settings) as vault:
        live = vault.counts()["records"]
        confirm(f"makes the present secret, which opens the keys of {records(live)}, useless", count=live, yes=yes)
        fresh = _new_secret(file, settings.secret())
        emit({"rewrapped": vault.rotate(secret=fresh), "secret_file": str(file)})
    sys.stderr.write(
        f"Set CORPUS_SECRET to the content of {file}, restart, and destroy every copy of the old secret.\n"
    )


def _new_secret(file: Path, secret: bytes) -> bytes:
    """Return the secret in a file; create it if it is missing, so that an interrupted rotation can be repeated.

    Raises:
        BadParams: the file holds something else.
    """
    if not file.exists():
        fresh = secret[:IDENTITY] + secrets.token_bytes(IDENTITY)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(fresh.hex())
            out.flush()
            os.fsync(out.fileno())
        return fresh
    try:
        fresh = bytes.fromhex(file.read_text().strip())
    except ValueError:
        raise BadParams(where=file.name, detail="is not a secret in hexadecimal digits") from None
    if fresh[:IDENTITY] != secret[:IDENTITY] or len(fresh) <= IDENTITY:
        raise BadParams(
            where=file.name,
            detail="is not the first 64 digits of the present secret with a new ending; name a file to create",
        )
    return fresh
