"""Define the commands that examine a deployment, and those that plan (``corpus plan``)."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import AsJson, CorpusName, argument, checked, group, option
from pipelines.cli.shared import context, doing, emit, project_root, show, show_sheets
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.operate.doctor.doctor import Found

app = typer.Typer()
plan = group(
    "Estimate what a backfill, requests to providers, a fine-tuning or a paper's profile need before they start."
)
app.add_typer(plan, name="plan", rich_help_panel="Repository")
COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}


@app.command(rich_help_panel="Repository")
def doctor(
    as_json: AsJson = False,
    deep: Annotated[bool, option("compare all objects of DVC's cache with their digests, not only a sample")] = False,
    timeout: Annotated[float, option("the time limit of each check of the deployment, in seconds", min=0.1)] = 10,
) -> None:
    """Check the deployment and print how to fix each problem; the exit status is 1 if a check failed."""
    from pipelines.operate.doctor.doctor import examine

    findings = examine(Settings.from_env(), root=project_root(), now=now(), seconds=timeout, deep=deep)
    counts = Counter[str](finding.status for _, finding in findings)
    if as_json:
        for name, finding in findings:
            if finding.status != "ok":
                typer.echo(f"{finding.status} {name}: {finding.found}. {finding.fix}", err=True)
        emit({**{status: counts[status] for status in COLOURS}, "checks": [f.as_json(name) for name, f in findings]})
    else:
        _show(findings)
    if any(finding.late for _, finding in findings):
        # a check that never returns must not keep the process alive
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(counts["failure"] > 0)
    if counts["failure"]:
        raise typer.Exit(1)


def _show(findings: Found) -> None:
    """Print a table at a terminal, else a line per check."""
    if not sys.stdout.isatty():
        for name, finding in findings:
            sys.stdout.write(f"{finding.status:8} {name}: {finding.found}{f'. {finding.fix}' if finding.fix else ''}\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("check", "status", "found", "fix")
    for name, finding in findings:
        status = f"[{COLOURS[finding.status]}]{finding.status}[/]"
        table.add_row(name, status, finding.found, finding.fix)
    Console().print(table)


@plan.command("backfill")
def backfill(
    corpus: CorpusName,
    first: Annotated[str, option("the first month of the backfill, YYYY-MM", "--from")],
    last: Annotated[str, option("the last month of the backfill, YYYY-MM", "--to")],
    as_json: AsJson = False,
) -> None:
    """Estimate runs, requests, time, cost and disk space of a backfill, and list the Dags that it triggers."""
    from pipelines.operate import backfill as planned

    made = planned.plan(Settings.from_env(), corpus=corpus, first=first, last=last, root=project_root())
    show(made, planned.lines(made), as_json=as_json)


@plan.command("train")
def train(
    model: Annotated[str, argument("a model of kind sft in section models of catalogue.yaml", **checked("model"))],
    gpus: Annotated[
        int | None, option("the number of GPUs; default: as many of --memory GB as are needed", min=1)
    ] = None,
    memory: Annotated[float, option("the memory of one GPU in GB", min=1)] = 80,
    as_json: AsJson = False,
) -> None:
    """Compute the GPU memory, main memory and disk space of fine-tuning a causal model, without loading it."""
    from pipelines.models.kinds.sft import preflight

    required = preflight.requirements(model, params=load(), gpus=gpus, card=int(memory * 10**9))
    show(required.as_json(), required.lines(), as_json=as_json)


@plan.command("cost")
def cost(
    corpus: CorpusName,
    step: Annotated[
        list[str] | None,
        option("votes, injection_test, rationales, predict or moderation; default: all"),
    ] = None,
) -> None:
    """Estimate the cost of the steps that ask providers, and list who would receive what; nothing is sent."""
    from pipelines.operate.plan import cost as planned

    with context(corpus) as ctx:
        emit(planned.run(ctx, steps=step or ()))


@plan.command("profile")
def profile(
    name: Annotated[
        str,
        argument("a profile whose name begins with that of a file in papers/, such as NAME or NAME-2027", "PROFILE"),
    ],
    as_json: AsJson = False,
) -> None:
    """List every row of a paper's table: what runs, what it needs, and what is missing, with the command for it."""
    from pipelines.operate.plan import profile as planned

    settings, root = Settings.from_env(), project_root()
    planned.paper_of(name, root=root)
    with doing("reading the profile and the corpus repository"):
        params, published = planned.parameters(name, settings=settings, root=root)
        made = planned.plan(name, params=params, settings=settings, root=root, today=now().date(), published=published)
    if as_json:
        emit(made)
    else:
        show_sheets([planned.sheet(made)], as_json=False, note="\n".join(planned.lines(made)))
