"""Define the commands that Airflow tasks run: steps and stages in temporary clones, and commits of their results."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer

from pipelines.cli.options import STEPS, CorpusName, Month, argument, group, option
from pipelines.cli.shared import emit, open_vault
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.process import now

app = typer.Typer()
steps = group("Commands that Airflow tasks run: steps and stages in temporary clones, and commits of their results.")
app.add_typer(steps, name="task", rich_help_panel=STEPS)


@steps.callback()
def prepare() -> None:
    """Clear the caches of this host if a takedown has run on another one: a vault that is a file has one host."""
    settings = Settings.from_env()
    if not settings.vault_url.startswith("sqlite"):
        from pipelines.takedown import hosts

        with open_vault(settings) as vault:
            hosts.follow(settings=settings, vault=vault, now=now())


def _commit(value: str) -> str:
    # another name, such as a branch or an option of git, could lead to code that no publish has checked
    if not re.fullmatch("[0-9a-f]{40}", value):
        raise BadParams(where="--base", detail="needs a commit: 40 hexadecimal digits")
    return value


Base = Annotated[str, option("the commit of the corpus branch on which the run works", callback=_commit)]
RunName = Annotated[str, option("the id of the Dag run; a stage accepts results of this run only", "--run")]
Results = Annotated[str, option("signed result references (tokens) of upstream stages as a JSON list; - reads stdin")]
Pointers = Annotated[str, option("JSON object that maps each data file to the text of its .dvc file; - reads stdin")]


@steps.command("step", context_settings={"ignore_unknown_options": True})
def step(
    argv: Annotated[list[str], argument("the command after `corpus`, and its arguments")],
    pointers: Pointers = "{}",
    out: Annotated[list[str] | None, option("a glob of files that the command writes")] = None,
) -> None:
    """Run a command of corpus in a temporary clone; print DVC pointers to the files that match the --out globs."""
    from pipelines.operate import tasks

    emit(tasks.step(argv, settings=Settings.from_env(), out=out or [], pointers=_json(pointers)))


@steps.command("pin")
def pin(
    corpus: Annotated[str, option("the corpus of the months of --woken-by")] = "",
    woken_by: Annotated[
        list[str] | None, option("a commit that this branch got with a month that triggered the run")
    ] = None,
) -> None:
    """Print the newest commit of the corpus branch, and whether a month later than all of --woken-by is published."""
    from pipelines.workspace.publish import head, later_month

    settings = Settings.from_env()
    later = bool(woken_by) and later_month(settings, corpus=corpus, commits=woken_by or ())
    emit({"commit": head(settings), "later": later})


@steps.command("stage")
def stage(
    stages: Annotated[list[str], argument("the stages to run, such as dedupe@forum")],
    base: Base,
    run: RunName,
    results: Results = "[]",
) -> None:
    """Run stages of dvc.yaml in a temporary clone, in order, and print signed references to their results."""
    from pipelines.operate import tasks

    with tasks.stage_run(Settings.from_env(), base=base, run=run, results=_json(results)) as (clone, context):
        tokens = []
        for name in stages:
            tokens.append(tasks.reproduce(name, context=context))
            if name != stages[-1]:
                clone.take(context.receive(tokens[-1:]))
        emit({"results": tokens})


@steps.command("label")
def label(
    corpus: CorpusName,
    labeller: Annotated[str, argument("the labeller: a name in section labellers of catalogue.yaml")],
    shard: Annotated[int, argument("the shard (numbered part of the records), from 0")],
    *,
    base: Base,
    run: RunName,
    results: Results = "[]",
    wait: Annotated[bool, option("wait for the labeller's answers, or exit after submitting its batch jobs")] = True,
) -> None:
    """Request labels from one labeller (a model) for one shard (part) of the records in a commit's split."""
    argv = ("label", corpus, "--labeller", labeller, "--shard", str(shard), "--wait" if wait else "--no-wait")
    _ask(corpus, *argv, base=base, run=run, results=results)


@steps.command("estimate")
def estimate(
    corpus: CorpusName,
    steps: Annotated[list[str], argument("the steps that ask providers, such as votes or moderation")],
    *,
    base: Base,
    run: RunName,
    results: Results = "[]",
) -> None:
    """Estimate the cost of steps that ask providers about the records of a commit, and list the jobs of labellers."""
    argv = ("plan", "cost", corpus, *(word for step in steps for word in ("--step", step)))
    _ask(corpus, *argv, base=base, run=run, results=results)


@steps.command("agreement")
def agreement(
    corpus: CorpusName, name: Annotated[str, argument("the annotation round to summarise")], base: Base, run: RunName
) -> None:
    """Measure the agreement of annotators in all annotation rounds of a commit; print a summary of one round."""
    from pipelines.evaluate.report.agreement_tables import summary
    from pipelines.operate import tasks

    with tasks.stage_run(Settings.from_env(), base=base, run=run, results=[]) as (clone, context):
        clone.take(context.receive([context.reproduce(f"agreement@{corpus}")]))
        clone.checkout(f"snapshot/{corpus}/agreement")
        emit({"base": clone.head, "text": summary(clone.path, corpus, name=name)})


@steps.command("approve")
def approve(
    subject: Annotated[str, argument("what the person approves or rejects, such as `promote forum-help 2`")],
    run: RunName,
) -> None:
    """Read the decision of an Airflow user from stdin as JSON; print it as a token signed with the project secret."""
    from pipelines.registry.journal import ApprovalRecord

    answer = ApprovalRecord.answered(subject=subject, run=run, **_json("-"))
    emit({"token": answer.token(Settings.from_env().secret())})


@steps.command("publish-partition")
def publish_partition(corpus: CorpusName, month: Month, pointers: Pointers, run: RunName | None = None) -> None:
    """Commit the .dvc files of one month's data to the corpus branch."""
    from pipelines.operate import tasks

    emit(tasks.publish_month(corpus, month, settings=Settings.from_env(), pointers=_json(pointers), run=run))


@steps.command("champions")
def champions(corpus: CorpusName) -> None:
    """Commit the version numbers of the champions (promoted models) that the stage batch_predict runs on a corpus."""
    from pipelines.operate import tasks

    emit(tasks.publish_champions(corpus, settings=Settings.from_env()))


@steps.command("drift")
def drift(corpus: CorpusName) -> None:
    """Print which champions' (promoted models') predictions have drifted in a month, and send webhooks about it."""
    from pipelines.registry import webhook

    emit(webhook.notify_drift(corpus, settings=Settings.from_env()))


@steps.command("publish-snapshot")
def publish_snapshot(
    corpus: CorpusName,
    targets: Annotated[list[str], argument("the last stages of the run; the commit's subject names them")],
    *,
    base: Base,
    run: RunName,
    results: Results,
    below: Annotated[
        list[str] | None, option("a stage of another Dag; commit nothing if a result of it was committed after --base")
    ] = None,
) -> None:
    """Commit the results of a Dag run's stages (dvc.lock and metrics) to the corpus branch."""
    from pipelines.operate import tasks

    options: dict[str, Any] = {"base": base, "run": run, "results": _json(results), "below": below or ()}
    emit(tasks.publish_stages(corpus, targets, settings=Settings.from_env(), **options))


def _ask(corpus: str, *argv: str, base: str, run: str, results: str) -> None:
    from pipelines.operate import tasks

    emit(tasks.ask(corpus, argv, settings=Settings.from_env(), base=base, run=run, results=_json(results)))


def _json(text: str) -> Any:
    return json.loads(sys.stdin.read() if text == "-" else text)
