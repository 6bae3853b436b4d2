"""The annotation server, imports, agreement and gold; rounds have commands of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer()


@app.command(rich_help_panel="Annotate")
def annotate(
    port: Annotated[int | None, typer.Option(help="where Label Studio listens, 8081 unless told")] = None,
) -> None:
    """Start the embedded Label Studio; say where annotators go and where their passwords are."""
    from pipelines.deployment import label_studio as server

    emit(server.serve(Settings.from_env(), params=load(), port=port))


@app.command("import", rich_help_panel="Annotate")
def import_(
    corpus: CorpusName,
    files: list[Path],
    mapping: Annotated[str, typer.Option(help="a file of pipelines/annotate/imports/mappings, or a path of your own")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="read and compare, write nothing")] = False,
) -> None:
    """Import a published dataset; compare its counts with the paper's tables."""
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
    """Measure how far annotators agree, by round and over time."""
    from pipelines.annotate.agreement import agreement as stage

    emit(stage.run(corpus, params=load()))


@app.command("agreement-report", rich_help_panel="Annotate")
def agreement_report(
    corpus: Annotated[str | None, typer.Argument(help="memes or posts; none: the tables of the papers")] = None,
) -> None:
    """Show the agreement tables of the last publish beside those of the paper."""
    from pipelines.report import agreement_tables

    if corpus is None:
        agreement_tables.show_paper()
    else:
        agreement_tables.show(Settings.from_env(), corpus=corpus)


@app.command(rich_help_panel="Annotate")
def gold(corpus: CorpusName) -> None:
    """Gather what people answered; choose the examples of the prompt."""
    from pipelines.annotate import gold as stage

    settings = Settings.from_env()
    with open_vault(settings) as vault:
        emit(stage.run(corpus, params=load(), settings=settings, vault=vault))
