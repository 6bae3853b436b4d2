"""Define the commands that deduplicate, sample and split the items of all months."""

from __future__ import annotations

import os

import typer

from pipelines.cli.shared import STAGES, STEPS, CorpusName, run_stage
from pipelines.config.settings import Settings

app = typer.Typer()


@app.command("compile", rich_help_panel=STEPS)
def compile_kernels() -> None:
    """Compile the libraries and the inner loops of dedupe and split before their first use; `make setup` runs this."""
    from pipelines.workspace.step_environment import compiled_kernels

    os.environ.update(compiled_kernels(Settings.from_env().home))  # numba reads it when it is imported
    from pipelines import forkserver
    from pipelines.curate import compile as step

    # writes their bytecode: a quarter of what is installed, and otherwise each of the first processes would compile it
    list(forkserver.import_libraries(forkserver.LIBRARIES))
    step.run()


@app.command(rich_help_panel=STAGES)
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicate items of a corpus by picture and text, and drop each item that repeats an earlier one."""
    from pipelines.curate.dedupe import dedupe as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel=STAGES)
def sample(corpus: CorpusName) -> None:
    """Draw a random sample, with a fixed seed, of the items that the stage dedupe kept."""
    from pipelines.curate import sample as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel=STAGES)
def split(corpus: CorpusName) -> None:
    """Split the sample into train, dev and test, stratified on gold; near-duplicates share a split; no item moves."""
    from pipelines.curate.split import split as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel=STAGES)
def quality(corpus: CorpusName) -> None:
    """Count the items of the corpus, and compare them with the sandbox's ground truth, if the corpus is simulated."""
    from pipelines.curate import quality as stage

    run_stage(stage.run, corpus)
