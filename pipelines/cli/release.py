"""Define the commands of releases, of copies for a hub, and of bundles of labellers' answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import (
    EXISTING,
    Approval,
    AsJson,
    CorpusName,
    Person,
    PersonIfAny,
    Reason,
    ReasonIfAny,
    RunOfApproval,
    Yes,
    argument,
    checked,
    group,
    month_of,
    option,
)
from pipelines.cli.registry import Name as ModelName
from pipelines.cli.registry import Version
from pipelines.cli.shared import Decider, confirm, context, decided, doing, emit, open_registry, open_vault, opened
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.core.config.collect import Use
    from pipelines.release.export.hub import Hub

app = typer.Typer()
releases = group("Draft, approve and update releases: packages of labels and ids, without the content of posts.")
app.add_typer(releases, name="release", rich_help_panel="Release")

Name = Annotated[str, argument("the release's name, such as forum-2026-1", "NAME")]


@releases.command("make")
def make(
    corpus: CorpusName,
    name: Name,
    to: Annotated[Path | None, option("the folder of the release package; default: CORPUS_HOME/releases/NAME")] = None,
) -> None:
    """Write a draft release (labels, ids and splits of a corpus), replacing an earlier draft of the same name."""
    from crisis_corpus.versions import RegistryUnavailable
    from pipelines.registry import versions
    from pipelines.release import package
    from pipelines.workspace.clone import workspace

    with opened() as (settings, vault), workspace(settings) as clone, doing("writing the package"):
        params = load(clone.path)
        clone.checkout(*package.inputs(corpus, params=params))
        clone.checkout_months(corpus, "records.parquet")
        options: dict[str, Any] = {"params": params, "settings": settings, "vault": vault, "root": clone.path}
        made = package.run(corpus, terms=params.release, name=name, now=now(), to=to, **options)
    links = {"commit": made["commit"]}
    with suppress(RegistryUnavailable):
        links |= versions.pages_of_commit(settings, corpus=corpus, commit=made["commit"])
    emit(made | {"links": links})


def _permit(use: Use, name: str, *, settings: Settings) -> None:
    """Refuse a use of a release that the approvals of its corpus's sources do not cover today."""
    from pipelines.release.release_store import ReleaseEntry
    from pipelines.store import approvals
    from pipelines.workspace.clone import workspace

    corpus = ReleaseEntry.of(settings, name).state()["corpus"]
    with workspace(settings) as clone:
        clone.checkout_months(corpus, "records.parquet")
        sources = approvals.sources_of(corpus, params=load(clone.path), root=clone.path)
    approvals.require(use, sources, today=now().date())


@releases.command("approve")
def approve(
    name: Name, who: PersonIfAny = None, why: ReasonIfAny = None, answer: Approval = None, run: RunOfApproval = ""
) -> None:
    """Approve a draft release for use by others; `corpus release make` cannot replace it afterwards."""
    from pipelines.release import access

    settings = Settings.from_env()
    decision = Decider.from_options(who, why, approval=answer, run=run, subject=f"release {name}")
    _permit("release", name, settings=settings)
    with open_vault(settings) as vault:
        emit(access.approve(name, who=decision.who, why=decision.why, settings=settings, vault=vault, now=now()))


@releases.command("retire")
def retire(name: Name, who: Person, why: Reason) -> None:
    """Retire an approved release, so that the corpus can have another; its list of removed ids is still updated."""
    from pipelines.release import access

    emit(access.retire(name, who=who, why=why, settings=Settings.from_env(), now=now()))


Number = Annotated[int, argument("the number of a request for the release", "NUMBER", min=1)]


@releases.command("request")
def request(
    name: Name,
    researcher: Annotated[str, option("the researcher who asks, by name", "--for")],
    institution: Annotated[str, option("the institution at which they work")],
    purpose: Annotated[str, option("the academic, non-commercial purpose, in one line")],
) -> None:
    """Enter a researcher's request for a release into its register."""
    from pipelines.release import access

    asked = {"researcher": researcher, "institution": institution, "purpose": purpose}
    emit(access.request(name, **asked, settings=Settings.from_env(), now=now()))


