"""Define the commands that evaluate models and write the report."""

from __future__ import annotations

import typer

from pipelines.cli.shared import STAGES, CorpusName, emit, run_stage
from pipelines.config.params import load

app = typer.Typer()


@app.command(rich_help_panel=STAGES)
def analysis(corpus: CorpusName) -> None:
    """Describe a corpus's items with gold: labels, lengths, months, and features tested by label."""
    from pipelines.analysis import analysis as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel=STAGES)
def evaluate(corpus: CorpusName) -> None:
    """Score the predictions of a corpus's models on its test split, compare all pairs of models and analyse errors."""
    from pipelines.evaluate import evaluate as stage

    metrics = stage.run(corpus, params=load())
    emit({"tasks": {key: {"n": found["n"], "best": found["best"]} for key, found in metrics["tasks"].items()}})


@app.command(rich_help_panel=STAGES)
def report(corpus: CorpusName) -> None:
    """Write the benchmark report, which compares the corpus's models with those of the paper on its label scheme."""
    from pipelines.report import report as stage

    emit(stage.run(corpus, params=load()))
