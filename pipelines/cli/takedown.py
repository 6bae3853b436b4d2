"""Define the commands that re-check posts on Reddit, take records down and report retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import EXISTING, AsJson, CorpusName, Yes, month_of, option
from pipelines.cli.shared import confirm, doing, emit, open_vault, opened, records, say, show_sheets
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.registry.candidate import Context
    from pipelines.store.vault.vault import Vault
    from pipelines.takedown.receipts import TakedownRequest
    from pipelines.takedown.selection import Criteria

app = typer.Typer()
takedowns = typer.Typer(invoke_without_command=True)
app.add_typer(takedowns, name="takedown", rich_help_panel="Privacy")

Who = Annotated[str, option("the requester's name; stored in the receipt of the takedown")]
DryRun = Annotated[bool, option("count what would be removed in each store; change nothing", "--dry-run")]


Scan = Annotated[
    bool, option("read every object of every version, whatever the index of records says; takes longer", "--scan")
]


@takedowns.callback()
def takedown(
    context: typer.Context,
    *,
    post: Annotated[
        list[str] | None, option("take down this post: Reddit id, fullname or URL, or SCHEME:ID of another source")
    ] = None,
    author: Annotated[list[str] | None, option("take down all posts of this Reddit user")] = None,
    image: Annotated[list[str] | None, option("take down posts with this picture: a file or its SHA-256")] = None,
    subreddit: Annotated[list[str] | None, option("take down all posts of this subreddit")] = None,
    source: Annotated[
        list[str] | None, option("take down all posts of this source, a name under sources in params.yaml")
    ] = None,
    file: Annotated[
        list[Path] | None,
        option(
            "take down what this file lists, then delete the file: one post, u/NAME or SHA-256 of a picture per "
            "line; - is the standard input, which other users of the host cannot see, unlike arguments"
        ),
    ] = None,
    near: Annotated[bool, option("also take down near-duplicates of the selected pictures", "--near")] = False,
    reason: Annotated[
        str | None, option("the reason: a short code or the number of the request; required without --dry-run")
    ] = None,
    who: Who = "corpus takedown",
    dry_run: DryRun = False,
    scan: Scan = False,
    yes: Yes = False,
) -> None:
    """Delete posts wherever they are stored, also in old corpus versions; repeat the command if it was interrupted."""
    from pipelines.takedown.receipts import receipts
    from pipelines.takedown.selection import STDIN, Criteria
    from pipelines.takedown.takedown import check_reason

    if context.invoked_subcommand is not None:
        return
    if not dry_run:
        if reason is None:
            raise typer.BadParameter("a code or the number of the request is required", param_hint="'--reason'")
        check_reason(reason)
    settings = Settings.from_env()
    request = settings.home / "requests" / f"{reason}.txt"
    done = [receipt for receipt in receipts(settings) if receipt.reason == reason]
    if not dry_run and file == [request] and done and not request.exists():
        # the file is removed when all is done, but the worker may be killed before Airflow records the success
        emit(_with_next_step(_summary(done[-1])))
        return
    if missing := next((path for path in file or () if path != STDIN and not path.exists()), None):
        raise typer.BadParameter(f"there is no file {missing}", param_hint="'--file'")
    kinds = ("records", "authors", "images", "subreddits", "sources", "files")
    given: list[Any] = [tuple(each or ()) for each in (post, author, image, subreddit, source, file)]
    asked = Criteria(near=near, **dict(zip(kinds, given, strict=True)))
    _forget_index(settings, scan=scan, dry_run=dry_run)
    with open_vault(settings) as vault:
        options: dict[str, Any] = {"dry_run": dry_run, "yes": yes, "settings": settings, "vault": vault}
        done_now = _with_next_step(_taken_down(asked, reason=reason or "", who=who, **options))
        emit(done_now if dry_run else done_now | _on_hub(settings, vault=vault))
    for path in (file or ()) if not dry_run else ():
        if path != STDIN:
            path.unlink(missing_ok=True)


def _month_if_any(value: str | None) -> str | None:
    return None if value is None else month_of(value)


@app.command(rich_help_panel="Privacy")
def access(
    month: Annotated[
        str | None, option("only openings in this calendar month, YYYY-MM", callback=_month_if_any)
    ] = None,
    record: Annotated[
        str | None, option("only openings of this record: its id, or the Reddit fullname of its post, such as t3_abc")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who opened the content of how many items (notebooks, `corpus errors --content`), when and why."""
    from pipelines.metrics.label_tables import Sheet
    from pipelines.store.vault import access as store
    from pipelines.takedown.redaction import TOKEN

    with opened() as (_, vault):
        rows = [row for row in store.every(vault) if month is None or f"{row.at:%Y-%m}" == month]
        if record is not None:
            record_id = record if TOKEN.fullmatch(record) else vault.record_id(record)
            rows = [row for row in rows if row.names(record_id)]
    if as_json:
        columns = ("number", "who", "why", "corpus", "items")
        emit({"access": [{"at": row.at.isoformat()} | {name: getattr(row, name) for name in columns} for row in rows]})
        return
    lines = tuple((f"{row.at:%Y-%m-%d %H:%M}", row.who, row.corpus, f"{row.items:,}", row.why) for row in rows)
    sheet = Sheet("Content opened by people", ("time (UTC)", "who", "corpus", "items", "why"), lines)
    show_sheets([sheet] if rows else [], as_json=False, note="" if rows else "No content was opened.")


