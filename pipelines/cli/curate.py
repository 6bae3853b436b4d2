"""Define the commands that make a snapshot of all months."""

from __future__ import annotations

import typer

from pipelines.cli.shared import CorpusName, run_stage

app = typer.Typer()


@app.command(rich_help_panel="Curate")
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicates by picture and text, and drop items that repeat an earlier kept item."""
    from pipelines.curate.dedupe import dedupe as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel="Curate")
def sample(corpus: CorpusName) -> None:
    """Draw the seeded sample."""
    from pipelines.curate import sample as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel="Curate")
def split(corpus: CorpusName) -> None:
    """Split into train, validation and test; groups are kept together and earlier assignments are kept."""
    from pipelines.curate.split import split as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel="Curate")
def quality(corpus: CorpusName) -> None:
    """Count what the snapshot holds, and measure its quality where a ground truth exists."""
    from pipelines.curate import quality as stage

    run_stage(stage.run, corpus)
