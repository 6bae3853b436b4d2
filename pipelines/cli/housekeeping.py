"""Define the command that removes old logs, rows of Airflow's database and runs of MLflow."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import Yes, confirm, doing, emit, require_mlflow
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer()


@app.command(rich_help_panel="Repository")
def housekeeping(
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print counts and bytes of what would be removed; remove nothing")
    ] = False,
    airflow: Annotated[
        str | None, typer.Option(help="the interpreter in whose environment Airflow is installed; default: this one")
    ] = None,
) -> None:
    """Remove old logs, rows of Airflow's database (runs, XCom), and MLflow's runs and traces that nothing refers to."""
    from pipelines.housekeeping import housekeeping as stage
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
    emit(stage.run(parts, say=_say))


def _say(part: str) -> None:
    typer.echo(f"{part} …", err=True)
