"""Define the commands that upgrade, sign and clone the corpus repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.airflow import tell_airflow
from pipelines.cli.params import tell
from pipelines.cli.shared import Person, Reason, doing, emit
from pipelines.config.settings import Settings
from pipelines.errors import CorpusError

app = typer.Typer()


@app.command(rich_help_panel="Repository")
def upgrade(
    keep: Annotated[
        list[str] | None, typer.Option(help="for this parameter, keep the corpus's value in a conflict")
    ] = None,
    take: Annotated[
        list[str] | None, typer.Option(help="for this parameter, take the newer code's value in a conflict")
    ] = None,
) -> None:
    """Merge this checkout's HEAD into the corpus branch, and its parameters by key."""
    from pipelines.registry import anchors
    from pipelines.workspace import repository

    settings = Settings.from_env()
    upgraded = repository.upgrade(settings, checkout=Path.cwd(), keep=keep or (), take=take or ())
    anchors.sign_earlier(settings, who="corpus upgrade")
    tell_airflow(settings)
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
def trust(commit: str, who: Person, why: Reason) -> None:
    """Sign the code of a commit in the corpus repository, which tasks then run with the project secret."""
    from pipelines.workspace import trust as signatures
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    with workspace(settings, revision=commit) as opened:
        emit({"tag": signatures.sign(settings, opened.head, who=who, why=why, cwd=opened.path)})


@app.command(rich_help_panel="Repository")
def clone(
    folder: Annotated[Path, typer.Argument(help="the folder to clone to, which must be new")],
    revision: Annotated[
        str | None, typer.Option(help="clone this older commit, without records taken down since")
    ] = None,
) -> None:
    """Clone the corpus to a folder, ready for `dvc pull` and `dvc repro`."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} exists already", param_hint="'FOLDER'")
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
