"""Define the commands that register, promote, roll back and withdraw models, and record who decided and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import (
    STEPS,
    Approval,
    AsJson,
    Person,
    PersonIfAny,
    Reason,
    ReasonIfAny,
    RunOfApproval,
    argument,
    checked,
    completed,
    option,
)
from pipelines.cli.shared import Decider, doing, emit, open_registry, require_mlflow
from pipelines.core.config.settings import Settings
from pipelines.core.process import login

if TYPE_CHECKING:
    from pipelines.registry.candidate import Context
    from pipelines.registry.promotion.gate import GateVerdict
    from pipelines.registry.promotion.promote import Moved
    from pipelines.registry.webhook import Watch

app = typer.Typer()

MODELS = "the registered model: a name in section registry of params.yaml"
REGISTERED = checked("registered model", section="registry")
# a version outlives its entry in section registry: the journal decides
RECORDED = completed("registry")

# What a model can be asked about, by the content of its corpus.
EXAMPLES = {"texts": "a text", "images": "picture.png"}

Name = Annotated[str, argument(MODELS, "NAME", **REGISTERED)]
Recorded = Annotated[str, argument(MODELS, "NAME", **RECORDED)]
Version = Annotated[int, argument("the number of a version of this model, such as 3", "VERSION", min=1)]
# who registers a model for what reason, if a command does
REGISTER, SCORED = "corpus register", "trained and scored"
Base = Annotated[str | None, option("the corpus commit from which data and models are read; default: the newest")]


@app.command(rich_help_panel="Registry")
def register(
    names: Annotated[
        list[str] | None,
        argument("a model to register; default: all models of --corpus", "[NAME]...", **REGISTERED),
    ] = None,
    corpus: Annotated[str | None, option("register all models of this corpus", **checked("corpus"))] = None,
    base: Base = None,
    who: Person = REGISTER,
    why: Reason = SCORED,
) -> None:
    """Package the models in section registry of params.yaml and register those that are not registered yet."""
    if not names and corpus is None:
        raise typer.BadParameter("give the NAME of a model, or --corpus for all its models", param_hint="'NAME'")
    settings = Settings.from_env()
    if not settings.mlflow_tracking_uri:
        # as in `corpus track`
        emit({"skipped": "MLFLOW_TRACKING_URI is not set"})
        return
    emit({"registered": registered_of(settings, names, corpus=corpus, base=base, who=who, why=why)})


def registered_of(
    settings: Settings,
    names: list[str] | None = None,
    *,
    corpus: str | None = None,
    base: str | None = None,
    who: str = "",
    why: str = SCORED,
) -> dict[str, list[dict[str, Any]]]:
    """Register models, or all of a corpus; return the versions of each by name."""
    from pipelines.registry.packaging import register as stage
    from pipelines.registry.versions import entry
    from pipelines.workspace.scratch import temporary_files

    registered: dict[str, list[dict[str, Any]]] = {}
    who = who or f"{REGISTER} ({login()})"
    with open_registry(settings, base=base) as context, temporary_files(settings.home):
        wanted = {name: entry(name, params=context.params) for name in names or context.params.registry}
        for name, of in wanted.items():
            for chosen in of.candidates if names or of.corpus == corpus else ():
                version, new = stage.register(name, chosen=chosen, context=context, who=who, why=why)
                line = {"version": version.version, "model": chosen.model, "new": new}
                registered.setdefault(name, []).append(line)
    return registered


@app.command(rich_help_panel="Registry")
def gate(name: Name, version: Version, base: Base = None) -> None:
    """Compare a model version with the champion (version in use) on the test split; record if it may be promoted."""
    from pipelines.registry.promotion import gate as judge

    with open_registry(Settings.from_env(), name=name, base=base) as context:
        verdict = judge.run(name, version, context=context, who=f"{judge.WHO} ({login()})")
        emit(_verdict(verdict) | {"links": _links(verdict, context=context)})


@app.command(rich_help_panel="Registry")
def promote(
    name: Name,
    version: Version,
    *,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    approval: Approval = None,
    run: RunOfApproval = "",
    base: Base = None,
    dry_run: Annotated[bool, option("evaluate the version without promoting it; write nothing", "--dry-run")] = False,
    abandon: Annotated[
        bool, option("promote nothing; cancel the unfinished change of this model's champion", "--abandon")
    ] = False,
) -> None:
    """Make a model version the champion if it passes the gate (the comparison with the present champion)."""
    from pipelines.registry.promotion import promote as moves

    decision = Decider.from_options(who, why, approval=approval, run=run, subject=f"promote {name} {version}")
    with open_registry(Settings.from_env(), name=name, base=base) as context:
        options: dict[str, Any] = {"who": decision.who, "why": decision.why, "context": context}
        if abandon:
            emit(_moved(moves.abandon(name, **options)))
        else:
            moved = moves.promote(name, version, asked_by=decision.asked_by, dry_run=dry_run, **options)
            emit(_moved(moved))
            if moved.champion == version and not dry_run:
                _say_how_to_load(name, context=context)


@app.command(rich_help_panel="Registry")
def reject(
    name: Recorded,
    version: Version,
    *,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    approval: Approval = None,
    run: RunOfApproval = "",
) -> None:
    """Record that a person rejected a model version that had passed the gate (comparison with the champion)."""
    from pipelines.registry.promotion import promote as moves

    subject = f"promote {name} {version}"
    decision = Decider.from_options(who, why, approval=approval, run=run, subject=subject, yes=False)
    with open_registry(Settings.from_env()) as context:
        row = moves.reject(name, version, who=decision.who, why=decision.why, context=context)
        emit({"name": name, "version": version, "event": row.event, "row": row.number})


@app.command(rich_help_panel="Registry")
def rollback(
    name: Recorded,
    who: Person,
    why: Reason,
    leaving: Annotated[
        int | None,
        option("roll back only if this version is champion, so that a repeated command does not go further back"),
    ] = None,
) -> None:
    """Make the previous champion (promoted version) of a model the champion again."""
    from pipelines.registry.promotion import promote as moves

    with open_registry(Settings.from_env()) as context:
        emit(_moved(moves.rollback(name, who=who, why=why, context=context, leaving=leaving)))


@app.command(rich_help_panel="Registry")
def withdraw(name: Recorded, version: Version, who: Person, why: Reason) -> None:
    """Withdraw a model version permanently: it is no longer champion, and rollback skips it; its files are kept."""
    from pipelines.registry.promotion import promote as moves

    with open_registry(Settings.from_env()) as context:
        emit(_moved(moves.withdraw(name, version, who=who, why=why, context=context)))


@app.command(rich_help_panel="Registry")
def registry(
    name: Annotated[str | None, argument("the registered model to show; default: all", "[NAME]", **RECORDED)] = None,
    *,
    as_json: AsJson = False,
    records_of: Annotated[
        int | None, option("list only the ids of the records on which this version (number) of model NAME was trained")
    ] = None,
    versions_of: Annotated[
        list[str] | None, option("list only the model versions that were trained on the record with this id")
    ] = None,
) -> None:
    """Show each model's versions, their aliases, and the decisions about them with reasons and scores."""
    from pipelines.registry import show, transitions
    from pipelines.registry.journal import Journal
    from pipelines.registry.versions import Registry

    if records_of is not None and name is None:
        raise typer.BadParameter("needs the NAME of a model", param_hint="'--records-of'")
    settings = Settings.from_env()
    require_mlflow(settings)
    models = Registry.open(settings)
    if versions_of:
        emit(show.versions_of(versions_of, registry=models, settings=settings))
    elif records_of is not None and name is not None:
        emit(show.records_of(name, records_of, registry=models, settings=settings))
    else:
        with doing("reading the registry"), Journal.of(settings) as journal:
            shown = show.gather(name, registry=models, journal=journal, known=transitions.published_anchors(settings))
        if as_json:
            emit({"models": shown})
        else:
            show.render(shown)


