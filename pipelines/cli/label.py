"""Define the commands that request labels or moderation, and aggregate votes."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.options import STAGES, STEPS, AsJson, CorpusName, Shard, checked, option
from pipelines.cli.shared import doing, emit, run_stage, show_sheets
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings

app = typer.Typer()
LabellerName = Annotated[
    str, option("the labeller (a model): a name in section labellers of catalogue.yaml", **checked("labeller"))
]
EnsembleName = Annotated[
    str, option("the ensemble: a name in section ensembles of catalogue.yaml", **checked("ensemble"))
]


@app.command(rich_help_panel=STAGES)
def moderation(corpus: CorpusName) -> None:
    """Ask moderation systems about the items with gold labels, and compare what they flag by severity."""
    from pipelines.moderation import moderation as stage

    run_stage(stage.run, corpus)


@app.command(rich_help_panel=STEPS)
def label(
    corpus: CorpusName,
    labeller: LabellerName,
    shard: Shard = 0,
    wait: Annotated[bool, option("wait for the labeller's answers, or exit after submitting its batch jobs")] = True,
) -> None:
    """Request labels for one shard (part) of the posts from one labeller; store the encrypted answers for `votes`."""
    from pipelines.label import votes as stage

    run_stage(stage.ask, corpus, labeller=labeller, shard=shard, wait=wait)


@app.command("few_shot", rich_help_panel=STAGES)
def few_shot(corpus: CorpusName) -> None:
    """Choose posts of the dev split that the labelling prompts show, with their gold labels, as examples."""
    from pipelines.label import few_shot as stage

    emit(stage.run(corpus, params=load()))


@app.command(rich_help_panel=STAGES)
def votes(corpus: CorpusName, labeller: LabellerName) -> None:
    """Collect the labels that one labeller gave (its votes) for every record of all splits."""
    from pipelines.label import votes as stage

    run_stage(stage.run, corpus, labeller=labeller)


@app.command("votes-report", rich_help_panel="Label")
def votes_report(
    corpus: CorpusName,
    everything: Annotated[
        bool, option("show all tables of labels and their distributions, not only the summary", "--all")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how many posts each labeller (model) labelled or refused, at what cost, and how far labellers agree."""
    from pipelines.label import votes_report as tables

    with doing("reading the corpus repository"):
        sheets = tables.published(Settings.from_env(), corpus=corpus, everything=everything)
    show_sheets(sheets, as_json=as_json, note="" if sheets else f"No record of {corpus} has been labelled yet.")


@app.command(rich_help_panel=STAGES)
def silver(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Aggregate the labels of an ensemble's labellers to silver labels; queue undecided records for human review."""
    from pipelines.label.silver import silver as stage

    run_stage(stage.run, corpus, ensemble=ensemble, needs_settings=False)


@app.command("injection_test", rich_help_panel=STAGES)
def injection_test(corpus: CorpusName, ensemble: EnsembleName) -> None:
    """Test an ensemble of labellers with prompt injections in copies of posts; count the labels that change."""
    from pipelines.label import injection_test as stage

    run_stage(stage.run, corpus, ensemble=ensemble)
