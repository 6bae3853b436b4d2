"""Define the commands for the annotation server, imports, agreement and gold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import STAGES, AsJson, CorpusName, doing, emit, named, open_vault, run_stage, show_sheets
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer()


@app.command(rich_help_panel="Annotate")
def annotate(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="the port of Label Studio; default: 8081")] = None,
) -> None:
    """Start the embedded Label Studio; print its address and the path of the file with the annotators' passwords."""
    from pipelines.deployment import label_studio_server as server

    emit(server.serve(Settings.from_env(), params=load(), port=port))


@app.command("import", rich_help_panel="Annotate")
def import_(
    corpus: CorpusName,
    files: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, metavar="FILE...", help="the files of the dataset")
    ],
    mapping: Annotated[
        str, typer.Option(help="the column mapping: a name in pipelines/annotate/imports/mappings, or a file")
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="read the files, compare their label counts with the paper's and write nothing"),
    ] = False,
    allow_bad: Annotated[
        float, typer.Option(min=0, max=1, help="the share of rows that may be invalid, which are left out and counted")
    ] = 0.01,
) -> None:
    """Import a published dataset into a corpus, and compare its label counts with the tables of its paper."""
    from pipelines.annotate.imports import imports

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(
            imports.run(
                corpus,
                files=files,
                mapping=mapping,
                params=load(),
                settings=settings,
                vault=vault,
                now=now(),
                dry_run=dry_run,
                allow_bad=allow_bad,
            )
        )


@app.command(rich_help_panel=STAGES)
def agreement(corpus: CorpusName) -> None:
    """Measure the inter-annotator agreement of a corpus by annotation round and batch."""
    from pipelines.annotate.agreement import agreement as stage

    emit(stage.run(corpus, params=load()))


@app.command("agreement-report", rich_help_panel="Annotate")
def agreement_report(
    corpus: Annotated[
        str | None,
        typer.Argument(
            metavar="[CORPUS]",
            help="the corpus, memes or posts; default: only the tables of the papers",
            callback=named("corpus", "corpora"),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the inter-annotator agreement that the label schemes' papers print and, beside it, that of a corpus."""
    from pipelines.report import agreement_tables

    if corpus is None:
        show_sheets(list(agreement_tables.paper_tables()), as_json=as_json)
        return
    with doing("reading the corpus repository"):
        sheets, annotated = agreement_tables.of_corpus(Settings.from_env(), corpus=corpus)
    show_sheets(sheets, as_json=as_json, note="" if annotated else f"Corpus {corpus} has no human annotations yet.")


@app.command(rich_help_panel=STAGES)
def gold(corpus: CorpusName) -> None:
    """Write the annotators' final labels as gold labels, and the list of items that annotators found unfit."""
    from pipelines.annotate import gold as stage

    run_stage(stage.run, corpus)
