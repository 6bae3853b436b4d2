"""The stages that make a snapshot of the months."""

from __future__ import annotations

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import load
from pipelines.config.settings import Settings

app = typer.Typer()


@app.command(rich_help_panel="Curate")
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicates by picture and caption; keep the earliest."""
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
    """Split into train, validation and test; nothing straddles, nothing moves."""
    from pipelines.curate.split import split as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def quality(corpus: CorpusName) -> None:
    """Count the snapshot, and compare it with the truth where one exists."""
    from pipelines.curate import quality as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))
