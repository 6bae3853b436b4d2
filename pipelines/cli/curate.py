"""Define the commands that make a snapshot of all months."""

from __future__ import annotations

import os

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import load
from pipelines.config.settings import Settings

app = typer.Typer()


@app.command("compile", rich_help_panel="Curate")
def compile_kernels() -> None:
    """Compile the inner loops of dedupe and split, so that no task waits for it; `make setup` runs this."""
    from pipelines.workspace.clone import compiled_kernels

    os.environ.update(compiled_kernels(Settings.from_env().home))  # numba reads it when it is imported
    from pipelines.curate import compile as step

    emit(step.run())


@app.command(rich_help_panel="Curate")
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicates by picture and text, and drop items that repeat an earlier kept item."""
    from pipelines.curate.dedupe import dedupe as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def sample(corpus: CorpusName) -> None:
    """Draw the seeded sample."""
    from pipelines.curate import sample as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def split(corpus: CorpusName) -> None:
    """Split into train, validation and test; groups are kept together and earlier assignments are kept."""
    from pipelines.curate.split import split as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def quality(corpus: CorpusName) -> None:
    """Count what the snapshot holds, and measure its quality where a ground truth exists."""
    from pipelines.curate import quality as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))
