"""Take records down everywhere, in the order of steps in which each step makes the next one safe.

``tombstone`` → ``rewrite`` → ``purge`` → ``objects`` → ``models`` → ``receipt``. Once the tombstones are written, the
content is unreadable everywhere and cannot be collected again. From then on the tombstones define the deleted records,
and every step searches for all of them: what an earlier takedown left, because a task was running, is removed by the
next one. Steps can be repeated. An interrupted takedown is finished by repeating the command, by the next takedown, or
by :meth:`Deletion.revisit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn

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


# A code or the number of a request, shown in tombstones, commits and journal.
REASON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}")

STEPS = ("tombstone", "rewrite", "purge", "objects", "models")


def check_reason(reason: str) -> None:
    """Check that the reason of a takedown is a short code without prose."""
    if not REASON.fullmatch(reason):
        raise BadParams(
            "BadArgument", where="reason", detail="needs a code of 1 to 64 letters, digits and ._:/#-, no prose"
        )


def corpora_of(counts: dict[str, int]) -> list[str]:
    """Return the corpora of which a file named a deleted record, from the counts of the step ``rewrite``."""
    return sorted(name.removeprefix(rewrite.OF) for name, n in counts.items() if n and name.startswith(rewrite.OF))


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The takedowns of one run of a command.

    Args:
        settings: the locations of the storage places.
        vault: the open vault.
        terms: the share of deleted training records from which a model is withdrawn.
        now: the current time.
        context: registry and journal of models; ``None`` if none is configured: the step ``models`` is skipped.
        say: called after each action; tests kill the process there.
    """

    settings: Settings
    vault: Vault
    terms: Takedown
    now: datetime
    context: Context | None = None
    say: Say = silent

    def run(self, selection: Selection, *, reason: str, who: str) -> TakedownRequest:
        """Delete records in all storage places; a repeated call changes nothing and returns the same receipt.

        Args:
            selection: the records to delete; ids of posts that were never collected get a tombstone, too.
            reason: a code of at most 64 characters, no prose.
            who: the requester, shown in the journal of models.
        """
        check_reason(reason)
        settings, vault = self.settings, self.vault
        with receipts.alone(settings):
            going = receipts.opened(settings)
            mine = next((request for request in going if request.key == selection.key), None)
            if mine is None:
                done = [receipt for receipt in receipts.receipts(settings) if receipt.key == selection.key]
                if done and selection.records <= vault.tombstoned(selection.records):
                    mine = done[-1]
                else:
                    mine = receipts.begin(selection, reason=reason, who=who, now=self.now, settings=settings)
                    mine.save(settings)
                    self.say("opened")
            elif selection.records - vault.tombstoned(selection.records):
                # the open request waits for a place, and the selection has grown meanwhile: start from the first step
                mine.done, mine.records = [], max(mine.records, len(selection.records))
            if "tombstone" not in mine.done and mine.ended is None:
                fresh = len(selection.records) - len(vault.tombstoned(selection.records))
                mine.note("tombstone", {"fresh": fresh, "known": len(selection.records) - fresh}, settings=settings)
                self.say("tombstone noted")
                vault.destroy(selection.records, reason=mine.reason, now=self.now)
                self._end(mine, "tombstone")
            others = [request for request in going if request is not mine and "tombstone" in request.done]
            self._finish_all([request for request in (*others, mine) if request.ended is None])
            return mine

    def revisit(self) -> list[TakedownRequest]:
        """Finish open takedowns, delete again every record with a tombstone in all places, and remove weights due.

        After a restored backup, replay the tombstones, then call this. A task that was running during a takedown may
        have pushed records that it had read before; this removes them. Every ``terms.scan_days`` it reads all objects.

        Returns the receipts of the finished takedowns and, if something was found, of the revisit itself.
        """
        settings = self.settings
        with receipts.alone(settings):
            ended = [request for request in receipts.opened(settings) if "tombstone" in request.done]
            self._finish_all(ended)
            gone, index = Gone(self.vault.tombstones()), RecordIndex.of(settings)
            if index.is_due(now=self.now, days=self.terms.scan_days):
                index.clear(now=self.now)
            with workspace(settings) as clone, Objects.opened(clone) as objects:
                pending = bool(objects.named(gone)) or bool(rewrite.lines_without(clone, gone))
            # a version may have been packed before a takedown and registered after it
            models = affected_models.look(gone, context=self.context) if self.context else {}
            if pending or any(count for name, count in models.items() if "/" in name):
                request = self._begin("revisit", gone.ids)
                request.done.append("tombstone")
                self._finish(request)
                ended.append(request)
            return ended + self._expire()

    def _begin(self, reason: str, record_ids: frozenset[str]) -> TakedownRequest:
        selection = Selection(self.vault.record_id(reason, domain="takedown"), record_ids, {})
        return receipts.begin(selection, reason=reason, who="corpus", now=self.now, settings=self.settings)

    def _expire(self) -> list[TakedownRequest]:
        """Remove the weights whose deadline has passed; return the receipt, if there are any."""
        settings, vault, context = self.settings, self.vault, self.context
        expired = expiry.due(settings=settings, vault=vault, terms=self.terms, now=self.now, context=context)
        if not any(expired.counts.values()):
            return []
        request = self._begin("weights", frozenset())
        # what is due follows from journal and vault: a request that was killed needs no step of its own
        request.done = list(STEPS)
        request.note("weights", expired.counts, settings=settings)
        try:
            counts = expired.remove(opening=lambda name: opened(settings, vault=vault, name=name))
            request.steps["weights"] |= counts
        except CorpusError as error:
            request.pending["weights"] = error.code
            self._leave_open(request, detail=f"weights ({error.code})")
        request.finish(now=self.now, vault=vault, settings=settings)
        return [request]

    def _finish_all(self, requests: Sequence[TakedownRequest]) -> None:
        """Finish takedown requests; one that cannot be completed does not block the others."""
        unfinished = None
        for request in requests:
            try:
                self._finish(request)
            except TakedownUnfinished as error:
                unfinished = error
        if unfinished is not None:
            raise unfinished

    def _finish(self, request: TakedownRequest) -> None:
        """Run the remaining steps; a storage place that fails keeps the request open but does not stop the rest."""
        gone = Gone(self.vault.tombstones())
        request.pending = {}
        for step, work in zip(STEPS[1:], (self._rewrite, self._purge, self._objects, self._models), strict=True):
            if step not in request.done:
                work(request, gone)
        trained = request.steps.get("rewrite", {}).get("models", 0) or any(
            count for name, count in request.steps.get("models", {}).items() if "/" in name
        )
        if trained and request.weights_due is None:
            begun = datetime.fromisoformat(request.begun)
            request.weights_due = (begun + timedelta(days=self.terms.weights_days)).isoformat(timespec="seconds")
        if request.pending:
            self._leave_open(
                request, ", ".join(f"{place} ({error})" for place, error in sorted(request.pending.items()))
            )
        purge.announce(settings=self.settings, vault=self.vault)
        request.finish(now=self.now, vault=self.vault, settings=self.settings)
        self.say("receipt")

    def _leave_open(self, request: TakedownRequest, detail: str) -> NoReturn:
        request.save(self.settings)
        raise TakedownUnfinished(request=request.request, detail=detail) from None

    def _end(self, request: TakedownRequest, step: str) -> None:
        request.end_step(step, settings=self.settings)
        self.say(step)

    def _rewrite(self, request: TakedownRequest, gone: Gone) -> None:
        commit, changed = rewrite.run(
            gone, settings=self.settings, note=partial(request.note, "rewrite", settings=self.settings),
            keep=self._keep, say=lambda what: self.say(f"rewrite {what}"),
        )  # fmt: skip
        request.commit = commit if changed or request.commit is None else request.commit
        self.say("rewrite committed")
        self._end(request, "rewrite")

    def _keep(self, changes: Sequence[Left]) -> None:
        lists = [removals.Removal(*removal, at=self.now) for left in changes for removal in left.lists]
        removals.record(self.vault, lists)

    def _purge(self, request: TakedownRequest, gone: Gone) -> None:
        site = purge.Site(gone, self.settings, self.vault, corpora_of(request.steps["rewrite"]))
        for place in purge.PLACES:
            try:
                request.note("purge", {place.name: place.count(site)}, settings=self.settings)
                self.say(f"purge {place.name} noted")
                # the noted count may be of an earlier attempt that deleted but did not yet erase
                if request.steps["purge"][place.name]:
                    place.clear(site)
            except CorpusError as error:
                request.pending[place.name] = error.code
            self.say(f"purge {place.name}")
        if not request.pending:
            request.end_step("purge", settings=self.settings)
        self.say("purge")

    def _objects(self, request: TakedownRequest, gone: Gone) -> None:
        note = partial(request.note, "objects", settings=self.settings)
        with workspace(self.settings, folders=()) as clone, Objects.opened(clone) as objects:
            named = objects.named(gone)
            note({"objects": len(named), **objects.places(named)})
            known = replaced(self.settings)
            fresh = [digest for digest in named if not (digest in known and objects.exists(known[digest][0]))]
            changes = {digest: objects.without(digest, gone) for digest in fresh}
            self._keep([change.left for change in changes.values()])
            remember(changes, settings=self.settings)
            self.say("objects replaced")
            objects.remove([digest for digest in named if digest not in changes or changes[digest].digest != digest])
            note({"halves": objects.remove_halves(now=self.now)})
            self.say("objects removed")
            note({"in_history": rewrite.in_history(clone, gone)})
        self._end(request, "objects")

    def _models(self, request: TakedownRequest, gone: Gone) -> None:
        if self.context is None:
            request.note("models", {"no_registry": 1}, settings=self.settings)
        else:
            try:
                affected_models.Marking(
                    request, gone, self.context, self.terms, self.now, say=lambda what: self.say(f"models {what}")
                ).run()
            except CorpusError as error:
                request.pending["models"] = error.code
                return
        self._end(request, "models")


def dry_run(
    selection: Selection, *, settings: Settings, vault: Vault, context: Context | None = None
) -> dict[str, Any]:
    """Count what :meth:`Deletion.run` would delete in each storage place, without writing anything.

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
