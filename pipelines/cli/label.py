"""Define the commands that estimate labelling costs, request labels and aggregate votes."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, run_stage
from pipelines.config.settings import Settings

app = typer.Typer()
LabellerName = Annotated[str, typer.Option(help="a name in section labellers of params.yaml")]
EnsembleName = Annotated[str, typer.Option(help="a name in section ensembles of params.yaml")]


@app.command(rich_help_panel="Label")
def estimate(corpus: CorpusName) -> None:
    """Estimate the cost of labelling; nothing is sent."""
    from pipelines.label import estimate as step

    run_stage(step.run, corpus)


@app.command(rich_help_panel="Label")
def label(
    corpus: CorpusName,
    labeller: LabellerName,
    shard: int = 0,
    wait: Annotated[bool, typer.Option(help="wait for the answers; --no-wait submits a batch and returns")] = True,
) -> None:
    """Request labels for one shard from one labeller, and store the sealed answers for stage votes."""
    from pipelines.label import votes as stage

    run_stage(stage.ask, corpus, labeller=labeller, shard=shard, wait=wait)


@app.command(rich_help_panel="Label")
def votes(corpus: CorpusName, labeller: LabellerName) -> None:
    """Collect one labeller's answers for every record of the split."""
    from pipelines.label import votes as stage

    run_stage(stage.run, corpus, labeller=labeller)


@app.command("votes-report", rich_help_panel="Label")
def votes_report(corpus: CorpusName) -> None:
    """Show agreement, refusals by label and cost of the last published votes."""
    from pipelines.label import votes_report

    votes_report.show(Settings.from_env(), corpus=corpus)


@app.command(rich_help_panel="Label")
def silver(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Aggregate an ensemble's votes; undecided items are queued for adjudication."""
    from pipelines.label import silver as stage

    run_stage(stage.run, corpus, ensemble=ensemble, needs_settings=False)


@app.command("injection_test", rich_help_panel="Label")
def injection_test(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Test an ensemble with prompt injections in copies of posts, and count the labels that change."""
    from pipelines.label import injection_test as stage

    run_stage(stage.run, corpus, ensemble=ensemble)