@releases.command("grant")
def grant(
    name: Name,
    number: Number,
    who: Person,
    why: Reason,
    expires: Annotated[
        datetime, option("the last day before which the release may be handed over", formats=["%Y-%m-%d"])
    ],
) -> None:
    """Grant a request for a release until a day."""
    from pipelines.release import access

    settings, last = Settings.from_env(), expires.date()
    emit(access.decide(name, number, grant=True, who=who, why=why, expires=last, settings=settings, now=now()))


@releases.command("deny")
def deny(name: Name, number: Number, who: Person, why: Reason) -> None:
    """Deny a request for a release, or end a grant."""
    from pipelines.release import access

    emit(access.decide(name, number, grant=False, who=who, why=why, settings=Settings.from_env(), now=now()))


@releases.command("hand-over")
def hand_over(
    name: Name, number: Number, to: Annotated[Path, option("a new folder for the package and, apart from it, the key")]
) -> None:
    """Copy an approved release and its key for a researcher whose request is granted."""
    from pipelines.release import access

    settings = Settings.from_env()
    _permit("release", name, settings=settings)
    emit(access.hand_over(name, number, to=to, settings=settings, now=now()))


@releases.command("requests")
def requests(name: Annotated[str | None, argument("one release; default: all", "[NAME]")] = None) -> None:
    """List the requests for releases with the decisions and the days on which a release was handed over."""
    from pipelines.release import access

    emit({"requests": access.register(Settings.from_env(), name=name, now=now())})


@releases.command("list")
def list_() -> None:
    """List the releases with their status and their number of removed records."""
    from pipelines.release import release_store

    emit({"releases": release_store.summary(Settings.from_env())})


@releases.command("refresh")
def refresh(
    at_once: Annotated[
        bool, option("remove all deleted records now, before their scheduled day and however few they are", "--at-once")
    ] = False,
) -> None:
    """Remove from all releases the deleted records whose removal is due, and add their ids to the removal lists."""
    from pipelines.release import removal

    with opened() as (settings, vault):
        emit({"releases": removal.refresh(settings=settings, vault=vault, now=now(), at_once=at_once)})


export = group(
    "Write a release or a model as a folder for the Hugging Face Hub; push, list and remove copies on the Hub."
)
app.add_typer(export, name="export", rich_help_panel="Release")

Repo = Annotated[str, option("the repository on the Hub that it is for: OWNER/NAME", "--repo")]
To = Annotated[Path, option("a new or empty folder to write to", "--to")]
Send = Annotated[bool, option("change the Hub; without this option, only print what would be changed", "--send")]


@export.command("release")
def release(name: Name, repo: Repo, to: To) -> None:
    """Write an approved release as a dataset folder: card, Croissant, a Parquet file for each split, its package."""
    from pipelines.release.export import release_folder

    with opened() as (settings, vault):
        _permit("export", name, settings=settings)
        emit(release_folder.run(name, repo=repo, to=to, settings=settings, vault=vault, now=now()))


@export.command("model")
def model(name: ModelName, version: Version, repo: Repo, to: To) -> None:
    """Write a registered model version as a model folder: card, safetensors, settings, tokenizer and licence."""
    from pipelines.release.export import model_folder

    with open_registry(Settings.from_env()) as context:
        emit(model_folder.run(name, version, repo=repo, to=to, context=context))


