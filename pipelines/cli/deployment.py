"""Define the commands that start and stop the embedded services of a home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import argument
from pipelines.cli.shared import doing, entry_points, own_corpora, project_root, unknown_corpus
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings

if TYPE_CHECKING:
    from pipelines.operate.services.services import AddedComponent

app = typer.Typer()
# Entry points of functions of settings and parameters that return the components which a distribution adds.
COMPONENTS = "crisis_corpus.components"
Name = Annotated[
    str | None, argument("a folder in corpora/; needed only if it has several and the home no corpus yet", "[NAME]")
]


@app.command(rich_help_panel="Repository")
def up(name: Name = None) -> None:
    """Start Airflow, its database and MLflow for the corpus of CORPUS_HOME, in the background, on free local ports."""
    from pipelines.operate.services.airflow_api import named
    from pipelines.workspace import repository
    from pipelines.workspace.clone import BRANCH, require_corpus, workspace
    from pipelines.workspace.git import branches

    settings, root = Settings.from_env(), project_root()
    own = own_corpora()
    exists, profile = BRANCH in (branches(settings.repo) or {}), None
    if exists:
        with workspace(settings, folders=()) as clone:
            profile = load(clone.path).profile
    if name and name not in {*own, profile}:
        raise unknown_corpus(name)
    name = name or profile
    if name is None and not exists and len(own) > 1:
        raise typer.BadParameter(f"is missing; choose one of {', '.join(own)}", param_hint="'NAME'")
    name = name or (None if exists else next(iter(own), None))
    if name and (name in own or not exists):
        repository.prepare(settings, checkout=root, profile=name)
    require_corpus(settings)
    with workspace(settings, folders=()) as clone:
        params = load(clone.path)
    added = [component for point in entry_points(COMPONENTS) for component in point.load()(settings, params)]
    start(settings, root=root, profile=params.profile, added=added)
    collect = named(f"{next(iter(params.corpora))}_collect")
    typer.echo(f"collect    corpus airflow trigger {collect} --partition-key YYYY-MM --wait")


@app.command(rich_help_panel="Repository")
def down() -> None:
    """Stop the services of this CORPUS_HOME, and no others."""
    from pipelines.core import components

    stopped = components.down(Settings.from_env())
    typer.echo("\n".join(f"stopped {name}" for name in stopped) or "nothing of this CORPUS_HOME was running")


def start(settings: Settings, *, root: Path, profile: str | None, added: Sequence[AddedComponent]) -> None:
    """Start the embedded services of a home, and print their addresses."""
    from pipelines.core.components import starting
    from pipelines.operate.services.services import LocalDeployment

    with doing("starting"), starting():
        deployment = LocalDeployment(settings, root=root, profile=profile, added=added)
        deployment.up(say=lambda _: None)
    typer.echo(f"Airflow    http://127.0.0.1:{deployment.ports.airflow}")
    typer.echo(f"MLflow     http://127.0.0.1:{deployment.ports.mlflow}")
    typer.echo(f"passwords  {deployment.passwords}")
    typer.echo("stop       corpus down")
