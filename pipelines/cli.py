"""``corpus``: one command a step, in the order of the house; every step is also ``python -m pipelines <step>``.

Steps print one JSON line of counts and digests as their last line. Modules are imported when their command runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.console import CorpusName, Month, emit, now, open_vault
from pipelines.errors import ConfigError, CorpusError, StepFailed
from pipelines.params import Settings, load
from pipelines.sandbox.commands import app as sandbox
from pipelines.store.commands import app as task

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(sandbox, name="sandbox", rich_help_panel="Sandbox")
app.add_typer(task, name="task", rich_help_panel="For Airflow")


class NotInRunCache(ConfigError):
    """A replay met a stage whose result is not there."""

    message = "Stage '{stage}' is not in the run-cache, and a publish never runs anything."
    remedy = "Clear the stage's own task in Airflow (or run `dvc repro` in a clone and push with --run-cache)."


# -- the repository -------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Repository")
def init(profile: Annotated[str | None, typer.Option(help="a file of profiles/, such as sandbox")] = None) -> None:
    """Make the corpus repository on top of this checkout's HEAD; nothing happens where it exists."""
    from pipelines.store import repository

    emit({"commit": repository.init(Settings.from_env(), checkout=Path.cwd(), profile=profile)})


@app.command(rich_help_panel="Repository")
def upgrade() -> None:
    """Merge this checkout's HEAD into the corpus branch."""
    from pipelines.store import repository

    emit({"commit": repository.upgrade(Settings.from_env(), checkout=Path.cwd())})


@app.command(rich_help_panel="Repository")
def clone(folder: Path) -> None:
    """Clone the corpus for yourself: then `dvc pull` and `dvc repro` as on any laptop."""
    from pipelines.store import repository

    repository.clone(Settings.from_env(), folder=folder)
    typer.echo(f"cd {folder} && dvc pull --allow-missing  # then `dvc repro score@memes`, or another stage")


@app.command(rich_help_panel="Repository")
def track(corpus: CorpusName) -> None:
    """Log the numbers of the last publish to MLflow, beside the commit they belong to."""
    from pipelines import status as numbers

    emit(numbers.track(Settings.from_env(), corpus=corpus))


@app.command(rich_help_panel="Repository")
def status(as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False) -> None:
    """Show the numbers of the last publish."""
    from pipelines import status as numbers

    gathered = numbers.gather(Settings.from_env())
    if as_json:
        emit(gathered)
    else:
        numbers.show(gathered)


# -- collect --------------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Collect")
def collect(corpus: CorpusName, month: Month) -> None:
    """Scan the source for one month; scrub and seal its submissions."""
    from pipelines.collect import collect as step
    from pipelines.collect.window import Window

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(step.run(corpus, window=Window.from_key(month), params=load(), settings=settings, vault=vault, now=now()))


@app.command(rich_help_panel="Collect")
def images(corpus: CorpusName, month: Month, shard: int = 0) -> None:
    """Fetch, decode, read and fingerprint the pictures of one shard of a month."""
    from pipelines.collect import images as step
    from pipelines.collect.window import Window

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            step.run(
                corpus,
                window=Window.from_key(month),
                shard=shard,
                params=load(),
                vault=vault,
                contact=settings.contact,
                progress=step.report,
            )
        )


@app.command(rich_help_panel="Collect")
def texts(corpus: CorpusName, month: Month, shard: int = 0) -> None:
    """Count, judge and sign the texts of one shard of a month."""
    from pipelines.collect import texts as step
    from pipelines.collect.window import Window

    with open_vault(Settings.from_env()) as vault:
        emit(step.run(corpus, window=Window.from_key(month), shard=shard, params=load(), vault=vault))


@app.command(rich_help_panel="Collect")
def partition(corpus: CorpusName, month: Month) -> None:
    """Join the shards of a month into its tables."""
    from pipelines.collect import partition as step
    from pipelines.collect.window import Window

    with open_vault(Settings.from_env()) as vault:
        emit(step.run(corpus, window=Window.from_key(month), params=load(), vault=vault))


# -- curate: stages of dvc.yaml -------------------------------------------------------------------------------------


def _not_in_a_replay(stage: str) -> None:
    if os.environ.get("CORPUS_REPLAY"):
        raise NotInRunCache(stage=stage)


@app.command(rich_help_panel="Curate")
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicates by picture and caption; keep the earliest."""
    _not_in_a_replay("dedupe")
    from pipelines.curate import dedupe as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def sample(corpus: CorpusName) -> None:
    """Draw the seeded sample."""
    _not_in_a_replay("sample")
    from pipelines.curate import sample as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def split(corpus: CorpusName) -> None:
    """Split into train, validation and test; nothing straddles, nothing moves."""
    _not_in_a_replay("split")
    from pipelines.curate import split as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def score(corpus: CorpusName) -> None:
    """Count the snapshot, and compare it with the truth where one exists."""
    _not_in_a_replay("score")
    from pipelines.curate import score as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))


# -- annotate and label ---------------------------------------------------------------------------------------------

LabellerName = Annotated[str, typer.Option(help="a name of the section labellers")]
EnsembleName = Annotated[str, typer.Option(help="a name of the section ensembles")]


@app.command(rich_help_panel="Annotate")
def gold(corpus: CorpusName) -> None:
    """Gather what people answered; choose the examples of the prompt."""
    _not_in_a_replay("gold")
    from pipelines.annotate import gold as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Label")
def estimate(corpus: CorpusName) -> None:
    """Say what labelling would cost, before anything is sent."""
    from pipelines.label import plan

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(plan.run(corpus, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Label")
def ask(
    corpus: CorpusName,
    labeller: LabellerName,
    shard: int = 0,
    wait: Annotated[bool, typer.Option(help="without: hand a batch over and come back later")] = True,
) -> None:
    """Ask one labeller about one shard; its answers wait, sealed, for the stage votes."""
    from pipelines.label import votes as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            stage.ask(corpus, labeller=labeller, shard=shard, params=load(), settings=settings, vault=vault, wait=wait)
        )


@app.command(rich_help_panel="Label")
def votes(
    corpus: CorpusName, labeller: Annotated[str | None, typer.Option(help="a name of the section labellers")] = None
) -> None:
    """Gather one labeller's answers; without a labeller, show the votes of the last publish."""
    settings = Settings.from_env()
    if labeller is None:
        from pipelines.label import report

        report.show(settings, corpus=corpus)
        return
    _not_in_a_replay("votes")
    from pipelines.label import votes as stage

    with open_vault(settings) as vault:
        emit(stage.run(corpus, labeller=labeller, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Label")
def silver(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Count an ensemble's votes; send to people what it cannot decide."""
    _not_in_a_replay("silver")
    from pipelines.label import silver as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), vault=vault))


@app.command(rich_help_panel="Label")
def probe(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Ask an ensemble about copies of posts that address the models; count the labels that change."""
    _not_in_a_replay("probe")
    from pipelines.label import probe as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), settings=settings, vault=vault))


def main() -> None:
    """Run a command; an expected error is one line on stderr and its own exit status."""
    try:
        app()
    except CorpusError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        emit({"error": type(error).__name__, "retry_after": error.fields.get("retry_after")})
        sys.exit(_exit_code(error))


def _exit_code(error: CorpusError) -> int:
    """A failed step's own exit status is passed on; a step that was killed may be tried again."""
    if isinstance(error, StepFailed):
        return error.fields["returncode"] if error.fields["returncode"] > 0 else 75
    return error.exit_code
