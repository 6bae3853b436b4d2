"""Define the commands that evaluate models and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.shared import STAGES, CorpusName, doing, emit, empty_folder, open_vault, run_stage
from pipelines.config.params import load
from pipelines.config.settings import Settings

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
def report(
    corpus: CorpusName,
    to: Annotated[
        Path | None,
        typer.Option(help="write to this folder, new or empty, from the metrics of a commit; default: run the stage"),
    ] = None,
    form: Annotated[
        Literal["html", "md", "latex"], typer.Option("--format", help="the format of the page in the folder of --to")
    ] = "html",
    commit: Annotated[
        str | None, typer.Option(help="the commit of branch corpus whose metrics are read; default: the newest")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="compare the commit with this one: models, scores and their differences")
    ] = None,
) -> None:
    """Write the benchmark report of a corpus's models, or compare two commits; without --to, run the stage here."""
    if to is None:
        if commit or against or form != "html":
            raise typer.BadParameter("--format, --commit and --against need it", param_hint="'--to'")
        from pipelines.report import report as stage

        emit(stage.run(corpus, params=load()))
        return
    from pipelines.report import published

    empty_folder(to, name="--to")
    with doing("reading the corpus repository"):
        written = published.write(
            corpus, settings=Settings.from_env(), to=to, form=form, commit=commit, against=against
        )
    emit(written)


@app.command(rich_help_panel="Annotate")
def errors(
    corpus: CorpusName,
    models: Annotated[
        list[str], typer.Option("--model", help="a model of metrics/CORPUS/evaluate.json, such as gpt; several: repeat")
    ],
    category: Annotated[str | None, typer.Option(help="the category, if the label scheme has several")] = None,
    content: Annotated[
        Path | None,
        typer.Option(
            help="a new folder for the items' content, which you alone can read; needs the vault; remove it afterwards"
        ),
    ] = None,
) -> None:
    """List the test items that no named model has right, by id, labels and kind of error; the content stays sealed."""
    from pipelines.evaluate import error_items
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    if content is not None:
        empty_folder(content, name="--content")
    with workspace(settings) as clone, doing("reading the corpus repository"):
        params = load(clone.path)
        folder = f"snapshot/{corpus}"
        clone.checkout(*(f"{folder}/{name}" for name in ("few_shot", "gold", "predictions", "split")))
        found = error_items.listed(corpus, models=models, params=params, category=category, root=clone.path)
        opened: dict[str, int] = {}
        if content is not None:
            images = params.corpora[corpus].content == "images"
            clone.checkout_months(corpus, "images" if images else "posts.parquet")
            with open_vault(settings) as vault:
                opened = error_items.write_content(
                    corpus, found, to=content, params=params, vault=vault, root=clone.path
                )
    emit({"corpus": corpus, "items": [item.row() for item in found], **({"content": opened} if content else {})})