@app.command(rich_help_panel="Registry")
def subscribe(
    url: Annotated[
        str | None, argument("the URL to which webhooks are sent; default: list the subscriptions", "[URL]")
    ] = None,
    name: Annotated[
        str | None, option("send webhooks about this registered model only; default: all", **RECORDED)
    ] = None,
    remove: Annotated[str | None, option("remove the webhook subscription with this id")] = None,
) -> None:
    """Subscribe a URL to webhooks about champion changes and drift; their signing secret is printed only now."""
    from pipelines.registry.webhook import check

    if url:
        check(url)
    with _watch() as watch:
        if remove:
            watch.unsubscribe(remove)
        if url:
            made = watch.subscribe(url, name=name)
            emit({"id": made.id, "name": made.name, "secret": made.secret})
        else:
            emit({"subscribers": watch.status()})


@app.command(rich_help_panel=STEPS)
def deliver() -> None:
    """Send due webhooks about champion changes and drift to their subscribers; a later run retries failed ones."""
    with _watch() as watch:
        emit(watch.deliver())


@contextmanager
def _watch() -> Iterator[Watch]:
    from pipelines.registry.journal import Journal
    from pipelines.registry.webhook import Watch

    with Journal.of(Settings.from_env()) as journal:
        yield Watch.open(journal)


def _say_how_to_load(name: str, *, context: Context) -> None:
    client = Path(__file__).resolve().parents[2] / "client"
    content = context.params.corpora[context.params.registry[name].corpus].content
    code = f'import crisis_corpus; print(crisis_corpus.load("{name}")(["{EXAMPLES[content]}"]))'
    typer.echo("Next, in an environment of its own:", err=True)
    if client.is_dir():
        typer.echo(f"  pip install {shlex.quote(str(client))}", err=True)
    typer.echo(f"  CORPUS_HOME={shlex.quote(str(context.settings.home))} python -c {shlex.quote(code)}", err=True)


def _moved(moved: Moved) -> dict[str, Any]:
    summary = {"name": moved.name, "champion": moved.champion, "already": moved.already}
    if moved.row is not None:
        summary |= {"event": moved.row.event, "row": moved.row.number}
    if moved.verdict is not None:
        summary |= _verdict(moved.verdict)
    return summary


def _links(verdict: GateVerdict, *, context: Context) -> dict[str, str]:
    """Return what an approver may want to open: the version, report and numbers in MLflow, and the commit."""
    from pipelines.registry import versions
    from pipelines.registry.versions import entry

    page = versions.page_of_version(context.settings, name=verdict.name, version=verdict.version)
    links = {"version": page} if page else {}
    if learnt := verdict.figures.get("candidate"):
        corpus, commit = entry(verdict.name, params=context.params).corpus, learnt["data_commit"]
        options: dict[str, Any] = {"corpus": corpus, "commit": commit, "client": context.registry.client}
        links |= {"commit": commit, **versions.pages_of_commit(context.settings, **options)}
    return links


def _verdict(verdict: GateVerdict) -> dict[str, Any]:
    from pipelines.registry.promotion.gate import summary

    names = ("name", "version", "champion", "passed", "reasons", "figures")
    return {name: getattr(verdict, name) for name in names} | {"text": summary(verdict)}
