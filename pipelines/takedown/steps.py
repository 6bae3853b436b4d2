"""Run the steps of a takedown that follow the writing of its tombstones, from where an earlier attempt stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pipelines.config.operate import Takedown
from pipelines.config.settings import Settings
from pipelines.errors import CorpusError, DataError
from pipelines.registry.candidate import Context
from pipelines.takedown import affected_models, host_caches, purge, rewrite
from pipelines.takedown.object_versions import Objects, remember, replaced
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redacted_tables import Left
from pipelines.takedown.redaction import Gone
from pipelines.vault import removals
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import workspace

Say = Callable[[str], None]


class TakedownUnfinished(DataError):
    """A takedown could not delete records in some storage places; all other places are done."""

    message = "Takedown {request} is not complete; these places could not be cleared: {detail}."
    remedy = (
        "The content is already unreadable. Fix the named errors, then run `corpus takedown run-pending`, which "
        "resumes this takedown."
    )
    exit_code = 75


def finish_all(requests: Sequence[TakedownRequest], **given: Any) -> None:
    """Finish takedown requests; one that cannot be completed does not block the others."""
    unfinished = None
    for request in requests:
        try:
            finish(request, **given)
        except TakedownUnfinished as error:
            unfinished = error
    if unfinished is not None:
        raise unfinished


def finish(
    request: TakedownRequest,
    *,
    settings: Settings,
    vault: Vault,
    terms: Takedown,
    now: datetime,
    context: Context | None,
    say: Say,
) -> None:
    """Run the remaining steps of a takedown; a storage place that fails keeps it open but does not stop the rest."""
    gone = Gone(vault.tombstones())
    request.pending = {}

    def note(step: str) -> Callable[[dict[str, int]], None]:
        return lambda counts: request.note(step, counts, settings=settings)

    if "rewrite" not in request.done:
        came = rewrite.run(
            gone, settings=settings, note=note("rewrite"), keep=partial(_keep, vault=vault, now=now),
            say=lambda what: say(f"rewrite {what}"),
        )  # fmt: skip
        request.commit = came.commit if came.changed or request.commit is None else request.commit
        say("rewrite committed")
        request.end_step("rewrite", settings=settings)
        say("rewrite")
    if "purge" not in request.done:
        _purge(request, gone, settings=settings, vault=vault, say=say)
    if "objects" not in request.done:
        _objects(request, gone, settings=settings, vault=vault, now=now, say=say)
    if "models" not in request.done:
        _models(request, gone, context=context, terms=terms, settings=settings, now=now, say=say)
    trained = request.steps.get("rewrite", {}).get("models", 0) or any(
        count for name, count in request.steps.get("models", {}).items() if "/" in name
    )
    if trained and request.weights_due is None:
        begun = datetime.fromisoformat(request.begun)
        request.weights_due = (begun + timedelta(days=terms.weights_days)).isoformat(timespec="seconds")
    if request.pending:
        request.save(settings)
        detail = ", ".join(f"{place} ({error})" for place, error in sorted(request.pending.items()))
        raise TakedownUnfinished(request=request.request, detail=detail)
    host_caches.announce(settings=settings, vault=vault)
    request.finish(now=now, vault=vault, settings=settings)
    say("receipt")


def _purge(request: TakedownRequest, gone: Gone, *, settings: Settings, vault: Vault, say: Say) -> None:
    site = purge.Site(gone, settings, vault, corpora_of(request.steps["rewrite"]))
    for place in purge.PLACES:
        try:
            request.note("purge", {place.name: place.count(site)}, settings=settings)
            say(f"purge {place.name} noted")
            # the noted count may be of an earlier attempt that deleted but did not yet erase
            if request.steps["purge"][place.name]:
                place.clear(site)
        except CorpusError as error:
            request.pending[place.name] = type(error).__name__
        say(f"purge {place.name}")
    if not request.pending:
        request.end_step("purge", settings=settings)
    say("purge")


def _keep(found: Sequence[Left], *, vault: Vault, now: datetime) -> None:
    removals.record(vault, [removals.Removal(*one, at=now) for left in found for one in left.lists])


def _objects(
    request: TakedownRequest, gone: Gone, *, settings: Settings, vault: Vault, now: datetime, say: Say
) -> None:
    with workspace(settings, folders=()) as clone, Objects.opened(clone) as objects:
        named = objects.named(gone)
        request.note("objects", {"objects": len(named), **objects.places(named)}, settings=settings)
        known = replaced(settings)
        fresh = [digest for digest in named if not (digest in known and objects.exists(known[digest][0]))]
        changes = {digest: objects.without(digest, gone) for digest in fresh}
        _keep([change.left for change in changes.values()], vault=vault, now=now)
        remember(changes, settings=settings)
        say("objects replaced")
        objects.remove([digest for digest in named if digest not in changes or changes[digest].digest != digest])
        request.note("objects", {"halves": objects.remove_halves(now=now)}, settings=settings)
        say("objects removed")
        request.note("objects", {"in_history": rewrite.in_history(clone, gone)}, settings=settings)
    request.end_step("objects", settings=settings)
    say("objects")


def _models(
    request: TakedownRequest,
    gone: Gone,
    *,
    context: Context | None,
    terms: Takedown,
    settings: Settings,
    now: datetime,
    say: Say,
) -> None:
    if context is None:
        request.note("models", {"no_registry": 1}, settings=settings)
    else:
        progress = affected_models.ModelsProgress(
            known=dict(request.steps.get("models", {})),
            promised=request.promised,
            note=lambda counts: request.note("models", counts, settings=settings),
            promise=lambda version, digest: request.promise(version, digest, settings=settings),
        )
        try:
            affected_models.run(
                gone, context=context, terms=terms, now=now, who=request.who, why=request.reason, progress=progress,
                say=lambda what: say(f"models {what}"),
            )  # fmt: skip
        except CorpusError as error:
            request.pending["models"] = type(error).__name__
            return
    request.end_step("models", settings=settings)
    say("models")


def corpora_of(counts: dict[str, int]) -> list[str]:
    """Return the corpora of which a file named a deleted record, from the counts of the step ``rewrite``."""
    return sorted(name.removeprefix(rewrite.OF) for name, n in counts.items() if n and name.startswith(rewrite.OF))
