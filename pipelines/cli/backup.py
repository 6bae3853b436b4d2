"""Define the commands that back up, restore and clean a deployment, and that maintain its vault."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import EXISTING, Yes, argument, group, option
from pipelines.cli.shared import confirm, doing, emit, opened, records, require_mlflow, say
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.process import now

app = typer.Typer()


@app.command(rich_help_panel="Repository")
def backup(
    to: Annotated[
        Path | None, option("the folder of all backups, a mounted path; default CORPUS_VAULT_BACKUP", file_okay=False)
    ] = None,
    keep_days: Annotated[
        int, option("then delete backups that are older than this many days, except the newest", min=0)
    ] = 28,
    secret_to: Annotated[
        Path | None, option("also write the project secret to this file, elsewhere", dir_okay=False)
    ] = None,
    verify: Annotated[
        bool, option("first compare all files of earlier backups with their digests", "--verify")
    ] = False,
    dry_run: Annotated[bool, option("print the bytes of each part; write nothing", "--dry-run")] = False,
) -> None:
    """Back up repository, data, databases, releases and MLflow's files; an interrupted backup resumes if repeated."""
    from pipelines.operate.backup import backup as stage

    settings = Settings.from_env()
    folder = to or settings.vault_backup
    if folder is None:
        raise typer.BadParameter("give a folder, or set CORPUS_VAULT_BACKUP", param_hint="'--to'")
    if dry_run:
        emit(stage.sizes(folder, settings=settings))
        return
    if secret_to:
        stage.write_secret(secret_to, folder=folder, settings=settings)
    emit(stage.run(folder, settings=settings, now=now(), keep_days=keep_days, verify=verify, say=say))


@app.command(rich_help_panel="Repository")
def restore(
    source: Annotated[Path, option("the folder of the backups", "--from", exists=True, file_okay=False)],
    to: Annotated[Path, option("the new CORPUS_HOME: a new or empty folder", file_okay=False)],
    at: Annotated[str | None, option("the name of a backup, its time; default the newest")] = None,
    tombstones: Annotated[
        list[Path] | None, option("a newer file of tombstones than that of the backups", **EXISTING)
    ] = None,
) -> None:
    """Restore a backup to empty places; records that were deleted after it stay deleted."""
    from pipelines.operate.backup import restore as stage

    os.environ["CORPUS_HOME"] = str(to.resolve())
    settings = Settings.from_env()
    emit(stage.run(source, name=at, settings=settings, tombstones=tombstones or [], now=now(), say=say))


@app.command(rich_help_panel="Repository")
def housekeeping(
    yes: Yes = False,
    dry_run: Annotated[
        bool, option("print counts and bytes of what would be removed; remove nothing", "--dry-run")
    ] = False,
    airflow: Annotated[
        str | None, option("the interpreter in whose environment Airflow is installed; default: this one")
    ] = None,
) -> None:
    """Remove old logs, rows of Airflow's database (runs, XCom), and MLflow's runs and traces that nothing refers to.

    The journal of decisions is verified and confirmed, without which consumers refuse it after four weeks.
    """
    from pipelines.operate import housekeeping as stage
    from pipelines.registry.journal import Journal
    from pipelines.registry.transitions import published_anchors
    from pipelines.store.vault.engine import file_missing
    from pipelines.workspace.clone import require_corpus

    settings = Settings.from_env()
    require_corpus(settings)
    require_mlflow(settings)
    with doing("looking for what is old"):
        parts = stage.due(settings, now=now(), airflow=airflow)
    found = {name: part.found for name, part in parts.items()}
    if dry_run:
        emit(found)
        return
    if count := sum(part.count for part in parts.values()):
        counts = ", ".join(f"{part.count} in {name}" for name, part in parts.items() if part.count)
        confirm(f"removes old files, rows and runs: {counts}", count=count, yes=yes)
    emit(stage.run(parts, say=say))
    if not file_missing(settings.journal_url):
        with doing("confirming the journal"), Journal.of(settings) as journal:
            journal.confirm(known=published_anchors(settings))


vault = group(
    "Export and replay tombstones (records of deletions), rotate the project secret, and encrypt tables again."
)
app.add_typer(vault, name="vault", rich_help_panel="Privacy")

# The first 32 bytes of the secret determine the record ids and never change.
IDENTITY = 32


@vault.command("tombstones")
def tombstones() -> None:
    """Print all tombstones (ids of deleted records) as JSON; store the output apart from the vault's backups."""
    from pipelines.takedown.receipts import listed

    with opened() as (_, vault):
        emit(listed(vault))


@vault.command("replay")
def replay(
    file: Annotated[
        Path, argument("a file of tombstones, the output of `corpus vault tombstones`", "FILE", **EXISTING)
    ],
    yes: Yes = False,
) -> None:
    """Destroy the keys of all records that a file of tombstones (deletions) lists; run it after restoring a backup."""
    from pipelines.takedown.receipts import read_tombstones

    saved = read_tombstones(file)
    with opened() as (_, vault):
        fresh = len(saved) - len(vault.tombstoned(saved))
        confirm(f"destroys the keys of {records(fresh)}, without which nothing can read them", count=fresh, yes=yes)
        emit({"tombstones": len(saved), "destroyed": vault.replay(saved)})


@vault.command("rotate")
def rotate(
    file: Annotated[
        Path,
        argument(
            "the file to write the new project secret to, or an interrupted rotation's file", "FILE", dir_okay=False
        ),
    ],
    yes: Yes = False,
) -> None:
    """Encrypt the keys of all records under a new project secret; older backups still need the old secret."""
    with opened() as (settings, vault):
        live = vault.counts()["records"]
        confirm(f"makes the present secret, which opens the keys of {records(live)}, useless", count=live, yes=yes)
        fresh = _new_secret(file, settings.secret())
        emit({"rewrapped": vault.rotate(secret=fresh), "secret_file": str(file)})
    typer.echo(
        f"Set CORPUS_SECRET to the content of {file}, restart, and destroy every copy of the old secret.", err=True
    )


def _new_secret(file: Path, secret: bytes) -> bytes:
    """Return the secret in a file; create it if it is missing, so that an interrupted rotation can be repeated."""
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
