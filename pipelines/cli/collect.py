"""Define the commands that collect a month, write its tables, and deduplicate, sample and split all months."""

from __future__ import annotations

import os
from datetime import date
from multiprocessing import get_context
from typing import Annotated

import typer

from pipelines.cli.options import STEPS, CorpusName, Month, Shard, option
from pipelines.cli.shared import emit, open_vault, run_step
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.process import now

app = typer.Typer()


@app.command(rich_help_panel=STEPS)
def collect(corpus: CorpusName, month: Month) -> None:
    """Read one calendar month of a corpus's submissions from its source; scrub personal data, encrypt the content."""
    from pipelines.collect import collect as step
    from pipelines.collect.month import Window
    from pipelines.collect.refresh import require_closed

    settings, window, params = Settings.from_env(), Window.from_key(month), load()
    require_closed(corpus, window=window, params=params, now=now())
    with open_vault(settings) as vault:
        emit(step.run(corpus, window=window, params=params, settings=settings, vault=vault, now=now()))


@app.command(rich_help_panel=STEPS)
def refresh(
    corpus: CorpusName,
    every: Annotated[bool, option("read every subreddit, whether or not it is due", "--every")] = False,
) -> None:
    """Read the subreddits of a corpus that are due, and store their new posts until the month is collected."""
    from pipelines.collect import refresh as step

    run_step(step.run, corpus, now=now(), every=every)


@app.command(rich_help_panel=STEPS)
def images(corpus: CorpusName, month: Month, shard: Shard = 0) -> None:
    """Fetch, decode, OCR and fingerprint the images of one shard (part) of a month's posts."""
    from pipelines.collect import images as step
    from pipelines.collect.month import Window

    contact = Settings.from_env().contact
    run_step(step.run, corpus, window=Window.from_key(month), shard=shard, contact=contact, needs_settings=False)


@app.command(rich_help_panel=STEPS)
def texts(corpus: CorpusName, month: Month, shard: Shard = 0) -> None:
    """Filter a shard (part) of a month's posts by length and language; compute signatures to find near-duplicates."""
    from pipelines.collect import texts as step
    from pipelines.collect.month import Window

    run_step(step.run, corpus, window=Window.from_key(month), shard=shard, needs_settings=False)


@app.command(rich_help_panel=STEPS)
def partition(corpus: CorpusName, month: Month) -> None:
    """Join the processed shards (parts) of one month into the month's tables, which Airflow then commits."""
    from pipelines.collect import partition as step
    from pipelines.collect.month import Window

    run_step(step.run, corpus, window=Window.from_key(month), needs_settings=False)


@app.command("scrub-score", rich_help_panel="Repository")
def scrub_score() -> None:
    """Print recall and precision by kind of the parameters' scrubbing, on generated strings."""
    from pipelines.collect import scrub_score as measure
    from pipelines.collect.scrub import scrub

    kinds = load().collect.scrub
    emit(measure.score(lambda text: scrub(text, kinds=kinds)[0], kinds=[kind.partition(":")[0] for kind in kinds]))


@app.command("shared-pictures", rich_help_panel="Repository")
def shared_pictures(corpus: CorpusName) -> None:
    """List the digests of pictures that many authors of a corpus posted, which may stand for removed pictures."""
    from pipelines.collect.partition import shared_pictures_of

    emit(shared_pictures_of(Settings.from_env(), corpus=corpus))


@app.command("try", rich_help_panel="Repository")
def try_day(
    corpus: Annotated[str, option("the corpus")],
    day: Annotated[str, option("the day whose posts are read from the source, YYYY-MM-DD")],
) -> None:
    """Read one day's posts from the source of a corpus, and print how many are kept or dropped; nothing is stored."""
    from pipelines.collect import collect as step

    try:
        chosen = date.fromisoformat(day)
    except ValueError:
        raise BadParams(where="--day", detail="is not a date YYYY-MM-DD") from None
    emit(step.try_day(Settings.from_env(), corpus=corpus, day=chosen, now=now()))


@app.command("compile", rich_help_panel=STEPS)
def compile_kernels() -> None:
    """Compile the libraries and the inner loops of dedupe and split before their first use; `make setup` runs this."""
    from pipelines.workspace.scratch import compiled_kernels

    os.environ.update(compiled_kernels(Settings.from_env().home))  # numba reads it when it is imported
    from pipelines.core import forkserver

    # Importing writes their bytecode: a quarter of what is installed, which each of the first processes would write
    # otherwise. torch and what imports it take half of the time.
    torch = [name for name in forkserver.LIBRARIES if name.split(".")[0] in forkserver.TORCH]
    child = get_context("fork").Process(target=forkserver.import_libraries, args=(torch,))
    child.start()
    from pipelines.curate.split import compile_kernels as compile_inner_loops

    compile_inner_loops()
    forkserver.import_libraries([name for name in forkserver.LIBRARIES if name not in torch])
    child.join()
    if child.exitcode:
        raise typer.Exit(child.exitcode)
