"""Define the commands that back up a corpus and restore it to another place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import emit
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer()


@app.command(rich_help_panel="Repository")
def backup(
    to: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="the folder of all backups, a mounted path; default CORPUS_VAULT_BACKUP"),
    ] = None,
    keep_days: Annotated[
        int, typer.Option(min=0, help="then delete backups that are older than this many days, except the newest")
    ] = 28,
    secret_to: Annotated[
        Path | None, typer.Option(dir_okay=False, help="also write the project secret to this file, elsewhere")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="first compare all files of earlier backups with their digests")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the bytes of each part; write nothing")] = False,
) -> None:
    """Back up repository, data, databases, releases and MLflow's files; an interrupted backup resumes if repeated."""
    from pipelines.backup import backup as stage

    settings = Settings.from_env()
    folder = to or settings.vault_backup
    if folder is None:
        raise typer.BadParameter("give a folder, or set CORPUS_VAULT_BACKUP", param_hint="'--to'")
    if dry_run:
        emit(stage.sizes(folder, settings=settings))
        return
    if secret_to:
        stage.write_secret(secret_to, folder=folder, settings=settings)
    emit(stage.run(folder, settings=settings, now=now(), keep_days=keep_days, verify=verify, say=_say))


@app.command(rich_help_panel="Repository")
def restore(
    source: Annotated[Path, typer.Option("--from", exists=True, file_okay=False, help="the folder of the backups")],
    to: Annotated[Path, typer.Option(file_okay=False, help="the new CORPUS_HOME: a new or empty folder")],
    at: Annotated[str | None, typer.Option(help="the name of a backup, its time; default the newest")] = None,
    tombstones: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="a newer file of tombstones than that of the backups"),
    ] = None,
) -> None:
    """Restore a backup to empty places; records that were deleted after it stay deleted."""
    from pipelines.backup import restore as stage

    os.environ["CORPUS_HOME"] = str(to.resolve())
    settings = Settings.from_env()
    emit(stage.run(source, name=at, settings=settings, tombstones=tombstones or [], now=now(), say=_say))


def _say(part: str) -> None:
    typer.echo(f"{part} …", err=True)
