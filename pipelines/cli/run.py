"""Define the command that runs a corpus without Airflow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli import annotate, registry
from pipelines.cli.options import EXISTING, argument, option
from pipelines.cli.shared import emit, project_root
from pipelines.core.config.base import CORPORA
from pipelines.core.config.settings import Settings, local_registry
from pipelines.core.errors import BadParams, DataError

app = typer.Typer()
# Lines of a failed step's messages that are shown; the log has all.
SHOWN = 12
REWRITE = "\r\x1b[K"


@app.command(rich_help_panel="Repository")
def run(
    name: Annotated[str, argument("the corpus, such as that of a folder in corpora/", "NAME")],
    months: Annotated[
        str | None, option("the months to collect, such as 2022-11..2022-12; default: those of the corpus")
    ] = None,
    labels: Annotated[Path | None, option("labels to import, as `corpus import` does", **EXISTING)] = None,
    to: Annotated[
        str, option("the last stage to run, such as split; default: all, and models are registered")
    ] = "report",
    dry_run: Annotated[bool, option("print what would run; change nothing", "--dry-run")] = False,
) -> None:
    """Run a corpus here, without Airflow: months, labels, stages, registered models; go on after an interruption."""
    from pipelines.operate import run as whole
    from pipelines.workspace import repository
    from pipelines.workspace.git import branches

    settings, root = Settings.from_env(), project_root()
    if (root / CORPORA / name / "profile.yaml").is_file() and not dry_run:
        repository.prepare(settings, checkout=root, profile=name)
    elif dry_run and not branches(settings.repo):
        emit({"would": f"create the corpus repository with {CORPORA}/{name}, and run all its months and stages"})
        return
    log = settings.home / "logs" / f"run-{name}.log"
    made = whole.CorpusRun(settings, name, lambda what: _doing(what, log), lambda text: typer.echo(text, err=True), to)
    if to not in made.steps():
        raise BadParams(where="--to", detail=f"is not one of {', '.join(made.steps())}")
    if dry_run:
        emit({"months": made.months(months), "stages": {dag: made.stages(dag)[0] for dag in whole.DAGS}})
        return
    with whole.alone(settings, name):
        if to == "report":
            # before models are trained: MLflow gets their figures
            settings = made.settings = local_registry(settings)
        for month in made.months(months):
            made.month(month)
        if labels:
            annotate.import_(name, [labels], mapping=None)
        waits = str(DataError("NoLabels", corpus=name)) if made.dags() else ""
        registered = {}
        if to == "report" and not waits:
            registered = registry.registered_of(settings, corpus=name)
            made.scoring()
    _end(settings, name, waits=waits, registered=registered)


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
    """Show a step with its time; its messages go to the log, and those of a failed step to the terminal, too."""
    began, terminal = time.monotonic(), sys.stderr.isatty()
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if terminal:
        sys.stderr.write(f"{REWRITE}{what} …")
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    start = os.fstat(file).st_size
    os.dup2(file, 2)
    os.close(file)
    failed = True
    try:
        yield
        failed = False
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        if failed:
            lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
            sys.stderr.write("\n".join(["", *lines[-SHOWN:], ""]))
    sys.stderr.write(f"{REWRITE * terminal}{what}: {time.monotonic() - began:.0f} s\n")