@app.command(rich_help_panel="Privacy")
def sweep(
    corpus: CorpusName,
    dry_run: Annotated[bool, option("count the posts that would be checked; send no request", "--dry-run")] = False,
    believe: Annotated[
        bool,
        option(
            "record posts as missing even above the limits sweep.max_missing and sweep.max_gone; first check "
            "there that they are gone",
            "--believe",
        ),
    ] = False,
) -> None:
    """Check whether posts still exist at their source, newer ones more often; mark deleted ones for a takedown."""
    from pipelines.takedown import sweep as stage
    from pipelines.takedown.selection import published
    from pipelines.workspace.clone import workspace

    with opened() as (settings, vault), workspace(settings) as clone:
        params = load(clone.path, parts=False)
        if dry_run:
            asked = [*stage.lookups(params, corpus=corpus).values()]
            emit(stage.dry_run(corpus, sources=asked, terms=params.sweep, vault=vault, now=now()))
            return
        options: dict[str, Any] = {"params": params, "terms": params.sweep, "vault": vault, "now": now()}
        sources = stage.clients(corpus, params=params, settings=settings, today=now().date())
        homes = partial(published, settings, corpus=corpus, column="subreddit")
        emit(stage.run(corpus, sources=sources, homes=homes, believe=believe, say=say, **options))


@app.command(rich_help_panel="Privacy")
def retention() -> None:
    """Count stored records, and those whose retention or approval has ended, by corpus, source and month."""
    from pipelines.takedown import selection as stage
    from pipelines.takedown.selection import check_out
    from pipelines.workspace.clone import workspace

    with opened() as (settings, vault), workspace(settings) as clone:
        params = load(clone.path, parts=False)
        check_out(clone, corpora=params.corpora)
        emit({"kept": stage.listing(params, vault, now=now(), root=clone.path, refreshed=settings.refresh_url)})


@takedowns.command("run-pending")
def run_pending(
    dry_run: DryRun = False,
    scan: Scan = False,
    yes: Yes = False,
    who: Who = "corpus takedown run-pending",
    tombstones: Annotated[
        Path | None,
        option(
            "after restoring a backup: a file of tombstones (deleted records); destroy their keys first", **EXISTING
        ),
    ] = None,
) -> None:
    """Delete records whose post was deleted or whose approval or retention ended; finish interrupted takedowns."""
    from pipelines.release import removal
    from pipelines.takedown import selection as kept
    from pipelines.takedown import sweep as asked_again
    from pipelines.takedown.receipts import read_tombstones
    from pipelines.takedown.selection import Criteria, check_out
    from pipelines.takedown.takedown import Deletion
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    _forget_index(settings, scan=scan, dry_run=dry_run)
    with open_vault(settings) as vault:
        saved = read_tombstones(tombstones) if tombstones else {}
        with workspace(settings) as clone:
            params = load(clone.path, parts=False)
            check_out(clone, corpora=params.corpora)
            due = kept.expired(params, vault, now=now(), root=clone.path, refreshed=settings.refresh_url)
            for corpus in params.corpora:
                due |= asked_again.due(vault, corpus)
        fresh = (due.keys() | saved.keys()) - vault.tombstoned(due.keys() | saved.keys())
        if fresh and not dry_run:
            _agree(len(fresh), yes=yes)
        replayed = vault.replay(saved) if not dry_run else 0
        done = []
        shared: dict[str, Any] = {"dry_run": dry_run, "yes": None, "settings": settings, "vault": vault}
        try:
            for reason in sorted(set(due.values())):
                asked = Criteria(records=tuple(sorted(r for r, why in due.items() if why == reason)))
                done.append(_taken_down(asked, reason=reason, who=who, **shared))
            if not dry_run:
                registry = partial(models, settings, vault=vault)
                deletion = Deletion(settings=settings, vault=vault, terms=params.takedown, now=now(), registry=registry)
                done += [_summary(receipt) for receipt in deletion.revisit()]
        finally:
            # on its own days, also if a place cannot be cleared now
            if not dry_run:
                removal.refresh(settings=settings, vault=vault, now=now())
        on_hub = {} if dry_run else _on_hub(settings, vault=vault)
    again = {key: sorted({c for takedown in done for c in takedown.get(key, ())}) for key in ("retrain", "measure")}
    summary = {"replayed": replayed, "due": dict(Counter(due.values())), "takedowns": done} | again
    emit(_with_next_step(summary) | on_hub)


