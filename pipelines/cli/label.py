"""What labelling costs, asking, and the stages that count what was answered."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import load
from pipelines.config.settings import Settings

app = typer.Typer()
LabellerName = Annotated[str, typer.Option(help="a name of the section labellers")]
EnsembleName = Annotated[str, typer.Option(help="a name of the section ensembles")]


@app.command(rich_help_panel="Label")
def estimate(corpus: CorpusName) -> None:
    """Say what labelling would cost, before anything is sent."""
    from pipelines.label import estimate as step

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(step.run(corpus, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Label")
def label(
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
def votes(corpus: CorpusName, labeller: LabellerName) -> None:
    """Collect one labeller's answers for every record of the split."""
    from pipelines.label import votes as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, labeller=labeller, params=load(), settings=settings, vault=vault))


@app.command("votes-report", rich_help_panel="Label")
def votes_report(corpus: CorpusName) -> None:
    """Show agreement, refusals by label and cost of the last published votes."""
    from pipelines.label import summary

    summary.show(Settings.from_env(), corpus=corpus)


@app.command(rich_help_panel="Label")
def silver(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Count an ensemble's votes; send to people what it cannot decide."""
    from pipelines.label import silver as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), vault=vault))


@app.command("injection_test", rich_help_panel="Label")
def injection_test(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Ask an ensemble about copies of posts that address the models; count the labels that change."""
    from pipelines.label import injection_test as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), settings=settings, vault=vault))
