"""Define the command that runs a corpus without Airflow."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import annotate, registry
from pipelines.cli.options import EXISTING, argument, option
from pipelines.cli.shared import emit, own_corpora, project_root, unknown_corpus
from pipelines.core.config.base import CORPORA
from pipelines.core.config.settings import Settings, local_registry
from pipelines.core.errors import DataError
from pipelines.core.process import WARNING, duration

if TYPE_CHECKING:
    from pipelines.operate.run import CorpusRun

app = typer.Typer()
# Lines of a failed step's messages that are shown; the log has all.
SHOWN = 12
REWRITE = "\r\x1b[K"
# Seconds between two lines about the progress of a step in a file; ours.
SELDOM = 60
# As `core.process.reporter` writes it.
PROGRESS = re.compile(r".+: (\d+/\d+(?:, about [^:,]+ left)?)")


@app.command(rich_help_panel="Repository")
def run(
    name: Annotated[str, argument("the corpus, such as that of a folder in corpora/", "NAME")],
    months: Annotated[
        str | None, option("the months to collect, such as 2022-11..2022-12, or none; default: those of the corpus")
    ] = None,
    labels: Annotated[Path | None, option("labels to import, as `corpus import` does", **EXISTING)] = None,
    to: Annotated[
        str, option("the last stage to run, such as split; default: all, and models are registered")
    ] = "report",
    dry_run: Annotated[bool, option("print what would run; change nothing", "--dry-run")] = False,
) -> None:
    """Run a corpus here, without Airflow: months, labels, stages, registered models; go on after an interruption."""
    from pipelines.operate.run import alone
    from pipelines.workspace import repository

    settings = Settings.from_env()
    own = _require_known(settings, name)
    if labels:
        annotate.require_readable(name, labels)
    if dry_run:
        _plan(settings, name, months=months, to=to)
        return
    with alone(settings, name):
        if own:
            repository.prepare(settings, checkout=project_root(), profile=name)
        made = _made(settings, name, to=to)
        if to == "report":
            # before models are trained: MLflow gets their figures
            settings = made.settings = local_registry(settings)
        for month in made.months(months):
            made.month(month)
        if labels:
            report, step = annotate.imported(name, [labels])
            if not report["matched"]:
                typer.echo(step, err=True)
        waits = str(DataError("NoLabels", corpus=name)) if made.dags() else ""
        registered = {}
        if to == "report" and not waits:
            with made.doing("register"):
                registered = registry.registered_of(settings, corpus=name)
            made.scoring()
    _end(settings, name, waits=waits, registered=registered)


def _require_known(settings: Settings, name: str) -> bool:
    """Refuse a name that neither a folder nor the repository can have; return whether there is a folder."""
    from pipelines.workspace.git import branches

    own = name in own_corpora()
    if not own and not branches(settings.repo):
        raise unknown_corpus(name)
    return own


def _made(settings: Settings, name: str, *, to: str) -> CorpusRun:
    """Return the run of a corpus up to a stage that it has."""
    from pipelines.operate.run import CorpusRun

    log = settings.home / "logs" / f"run-{name}.log"
    made = CorpusRun(settings, name, lambda what: _doing(what, log), lambda text: typer.echo(text, err=True), to)
    if to not in made.steps():
        raise typer.BadParameter(f"'{to}' is not one of {', '.join(made.steps())}", param_hint="'--to'")
    return made


def _plan(settings: Settings, name: str, *, months: str | None, to: str) -> None:
    """Print what a run would do."""
    from pipelines.operate.run import DAGS
    from pipelines.workspace.git import branches

    if branches(settings.repo):
        made = _made(settings, name, to=to)
        emit({"months": made.months(months), "stages": {dag: made.stages(dag)[0] for dag in DAGS}})
    else:
        emit({"would": f"create the corpus repository with {CORPORA}/{name}, and run all its months and stages"})


def _end(settings: Settings, corpus: str, *, waits: str, registered: dict[str, list[dict[str, Any]]]) -> None:
    """Print what was made, and the next command."""
    from rich.console import Console

    from pipelines.operate import status

    gathered = status.gather(settings)
    shown = {"commit": gathered["commit"], "corpora": {corpus: gathered["corpora"][corpus]}}
    Console(stderr=True).print(status.table(shown))
    newest = [(name, versions[-1]["version"]) for name, versions in registered.items() if versions]
    steps = [f'corpus promote {name} {version} --who YOU --why "..."' for name, version in newest]
    if waits:
        typer.echo(waits, err=True)
    elif steps:
        typer.echo("Next:\n" + "\n".join(f"  {step}" for step in steps), err=True)
    emit({"commit": gathered["commit"], "registered": registered, "waits": bool(waits)})


@contextmanager
def _doing(what: str, log: Path) -> Iterator[None]:
    """Show a step with its progress and time; its messages go to the log, and those of a failed step are shown, too."""
    began, terminal = time.monotonic(), sys.stderr.isatty()
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    messages = _Messages(log, os.fstat(file).st_size)
    os.dup2(file, 2)
    os.close(file)
    failed, ended = True, Event()
    show = partial(_show_in_place if terminal else _show_seldom, what, messages, kept, ended)
    shown = Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
        failed = False
    finally:
        ended.set()
        shown.join()
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        lines = [line for line in messages.lines() if not PROGRESS.fullmatch(line)]
        told = ["", *lines[-SHOWN:]] if failed else [line for line in lines if line.startswith(WARNING)]
        sys.stderr.write(REWRITE * (terminal and bool(told)) + "".join(f"{line}\n" for line in told))
    sys.stderr.write(f"{REWRITE * terminal}{what}: {time.monotonic() - began:.0f} s\n")


@dataclass(frozen=True)
class _Messages:
    """What a step has written to the log, which begins at a place in the file."""

    log: Path
    start: int

    def lines(self) -> list[str]:
        """Return the lines that there are by now."""
        with self.log.open("rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace").splitlines()

    def progress(self) -> str:
        """Return how much is done and how long the rest takes, or nothing if the step has not said so."""
        matches = map(PROGRESS.fullmatch, reversed(self.lines()))
        return next((match[1] for match in matches if match), "")


def _show_in_place(what: str, messages: _Messages, out: int, ended: Event) -> None:
    """Show on a terminal what a step does, how far it is, and for how long it has run."""
    began = time.monotonic()
    while True:
        text = f"{REWRITE}{what} … {duration(time.monotonic() - began)}"
        if progress := messages.progress():
            text += f", {progress}"
        os.write(out, text.encode())
        if ended.wait(1):
            return


def _show_seldom(what: str, messages: _Messages, out: int, ended: Event) -> None:
    """Write to a file how far a step is, if that has changed."""
    shown = ""
    while not ended.wait(SELDOM):
        if (progress := messages.progress()) and progress != shown:
            shown = progress
            os.write(out, f"{what}: {progress}\n".encode())
