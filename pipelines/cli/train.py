"""Define the commands that request labels, train models, collect predictions, evaluate them and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.cli.options import STAGES, STEPS, AsJson, CorpusName, Shard, checked, option
from pipelines.cli.shared import context, doing, emit, empty_folder, open_vault, show_sheets
from pipelines.cli.stages import run_stage
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

app = typer.Typer()
ModelName = Annotated[str, option("the model: a name in section models of catalogue.yaml", **checked("model"))]
RowName = Annotated[
    str, option("a row of rows.yaml without its corpus, such as labels-knn-consensus-20251001", **checked("row"))
]
LabellerName = Annotated[
    str, option("the labeller (a model): a name in section labellers of catalogue.yaml", **checked("labeller"))
]


@app.command(rich_help_panel=STEPS)
def label(
    corpus: CorpusName,
    labeller: LabellerName,
    shard: Shard = 0,
    wait: Annotated[bool, option("wait for the labeller's answers, or exit after submitting its batch jobs")] = True,
) -> None:
    """Request labels for one shard (part) of the posts from one labeller; store the encrypted answers for `votes`."""
    from pipelines.label import votes as stage

    with context(corpus, row=labeller) as ctx:
        emit(stage.ask(ctx, shard=shard, wait=wait))


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
def report(
    corpus: CorpusName,
    to: Annotated[
        Path | None, option("write to this folder, new or empty, from the metrics of a commit; default: run the stage")
    ] = None,
    form: Annotated[
        Literal["html", "md", "latex"], option("the format of the page in the folder of --to", "--format")
    ] = "html",
    commit: Annotated[
        str | None, option("the commit of branch corpus whose metrics are read; default: the newest")
    ] = None,
    against: Annotated[
        str | None, option("compare the commit with this one: models, scores and their differences")
    ] = None,
) -> None:
    """Write the benchmark report of a corpus's models, or compare two commits; without --to, run the stage here."""
    if to is None:
        if commit or against or form != "html":
            raise typer.BadParameter("--format, --commit and --against need it", param_hint="'--to'")
        run_stage("report", corpus)
        return
    from pipelines.evaluate.report import published

    empty_folder(to, name="--to")
    with doing("reading the corpus repository"):
        settings = Settings.from_env()
        written = published.write(corpus, settings=settings, to=to, form=form, commit=commit, against=against)
    emit(written)


@app.command(rich_help_panel="Annotate")
def errors(
    corpus: CorpusName,
    models: Annotated[
        list[str], option("a model of metrics/CORPUS/evaluate.json, such as gpt; several: repeat", "--model")
    ],
    category: Annotated[str | None, option("the category, if the label scheme has several")] = None,
    content: Annotated[
        Path | None,
        option("a new folder for the items' content, which you alone can read; needs the vault; remove it afterwards"),
    ] = None,
) -> None:
    """List the test items that no named model has right, by id, labels and kind of error; the content stays sealed."""
    from pipelines.evaluate import error_items
    from pipelines.store.vault import access
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    if content is not None:
        empty_folder(content, name="--content")
    with workspace(settings) as clone, doing("reading the corpus repository"):
        params = load(clone.path)
        folder = f"snapshot/{corpus}"
        clone.checkout(*(f"{folder}/{name}" for name in ("few_shot", "gold", "predictions", "split")))
        items = error_items.listed(corpus, models=models, params=params, category=category, root=clone.path)
        opened: dict[str, int] = {}
        if content is not None:
            images = params.corpora[corpus].content == "images"
            clone.checkout_months(corpus, "images" if images else "records.parquet")
            with open_vault(settings) as vault:
                options: dict[str, Any] = {"params": params, "vault": vault, "root": clone.path}
                read = [(item.record_id, item.image) for item in items]
                why = f"corpus errors --content {', '.join(models)}"[:500]
                access.record(vault, corpus=corpus, items=read, who=settings.person, why=why, now=now())
                opened = error_items.write_content(corpus, items, to=content, **options)
    emit({"corpus": corpus, "items": [item.row() for item in items], **({"content": opened} if content else {})})
