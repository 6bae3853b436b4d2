"""Define the commands that write releases and models for the Hugging Face Hub, push them and list their copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.registry import Name as ModelName
from pipelines.cli.registry import Version
from pipelines.cli.release import Name as ReleaseName
from pipelines.cli.shared import (
    AsJson,
    PersonIfAny,
    ReasonIfAny,
    Yes,
    confirm,
    decided,
    doing,
    emit,
    open_registry,
    open_vault,
    opened,
)
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.release.export.hub import Hub

app = typer.Typer(
    no_args_is_help=True,
    help="Write a release or a model as a folder for the Hugging Face Hub; push, list and remove copies on the Hub.",
)

Repo = Annotated[str, typer.Option("--repo", help="the repository on the Hub that it is for: OWNER/NAME")]
To = Annotated[Path, typer.Option("--to", help="a new or empty folder to write to")]
Send = Annotated[
    bool, typer.Option("--send", help="change the Hub; without this option, only print what would be changed")
]


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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a folder that `corpus export` wrote")],
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which files of a folder would be sent to the Hub; with --send, replace the repository's content by them."""
    with _opened() as hub:
        planned = hub.plan(folder)
        if not send:
            emit(planned | {"sent": False})
            return
        person, reason = decided(who, why)
        count, place = len(planned["files"]), f"{planned['repo']} on {planned['hub']}"
        confirm(f"sends {count} files to {place} and deletes all earlier files there", count=count, yes=yes)
        with doing("sending the files"):
            emit(hub.push(folder, who=person, why=reason) | {"sent": True})


@app.command("remove")
def remove(
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="a repository that was pushed from here")],
    kind: Annotated[str, typer.Option(help="the kind of repository: dataset or model")] = "dataset",
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which repository would be deleted from the Hub; with --send, delete it with its history."""
    if kind not in ("dataset", "model"):
        raise typer.BadParameter("is neither dataset nor model", param_hint="'--kind'")
    options: dict[str, Any] = {"kind": kind}
    with _opened() as hub:
        planned = hub.remove(repo, who="", why="", send=False, **options)
        if not send:
            emit(planned)
            return
        person, reason = decided(who, why)
        confirm(f"deletes the repository {repo} on {planned['hub']} with its history", count=1, yes=yes)
        emit(hub.remove(repo, who=person, why=reason, **options))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the copies on the Hub, which of them are outdated, and the commands that replace or remove them."""
    with _opened() as hub:
        listed = hub.listing()
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
def _opened() -> Iterator[Hub]:
    from pipelines.registry.journal import Journal
    from pipelines.release.export.hub import Hub

    settings = Settings.from_env()
    with open_vault(settings) as vault, Journal.of(settings) as journal:
        yield Hub(settings, journal, vault, now())
