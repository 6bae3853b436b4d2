"""What labelling costs, asking, and the stages that count what was answered."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import Settings, load

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
        from pipelines.label import summary

        summary.show(settings, corpus=corpus)
        return
    from pipelines.label import votes as stage

    with open_vault(settings) as vault:
        emit(stage.run(corpus, labeller=labeller, params=load(), settings=settings, vault=vault))


@app.command(rich_help_panel="Label")
def silver(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Count an ensemble's votes; send to people what it cannot decide."""
    from pipelines.label import silver as stage

    with open_vault(Settings.from_env()) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), vault=vault))


@app.command(rich_help_panel="Label")
def probe(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Ask an ensemble about copies of posts that address the models; count the labels that change."""
    from pipelines.label import injection_test as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, ensemble=ensemble, params=load(), settings=settings, vault=vault))
