"""Define the commands of annotation rounds, from sampling items to the recorded decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.shared import CorpusName, doing, emit, open_vault, summarised
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer(
    no_args_is_help=True, help="Open and close annotation rounds, import their answers, adjudicate undecided items."
)

Name = Annotated[
    str, typer.Argument(metavar="ROUND", help="an annotation round of the corpus's protocol, such as calibration")
]


@app.command("open")
@summarised()
def open_(
    corpus: CorpusName,
    name: Name,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="count the items that would be drawn; change nothing")
    ] = False,
) -> None:
    """Draw the items of an annotation round and fill each annotator's queue; repeat the command if interrupted."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.open_round, corpus, name, dry_run=dry_run), what="drawing and filling queues")


@app.command("status")
def status(
    corpus: CorpusName,
    name: Annotated[
        str | None, typer.Argument(metavar="[ROUND]", help="the annotation round to show; default: all")
    ] = None,
) -> None:
    """Show the status of annotation rounds: each annotator's unanswered items and the addresses of the queues."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.status, corpus, name), what="reading queues")


@app.command("pull")
def pull(corpus: CorpusName, name: Name) -> None:
    """Import the annotators' and the adjudicator's answers of a round, and refill the queues up to the daily cap."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.pull, corpus, name), what="reading queues")


@app.command("adjudicate")
@summarised()
def adjudicate(corpus: CorpusName, name: Name) -> None:
    """End the annotation of a round, and queue its undecided items for the adjudicator without annotators' names."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.adjudicate, corpus, name), what="queueing undecided items")


@app.command("close")
@summarised()
def close(
    corpus: CorpusName,
    name: Name,
    *,
    gold: Annotated[bool, typer.Option("--gold/--no-gold", help="whether the round's labels become gold labels")],
    reason: Annotated[
        str, typer.Option(help="the reason for --gold or --no-gold as a short code, such as agreement-sufficient")
    ],
    abandon: Annotated[
        bool, typer.Option("--abandon", help="close the round even if items are undecided; these get no gold label")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the round's status instead of closing it; change nothing")
    ] = False,
) -> None:
    """Import the last answers, record whether the labels become gold, and delete the round's annotation queues."""
    from pipelines.annotate.rounds import round as rounds

    _run(
        partial(rounds.close, corpus, name, go_on=gold, reason=reason, abandon=abandon, dry_run=dry_run),
        what="importing answers and removing queues",
    )


By = Annotated[str, typer.Option("--by", help="your pseudonym in the round, such as annotator-1")]


@app.command("describe")
@summarised()
def describe(
    corpus: CorpusName,
    name: Name,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="a CSV: item, description, note")
    ],
    by: By,
) -> None:
    """Seal descriptions and notes of a pilot's items; a changed text needs a new approval."""
    from pipelines.annotate.rounds import descriptions

    _run(partial(descriptions.describe, corpus, name, file=file, by=by), what="sealing descriptions")


@app.command("approve")
@summarised()
def approve(corpus: CorpusName, name: Name, by: By) -> None:
    """Approve, as a second annotator, the descriptions of a pilot that others wrote."""
    from pipelines.annotate.rounds import descriptions

    _run(partial(descriptions.approve, corpus, name, by=by), what="approving descriptions")


@app.command("descriptions")
def show_descriptions(
    corpus: CorpusName,
    name: Name,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="a new file that only you can read; remove it afterwards")
    ],
) -> None:
    """Write a pilot's items with their descriptions and notes to a private file, to fill in or to review."""
    from pipelines.annotate.rounds import descriptions

    settings = Settings.from_env()
    with open_vault(settings) as vault, doing("reading descriptions"):
        result = descriptions.export(corpus, name, to=to, settings=settings, vault=vault)
    emit(result)


def _run(command: Callable[..., dict[str, Any]], *, what: str) -> None:
    settings = Settings.from_env()
    with open_vault(settings) as vault, doing(what):
        result = command(settings=settings, vault=vault, now=now())
    emit(result)