@export.command("push")
def push(
    folder: Annotated[Path, argument("a folder that `corpus export` wrote", "FOLDER")],
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which files of a folder would be sent to the Hub; with --send, replace the repository's content by them."""
    with _opened() as hub:
        planned = hub.plan(folder)
        if not send:
            emit(planned | {"sent": False})
            return
        person, reason = decided(who, why)
        count, place = len(planned["files"]), f"{planned['repo']} on {planned['hub']}"
        confirm(f"sends {count} files to {place} and deletes all earlier files there", count=count, yes=yes)
        with doing("sending the files"):
            emit(hub.push(folder, who=person, why=reason) | {"sent": True})


@export.command("remove")
def remove(
    repo: Annotated[str, argument("a repository that was pushed from here", "OWNER/NAME")],
    kind: Annotated[str, option("the kind of repository: dataset or model")] = "dataset",
    *,
    send: Send = False,
    who: PersonIfAny = None,
    why: ReasonIfAny = None,
    yes: Yes = False,
) -> None:
    """Print which repository would be deleted from the Hub; with --send, delete it with its history."""
    if kind not in ("dataset", "model"):
        raise typer.BadParameter("is neither dataset nor model", param_hint="'--kind'")
    options: dict[str, Any] = {"kind": kind}
    with _opened() as hub:
        planned = hub.remove(repo, who="", why="", send=False, **options)
        if not send:
            emit(planned)
            return
        person, reason = decided(who, why)
        confirm(f"deletes the repository {repo} on {planned['hub']} with its history", count=1, yes=yes)
        emit(hub.remove(repo, who=person, why=reason, **options))


@export.command("list")
def list_copies(as_json: AsJson = False) -> None:
    """List the copies on the Hub, which of them are outdated, and the commands that replace or remove them."""
    with _opened() as hub:
        listed = hub.listing()
    if as_json:
        emit({"copies": [asdict(copy) for copy in listed]})
        return
    for copy in listed:
        typer.echo(f"{copy.hub} {copy.kind} {copy.repo}: {copy.of}, {copy.state}{f': {copy.why}' if copy.why else ''}")
        if copy.do:
            typer.echo(f"  {copy.do}")
    if not listed:
        typer.echo("The journal has no copies on the Hub.")


@contextmanager
def _opened() -> Iterator[Hub]:
    from pipelines.registry.journal import Journal
    from pipelines.release.export.hub import Hub

    settings = Settings.from_env()
    with open_vault(settings) as vault, Journal.of(settings) as journal:
        yield Hub(settings, journal, vault, now())


answers = group(
    "Export what labellers answered, without content, and import it where the answers are no longer stored."
)
app.add_typer(answers, name="answers", rich_help_panel="Release")


def _months(values: list[str] | None) -> list[str]:
    return [month_of(value) for value in values or ()]


@answers.command("export")
def export_answers(
    corpus: CorpusName,
    file: Annotated[Path, argument("the new file of the bundle", "FILE")],
    labeller: Annotated[
        str, option("the labeller: a name in section labellers of catalogue.yaml", "--model", **checked("labeller"))
    ],
    months: Annotated[
        list[str] | None,
        option("only records of this month, YYYY-MM; several: repeat", "--month", callback=_months),
    ] = None,
) -> None:
    """Write what a labeller answered about the items of a corpus as a signed bundle; its key file is apart from it."""
    from pipelines.release import answer_bundles

    if file.exists():
        raise typer.BadParameter(f"{file} exists already; name a new file", param_hint="'FILE'")
    with context(corpus, row=labeller) as ctx, doing("reading the stored answers"):
        emit(answer_bundles.export(ctx, to=file, months=months or ()))


@answers.command("import")
def import_answers(
    file: Annotated[Path, argument("a bundle that `corpus answers export` wrote", "FILE", **EXISTING)],
    *,
    key: Annotated[
        Path | None, option("the bundle's key file, unless the bundle was exported here", "--key", **EXISTING)
    ] = None,
    removal: Annotated[
        Path | None, option("the newest removal list of the bundle, if it is newer than the file", **EXISTING)
    ] = None,
    corpus: Annotated[str | None, option("the corpus here; default: the bundle's", **checked("corpus"))] = None,
    labeller: Annotated[
        str | None, option("the labeller here; default: the bundle's", "--model", **checked("labeller"))
    ] = None,
    write: Annotated[
        bool, option("store the answers; without this option, only print what would be stored", "--write")
    ] = False,
) -> None:
    """Print which answers of a bundle match requests of the corpus; with --write, store these answers."""
    from pipelines.release import answer_bundles

    held = answer_bundles.read_key(key) if key else answer_bundles.key_of(file, settings=Settings.from_env())
    bundle = held.read(file)
    removed = held.read(removal).removed if removal else ()
    with context(corpus or bundle.corpus, row=labeller or bundle.labeller) as ctx, doing("comparing the requests"):
        ctx.described("labeller", ctx.params.labellers)
        emit(answer_bundles.bring(ctx, bundle, key=held, removed=removed, store=write))
