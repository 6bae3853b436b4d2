"""``corpus round``: annotation rounds, from the drawn items to the decision on record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer

from pipelines.cli.shared import CorpusName, emit, open_vault
from pipelines.config.settings import Settings
from pipelines.process import now

app = typer.Typer(no_args_is_help=True, help="Annotation rounds: opened, pulled, adjudicated, closed.")

Name = Annotated[str, typer.Argument(metavar="ROUND", help="a round of the corpus's protocol, such as calibration")]


@app.command("open")
def open_(
    corpus: CorpusName,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count what would be drawn, change nothing")] = False,
) -> None:
    """Draw the items and fill a queue for each annotator; repeat it to go on where it stopped."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.open_round, corpus, name, dry_run=dry_run), doing="drawing and filling queues")


@app.command("status")
def status(
    corpus: CorpusName, name: Annotated[str | None, typer.Argument(metavar="[ROUND]", help="else: all of them")] = None
) -> None:
    """Say where rounds stand: who has how much left, and where they go."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.status, corpus, name), doing="reading queues")


@app.command("pull")
def pull(corpus: CorpusName, name: Name) -> None:
    """Bring answers and decisions in; give out what the day's cap allows."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.pull, corpus, name), doing="reading queues")


@app.command("adjudicate")
def adjudicate(corpus: CorpusName, name: Name) -> None:
    """End annotating; put what is left open before the adjudicator, without names."""
    from pipelines.annotate.rounds import round as rounds

    _run(partial(rounds.adjudicate, corpus, name), doing="gathering what is left open")


@app.command("close")
def close(
    corpus: CorpusName,
    name: Name,
    *,
    gold: Annotated[bool, typer.Option("--gold/--no-gold", help="whether gold is made of it")],
    reason: Annotated[str, typer.Option(help="a code, no prose: agreement-sufficient")],
    abandon: Annotated[bool, typer.Option("--abandon", help="leave undecided what is undecided")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say how it stands, change nothing")] = False,
) -> None:
    """Pull for the last time, put the decision on record, leave nothing in the annotation server."""
    from pipelines.annotate.rounds import round as rounds

    _run(
        partial(rounds.close, corpus, name, go_on=gold, reason=reason, abandon=abandon, dry_run=dry_run),
        doing="pulling and removing",
    )


def _run(command: Callable[..., dict[str, Any]], *, doing: str) -> None:
    """Run a command with what all of them need, and print its one JSON line."""
    settings = Settings.from_env()
    with open_vault(settings) as vault, _progress(doing):
        result = command(settings=settings, vault=vault, now=now())
    emit(result)


@contextmanager
def _progress(doing: str) -> Iterator[None]:
    """Show a person, and nobody else, that something is going on."""
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …"):
        yield
