"""Define the commands that upgrade, sign and clone the corpus repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.airflow import tell_airflow
from pipelines.cli.params import tell
from pipelines.cli.shared import Person, Reason, doing, emit, empty_folder
from pipelines.config.settings import Settings
from pipelines.errors import CorpusError

app = typer.Typer()


@app.command(rich_help_panel="Repository")
def upgrade(
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="a parameter's dotted name: if corpus and newer code both changed it, keep the corpus's value"
        ),
    ] = None,
    take: Annotated[
        list[str] | None,
        typer.Option(help="a parameter's dotted name: if corpus and newer code both changed it, take the code's value"),
    ] = None,
) -> None:
    """Upgrade the corpus branch to this checkout's HEAD: merge the code, and params.yaml parameter by parameter."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    upgraded = repository.upgrade(settings, checkout=Path.cwd(), keep=keep or (), take=take or ())
    tell_airflow(settings)
    if lacking := repository.without_ethics(settings):
        # a deployment of an earlier release has none on record, and refuses to read until it has
        told = "\n".join(f'  corpus params set sources.{name}.ethics "BOARD, REFERENCE" --reason …' for name in lacking)
        typer.echo(f"Before the next month, state the ethics approval of each source that is read:\n{told}", err=True)
    if upgraded is None:
        emit({"commit": None})
        return
    params = upgraded.params
    tell(
        ("changed", params.changed),
        ("kept, set by a person", params.kept),
        ("kept, an upgrade never changes approvals and budgets", params.protected),
    )
    keys = {f"params_{name}": [one.key for one in getattr(params, name)] for name in ("changed", "kept", "protected")}
    emit({"commit": upgraded.commit, "kept": len(upgraded.kept), "to_run": upgraded.to_run, **keys})


@app.command(rich_help_panel="Repository")
def trust(
    commit: Annotated[str, typer.Argument(help="the commit of the corpus repository to sign")], who: Person, why: Reason
) -> None:
    """Sign a commit of the corpus repository as trusted; tasks run its code, which can read the project secret."""
    from pipelines.workspace import trust as signatures
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    with workspace(settings, revision=commit) as opened:
        emit({"tag": signatures.sign(settings, opened.head, who=who, why=why, cwd=opened.path)})


@app.command(rich_help_panel="Repository")
def clone(
    folder: Annotated[Path, typer.Argument(help="the folder to clone to, which must be new or empty")],
    revision: Annotated[
        str | None,
        typer.Option(help="check out this older commit of the corpus, without records that were deleted since"),
    ] = None,
) -> None:
    """Clone the corpus to a folder, ready for `dvc pull` and `dvc repro`."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    empty_folder(folder, name="FOLDER")
    with doing("cloning"):
        repository.clone(settings, folder=folder)
    if revision:
        from pipelines.takedown.pointers import check_out_version

        try:
            check_out_version(folder, revision=revision, settings=settings)
        except CorpusError:
            shutil.rmtree(folder)
            raise
    typer.echo(f"cd {folder} && dvc pull --allow-missing  # then `dvc repro quality@memes`, or another stage")
