"""Define the commands for the annotation server, imports, agreement and gold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault, run_stage
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer()


@app.command(rich_help_panel="Annotate")
def annotate(
    port: Annotated[int | None, typer.Option(help="the port of Label Studio; default 8081")] = None,
) -> None:
    """Start the embedded Label Studio; print its address and the file of the annotators' passwords."""
    from pipelines.deployment import label_studio as server

    emit(server.serve(Settings.from_env(), params=load(), port=port))


@app.command("import", rich_help_panel="Annotate")
def import_(
    corpus: CorpusName,
    files: list[Path],
    mapping: Annotated[str, typer.Option(help="a name in pipelines/annotate/imports/mappings, or a path")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="read and compare only; write nothing")] = False,
) -> None:
    """Import a published dataset and compare its counts with the paper's tables."""
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
            )
        )


@app.command(rich_help_panel="Annotate")
def agreement(
    corpus: CorpusName,
) -> None:
    """Measure inter-annotator agreement, by round and over time."""
    from pipelines.annotate.agreement import agreement as stage

    emit(stage.run(corpus, params=load()))


@app.command("agreement-report", rich_help_panel="Annotate")
def agreement_report(
    corpus: Annotated[str | None, typer.Argument(help="memes or posts; omit to show the tables of the papers")] = None,
) -> None:
    """Show the agreement tables of the last publish beside those of the paper."""
    from pipelines.report import agreement_tables

    if corpus is None:
        agreement_tables.show_paper()
    else:
        agreement_tables.show(Settings.from_env(), corpus=corpus)


@app.command(rich_help_panel="Annotate")
def gold(corpus: CorpusName) -> None:
    """Collect the annotators' final labels as gold labels, and choose the examples of the prompts."""
    from pipelines.annotate import gold as stage

    run_stage(stage.run, corpus)