def _with_next_step(summary: dict[str, Any]) -> dict[str, Any]:
    """Print, for each corpus that had one of the records, the command that runs what is due; return the summary."""
    for corpus in summary.get("measure", ()):
        fits = "fits the models that learnt from them anew, and " if corpus in summary["retrain"] else ""
        typer.echo(f"Next: corpus run {corpus}  # {fits}measures what remains", err=True)
    return summary


def _on_hub(settings: Settings, *, vault: Vault) -> dict[str, Any]:
    """Return under ``hub`` the copies on a hub that a person must replace or remove now; nothing if there are none.

    An altered journal is left to `corpus doctor`, because the records are deleted by now.
    """
    from crisis_corpus.journal import JournalBroken
    from pipelines.registry.journal import Journal

    with Journal.of(settings) as journal:
        try:
            journal.verify()
            if all(row.event != "pushing" for row in journal.rows()):
                return {}
            from pipelines.release.export.hub import Hub

            listed = Hub(settings, journal, vault, now()).listing()
        except JournalBroken:
            return {"hub": "unknown, because the journal was altered; see `corpus doctor`"}
    late = [asdict(copy) for copy in listed if copy.state != "current"]
    return {"hub": late} if late else {}


@contextmanager
def models(settings: Settings, *, vault: Vault) -> Iterator[Context | None]:
    """Yield the model registry with its journal, or ``None`` if no MLflow tracking server is configured."""
    if not settings.mlflow_tracking_uri:
        yield None
        return
    from pipelines.registry.candidate import opened

    with opened(settings, vault=vault, parts=False) as context:
        yield context


def _forget_index(settings: Settings, *, scan: bool, dry_run: bool) -> None:
    """Empty the index of records for a person who asked for a scan."""
    from pipelines.takedown.object_versions import RecordIndex

    if scan and dry_run:
        raise typer.BadParameter("empties the index of records, which --dry-run does not", param_hint="'--scan'")
    if scan:
        RecordIndex.of(settings).clear(now=now())


def _agree(count: int, *, yes: bool) -> None:
    what = f"destroys the keys of {records(count)} and removes the records everywhere, old versions included"
    confirm(what, count=count, yes=yes)


def _taken_down(
    asked: Criteria, *, reason: str, who: str, dry_run: bool, yes: bool | None, settings: Settings, vault: Vault
) -> dict[str, Any]:
    """Take records down after a confirmation; ``yes`` is ``None`` if the person has confirmed it with others."""
    from pipelines.takedown.object_versions import Objects
    from pipelines.takedown.selection import select
    from pipelines.takedown.takedown import Deletion
    from pipelines.takedown.takedown import dry_run as counted
    from pipelines.workspace.clone import workspace

    with doing("searching all versions"), workspace(settings, folders=()) as clone, Objects.opened(clone) as objects:
        params = load(clone.path, parts=False)
        selection = select(asked, vault=vault, objects=objects, params=params, refreshed=settings.refresh_url)
    registry = partial(models, settings, vault=vault)
    options: dict[str, Any] = {"settings": settings, "vault": vault, "now": now(), "registry": registry}
    if dry_run:
        return counted(selection, **options)
    if yes is not None:
        _agree(len(selection.records) - len(vault.tombstoned(selection.records)), yes=yes)
    deletion = Deletion(terms=params.takedown, say=say, **options)
    return _summary(deletion.run(selection, reason=reason, who=who))


def _summary(receipt: TakedownRequest) -> dict[str, Any]:
    from pipelines.takedown.rewrite import FILES_OF, MODELS_OF
    from pipelines.takedown.stores import REPOSITORY

    names = ("request", "reason", "records", "selected", "steps", "commit", "ended", "tombstones", "weights_due")
    counts = receipt.steps.get(REPOSITORY, {})
    retrain, measure = (
        sorted(name.removeprefix(prefix) for name, n in counts.items() if n and name.startswith(prefix))
        for prefix in (MODELS_OF, FILES_OF)
    )
    return {name: getattr(receipt, name) for name in names} | {"retrain": retrain, "measure": measure}
