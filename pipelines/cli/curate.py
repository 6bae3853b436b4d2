"""Define the commands that deduplicate, sample and split the items of all months."""

from __future__ import annotations

import os
from multiprocessing import get_context

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

    # Importing writes their bytecode: a quarter of what is installed, which each of the first processes would write
    # otherwise. torch and what imports it take half of the time.
    torch = [name for name in forkserver.LIBRARIES if name.split(".")[0] in forkserver.TORCH]
    child = get_context("fork").Process(target=forkserver.import_libraries, args=(torch,))
    child.start()
    from pipelines.curate.split import compile_kernels

    compile_kernels()
    forkserver.import_libraries([name for name in forkserver.LIBRARIES if name not in torch])
    child.join()
    if child.exitcode:
        raise typer.Exit(child.exitcode)


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
    from pipelines.curate import split as stage

    run_stage(stage.run, corpus, needs_settings=False)


@app.command(rich_help_panel=STAGES)
def quality(corpus: CorpusName) -> None:
    """Count the items of the corpus, and compare them with the sandbox's ground truth, if the corpus is simulated."""
    from pipelines.curate import quality as stage

    run_stage(stage.run, corpus)
