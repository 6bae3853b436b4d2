"""Take records down everywhere, in the order of steps in which each step makes the next one safe.

``tombstone`` → ``rewrite`` → ``purge`` → ``objects`` → ``models`` → ``receipt``. Once the tombstones are written, the
content is unreadable everywhere and cannot be collected again. From then on the tombstones define the deleted records,
and every step searches for all of them: what an earlier takedown left, because a task was running, is removed by the
next one. Steps can be repeated. An interrupted takedown is finished by repeating the command, by the next takedown, or
by :func:`revisit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, CorpusError, DataError
from pipelines.core.progress import silent
from pipelines.registry.candidate import Context, opened
from pipelines.store.vault import removals
from pipelines.store.vault.vault import Vault
from pipelines.takedown import affected_models, expiry, purge, receipts, rewrite
from pipelines.takedown.object_versions import Objects, remember, replaced
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.record_index import RecordIndex
from pipelines.takedown.redaction import Gone, Left
from pipelines.takedown.selection import Selection
from pipelines.workspace.clone import workspace

Say = Callable[[str], None]


class TakedownUnfinished(DataError):
    """A takedown could not delete records in some storage places; all other places are done."""


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

    if "rewrite" not in request.done:
        came = rewrite.run(
            gone, settings=settings, note=partial(request.note, "rewrite", settings=settings),
            keep=partial(_keep, vault=vault, now=now), say=lambda what: say(f"rewrite {what}"),
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
    purge.announce(settings=settings, vault=vault)
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
            request.pending[place.name] = error.code
        say(f"purge {place.name}")
    if not request.pending:
        request.end_step("purge", settings=settings)
    say("purge")


def _keep(changes: Sequence[Left], *, vault: Vault, now: datetime) -> None:
    removals.record(vault, [removals.Removal(*removal, at=now) for left in changes for removal in left.lists])


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
        try:
            affected_models.run(
                request, gone, context=context, terms=terms, now=now, say=lambda what: say(f"models {what}")
            )
        except CorpusError as error:
            request.pending["models"] = error.code
            return
    request.end_step("models", settings=settings)
    say("models")


def corpora_of(counts: dict[str, int]) -> list[str]:
    """Return the corpora of which a file named a deleted record, from the counts of the step ``rewrite``."""
    return sorted(name.removeprefix(rewrite.OF) for name, n in counts.items() if n and name.startswith(rewrite.OF))


# A code or the number of a request, shown in tombstones, commits and journal.
REASON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}")

STEPS = ("tombstone", "rewrite", "purge", "objects", "models")


def check_reason(reason: str) -> None:
    """Check that the reason of a takedown is a short code without prose."""
    if not REASON.fullmatch(reason):
        raise BadParams(
            "BadArgument", where="reason", detail="needs a code of 1 to 64 letters, digits and ._:/#-, no prose"
        )


def run(
    selection: Selection,
    *,
    reason: str,
    who: str,
    settings: Settings,
    vault: Vault,
    terms: Takedown,
    now: datetime,
    context: Context | None = None,
    say: Say = silent,
) -> TakedownRequest:
    """Delete records in all storage places; a repeated call changes nothing and returns the same receipt.

    Args:
        selection: the records to delete; ids of posts that were never collected get a tombstone, too.
        reason: a code of at most 64 characters, no prose.
        who: the requester, shown in the journal of models.
        settings: the locations of the storage places.
        vault: the open vault.
        terms: the share of deleted training records from which a model is withdrawn.
        now: the current time.
        context: registry and journal of models; ``None`` if none is configured: the step ``models`` is skipped.
        say: called after each action; tests kill the process there.
    """
    check_reason(reason)
    with receipts.alone(settings):
        going = receipts.opened(settings)
        mine = next((request for request in going if request.key == selection.key), None)
        if mine is None:
            done = [receipt for receipt in receipts.receipts(settings) if receipt.key == selection.key]
            if done and selection.records <= vault.tombstoned(selection.records):
                mine = done[-1]
            else:
                mine = receipts.begin(selection, reason=reason, who=who, now=now, settings=settings)
                mine.save(settings)
                say("opened")
        elif selection.records - vault.tombstoned(selection.records):
            # the open request waits for a place, and the selection has grown meanwhile: start from the first step
            mine.done, mine.records = [], max(mine.records, len(selection.records))
        if "tombstone" not in mine.done and mine.ended is None:
            fresh = len(selection.records) - len(vault.tombstoned(selection.records))
            mine.note("tombstone", {"fresh": fresh, "known": len(selection.records) - fresh}, settings=settings)
            say("tombstone noted")
            vault.destroy(selection.records, reason=mine.reason, now=now)
            mine.end_step("tombstone", settings=settings)
            say("tombstone")
        others = [request for request in going if request is not mine and "tombstone" in request.done]
        going = [request for request in (*others, mine) if request.ended is None]
        finish_all(going, settings=settings, vault=vault, terms=terms, now=now, context=context, say=say)
        return mine


def revisit(
    *, settings: Settings, vault: Vault, terms: Takedown, now: datetime, context: Context | None = None
) -> list[TakedownRequest]:
    """Finish open takedowns, delete again every record with a tombstone in all places, and remove weights that are due.

    After a restored backup, replay the tombstones, then call this. A task that was running during a takedown may have
    pushed records that it had read before; this removes them. Every ``terms.scan_days`` it reads all objects.

    Returns the receipts of the finished takedowns and, if something was found, of the revisit itself.
    """
    with receipts.alone(settings):
        ended = [request for request in receipts.opened(settings) if "tombstone" in request.done]
        finish_all(ended, settings=settings, vault=vault, terms=terms, now=now, context=context, say=silent)
        gone, index = Gone(vault.tombstones()), RecordIndex.of(settings)
        if index.is_due(now=now, days=terms.scan_days):
            index.clear(now=now)
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            pending = bool(objects.named(gone)) or bool(rewrite.lines_without(clone, gone))
        # a version may have been packed before a takedown and registered after it
        models = affected_models.look(gone, context=context) if context else {}
        pending = pending or any(count for name, count in models.items() if "/" in name)
        if pending:
            everybody = Selection(vault.record_id("revisit", domain="takedown"), gone.ids, {})
            request = receipts.begin(everybody, reason="revisit", who="corpus", now=now, settings=settings)
            request.done.append("tombstone")
            finish(request, settings=settings, vault=vault, terms=terms, now=now, context=context, say=silent)
            ended.append(request)
        ended += _expire(settings=settings, vault=vault, terms=terms, now=now, context=context)
    return ended


def _expire(
    *, settings: Settings, vault: Vault, terms: Takedown, now: datetime, context: Context | None
) -> list[TakedownRequest]:
    """Remove the weights whose deadline has passed; return the receipt, if there are any."""
    expired = expiry.due(settings=settings, vault=vault, terms=terms, now=now, context=context)
    if not any(expired.counts.values()):
        return []
    none = Selection(vault.record_id("weights", domain="takedown"), frozenset(), {})
    request = receipts.begin(none, reason="weights", who="corpus", now=now, settings=settings)
    # what is due follows from journal and vault: a request that was killed needs no step of its own
    request.done = list(STEPS)
    request.note("weights", expired.counts, settings=settings)
    try:
        request.steps["weights"] |= expiry.run(
            expired, settings=settings, context=context, opening=lambda name: opened(settings, vault=vault, name=name)
        )
    except CorpusError as error:
        request.pending["weights"] = error.code
        request.save(settings)
        raise TakedownUnfinished(request=request.request, detail=f"weights ({error.code})") from None
    request.finish(now=now, vault=vault, settings=settings)
    return [request]


def dry_run(
    selection: Selection, *, settings: Settings, vault: Vault, context: Context | None = None
) -> dict[str, Any]:
    """Count what :func:`run` would delete in each storage place, without writing anything.

    Returns:
        ``selected`` and ``records``; for each step its counts, by place; ``-1`` for a place that cannot be read.
    """
    gone = Gone(selection.records)
    with workspace(settings) as clone, Objects.opened(clone, read_only=True) as objects:
        live = rewrite.look(clone, gone, objects=objects)
        named = len(objects.named(gone))
    site = purge.Site(gone, settings, vault, corpora_of(live))
    places = {}
    for place in purge.PLACES:
        places[place.name] = -1
        with suppress(CorpusError):
            places[place.name] = place.count(site)
    models = affected_models.look(gone, context=context) if context else {}
    return {
        "selected": selection.counts,
        "records": len(selection.records),
        "rewrite": live,
        "purge": places,
        "objects": {"objects": named},
        "models": models,
        "running": purge.running(settings),
    }
