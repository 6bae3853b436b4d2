"""Define the commands that write releases and models for the Hugging Face Hub, push them and list their copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import AsJson, PersonIfAny, ReasonIfAny, Yes, argument, group, option
from pipelines.cli.registry import Name as ModelName
from pipelines.cli.registry import Version
from pipelines.cli.release import Name as ReleaseName
from pipelines.cli.shared import confirm, decided, doing, emit, open_registry, open_vault, opened
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.registry.journal import Journal
    from pipelines.store.vault.vault import Vault

app = group("Write a release or a model as a folder for the Hugging Face Hub; push, list and remove copies on the Hub.")

Repo = Annotated[str, option("the repository on the Hub that it is for: OWNER/NAME", "--repo")]
To = Annotated[Path, option("a new or empty folder to write to", "--to")]
Send = Annotated[bool, option("change the Hub; without this option, only print what would be changed", "--send")]


@app.command("release")
def release(name: ReleaseName, repo: Repo, to: To) -> None:
    """Write an approved release as a dataset folder: card, Croissant, a Parquet file for each split, its package."""
    from pipelines.release.export import release_folder

    with opened() as (settings, vault):
        emit(release_folder.run(name, repo=repo, to=to, settings=settings, vault=vault, now=now()))


@app.command("model")
def model(name: ModelName, version: Version, repo: Repo, to: To) -> None:
    """Write a registered model version as a model folder: card, safetensors, settings, tokenizer and licence."""
    from pipelines.release.export import model_folder

    with open_registry(Settings.from_env()) as context:
        emit(model_folder.run(name, version, repo=repo, to=to, context=context))


@app.command("push")
def push(
    folder: Annotated[Path, argument("a folder that `corpus export` wrote", "FOLDER")],
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which files of a folder would be sent to the Hub; with --send, replace the repository's content by them."""
    from pipelines.release.export import hub as stage

    settings = Settings.from_env()
    with _opened(settings) as (vault, journal):
        options: dict[str, Any] = {"settings": settings, "journal": journal, "vault": vault, "now": now()}
        planned = stage.plan(folder, **options)
        if not send:
            emit(planned | {"sent": False})
            return
        person, reason = decided(who, why)
        count, place = len(planned["files"]), f"{planned['repo']} on {planned['hub']}"
        confirm(f"sends {count} files to {place} and deletes all earlier files there", count=count, yes=yes)
        with doing("sending the files"):
            emit(stage.push(folder, who=person, why=reason, **options) | {"sent": True})


@app.command("remove")
def remove(
    repo: Annotated[str, argument("a repository that was pushed from here", "OWNER/NAME")],
    kind: Annotated[str, option("the kind of repository: dataset or model")] = "dataset",
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which repository would be deleted from the Hub; with --send, delete it with its history."""
    from pipelines.release.export import hub as stage

    if kind not in ("dataset", "model"):
        raise typer.BadParameter("is neither dataset nor model", param_hint="'--kind'")
    settings = Settings.from_env()
    with _opened(settings) as (_, journal):
        options: dict[str, Any] = {"kind": kind, "settings": settings, "journal": journal}
        planned = stage.remove(repo, who="", why="", send=False, **options)
        if not send:
            emit(planned)
            return
        person, reason = decided(who, why)
        confirm(f"deletes the repository {repo} on {planned['hub']} with its history", count=1, yes=yes)
        emit(stage.remove(repo, who=person, why=reason, **options))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the copies on the Hub, which of them are outdated, and the commands that replace or remove them."""
    from pipelines.release.export import hub

    settings = Settings.from_env()
    with _opened(settings) as (vault, journal):
        listed = hub.listing(settings=settings, journal=journal, vault=vault, now=now())
    if as_json:
        emit({"copies": [asdict(copy) for copy in listed]})
        return
    for copy in listed:
        typer.echo(f"{copy.hub} {copy.kind} {copy.repo}: {copy.of}, {copy.state}{f': {copy.why}' if copy.why else ''}")
        if copy.do:
            typer.echo(f"  {copy.do}")
    if not listed:
        typer.echo("The journal has no copies on the Hub.")


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Vault, Journal]]:
    from pipelines.registry.journal import Journal

    with open_vault(settings) as vault, Journal.of(settings) as journal:
        yield vault, journal
