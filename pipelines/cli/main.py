"""Run the steps and stages of Crisis Corpus; ``python -m pipelines <command>`` is the same as ``corpus <command>``.

Every step prints counts and digests as one JSON object on its last line.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.airflow import app as airflow
from pipelines.cli.annotate import app as annotate
from pipelines.cli.collect import app as collect
from pipelines.cli.curate import app as curate
from pipelines.cli.evaluate import app as evaluate
from pipelines.cli.label import app as label
from pipelines.cli.registry import app as registry
from pipelines.cli.release import app as release
from pipelines.cli.round import app as rounds
from pipelines.cli.sandbox import app as sandbox
from pipelines.cli.shared import CorpusName, emit
from pipelines.cli.takedown import app as privacy
from pipelines.cli.takedown import takedowns
from pipelines.cli.task import app as task
from pipelines.cli.train import app as train
from pipelines.cli.vault import app as vault
from pipelines.config.settings import Settings
from pipelines.errors import CorpusError, StepFailed
from pipelines.process import DIES_WITH_PARENT, die_with_parent
from pipelines.timing import measured

# New objects between two collections; with Python's 700, imports of torch and transformers spend a tenth collecting.
GC_THRESHOLD = 50_000

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command(rich_help_panel="Repository")
def init(profile: Annotated[str | None, typer.Option(help="a name in profiles/, such as sandbox")] = None) -> None:
    """Create the corpus repository from this checkout's HEAD, unless it exists."""
    from pipelines.workspace import repository

    emit({"commit": repository.init(Settings.from_env(), checkout=Path.cwd(), profile=profile)})


@app.command(rich_help_panel="Repository")
def upgrade() -> None:
    """Merge this checkout's HEAD into the corpus branch."""
    from pipelines.workspace import repository

    upgraded = repository.upgrade(Settings.from_env(), checkout=Path.cwd())
    if upgraded is None:
        emit({"commit": None})
    else:
        emit({"commit": upgraded.commit, "kept": len(upgraded.kept), "to_run": upgraded.to_run})


@app.command(rich_help_panel="Repository")
def clone(
    folder: Path,
    revision: Annotated[
        str | None, typer.Option(help="clone this older commit; records taken down after it are left out")
    ] = None,
) -> None:
    """Clone the corpus to a folder, ready for `dvc pull` and `dvc repro`."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    repository.clone(settings, folder=folder)
    if revision:
        from pipelines.takedown.pointers import check_out_version

        check_out_version(folder, revision=revision, settings=settings)
    typer.echo(f"cd {folder} && dvc pull --allow-missing  # then `dvc repro quality@memes`, or another stage")


@app.command(rich_help_panel="Repository")
def track(corpus: CorpusName) -> None:
    """Log the counts and metrics of the last published commit to MLflow."""
    from pipelines import status as numbers

    emit(numbers.track(Settings.from_env(), corpus=corpus))


@app.command(rich_help_panel="Repository")
def status(as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False) -> None:
    """Show the counts and metrics of the last published commit."""
    from pipelines import status as numbers

    gathered = numbers.gather(Settings.from_env())
    if as_json:
        emit(gathered)
    else:
        numbers.show(gathered)


for layer in (collect, curate, annotate, label, train, evaluate, registry, privacy):
    app.add_typer(layer)
app.add_typer(release, name="release", rich_help_panel="Release")
app.add_typer(rounds, name="round", rich_help_panel="Annotate")
app.add_typer(vault, name="vault", rich_help_panel="Privacy")
app.add_typer(takedowns, name="takedown", rich_help_panel="Privacy")
app.add_typer(sandbox, name="sandbox", rich_help_panel="Sandbox")
app.add_typer(airflow, name="airflow", rich_help_panel="For Airflow")
app.add_typer(task, name="task", rich_help_panel="For Airflow")


def main() -> None:
    """Run a command; print an expected error as one line on stderr and exit with the error's exit status."""
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    # progress bars for many small artifact files are noise
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    if os.environ.pop(DIES_WITH_PARENT, None):
        die_with_parent()
    try:
        with measured():
            app()
    except CorpusError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        emit({"error": type(error).__name__, "retry_after": error.fields.get("retry_after")})
        sys.exit(_exit_code(error))


def _exit_code(error: CorpusError) -> int:
    """Return the exit status of an error: that of the failed step, or 75 (try later) if the step was killed."""
    if isinstance(error, StepFailed):
        return error.fields["returncode"] if error.fields["returncode"] > 0 else 75
    return error.exit_code
