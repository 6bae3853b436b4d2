"""Take records down in every store, in the order of :func:`pipelines.takedown.stores.stores`.

Once the vault has the tombstones, the content is unreadable everywhere and cannot be collected again. From then on the
tombstones define the deleted records, and every store searches for all of them: what an earlier takedown left, because
a task was running, is removed by the next one. Stores can be erased again. An interrupted takedown is finished by
repeating the command, by the next takedown, or by :meth:`Deletion.revisit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, CorpusError, DataError, name_of
from pipelines.core.process import silent
from pipelines.registry.candidate import Context, opened
from pipelines.store.vault.vault import Vault
from pipelines.takedown import expiry, hosts, receipts, rewrite
from pipelines.takedown.object_versions import Objects, RecordIndex
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redaction import Gone
from pipelines.takedown.selection import Selection
from pipelines.takedown.stores import REPOSITORY, VAULT, Case, Store, stores
from pipelines.workspace.clone import workspace

Say = Callable[[str], None]
Opening = Callable[[], AbstractContextManager[Context | None]]
MODELS = "models"


class TakedownUnfinished(DataError):
    """A takedown could not erase records in some stores; all others are done."""


# A code or the number of a request, shown in tombstones, commits and journal.
REASON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}")


def check_reason(reason: str) -> None:
    """Check that the reason of a takedown is a short code without prose."""
    if not REASON.fullmatch(reason):
        raise BadParams(
            "BadArgument", where="reason", detail="needs a code of 1 to 64 letters, digits and ._:/#-, no prose"
        )


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The takedowns of one run of a command.

    Args:
        settings: the locations of the stores.
        vault: the open vault.
        terms: the share of deleted training records from which a model is withdrawn.
        now: the current time.
        registry: opens registry and journal of models; yields ``None`` if none is configured.
        say: called after each action; tests kill the process there.
    """

    settings: Settings
    vault: Vault
    terms: Takedown
    now: datetime
    registry: Opening = nullcontext
    say: Say = silent

    def run(self, selection: Selection, *, reason: str, who: str) -> TakedownRequest:
        """Delete records in all stores; a repeated call changes nothing and returns the same receipt.

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
            if VAULT not in mine.done and mine.ended is None:
                self._erase(_store(VAULT), mine, self._case(mine, Gone(selection.records)))
            others = [request for request in going if request is not mine and VAULT in request.done]
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
            ended = [request for request in receipts.opened(settings) if VAULT in request.done]
            self._finish_all(ended)
            gone, index = Gone(self.vault.tombstones()), RecordIndex.of(settings)
            if index.is_due(now=self.now, days=self.terms.scan_days):
                index.clear(now=self.now)
            with workspace(settings) as clone, Objects.opened(clone) as objects:
                pending = bool(objects.named(gone)) or bool(rewrite.lines_without(clone, gone))
            # a version may have been packed before a takedown and registered after it
            models = _store(MODELS).count(self._case(None, gone))
            if pending or any(count for name, count in models.items() if "/" in name):
                request = self._begin("revisit", gone.ids)
                request.done.append(VAULT)
                self._finish(request)
                ended.append(request)
            return ended + self._expire()

    def _begin(self, reason: str, record_ids: frozenset[str]) -> TakedownRequest:
        selection = Selection(self.vault.record_id(reason, domain="takedown"), record_ids, {})
        return receipts.begin(selection, reason=reason, who="corpus", now=self.now, settings=self.settings)

    def _expire(self) -> list[TakedownRequest]:
        """Remove the weights whose deadline has passed; return the receipt, if there are any."""
        settings, vault = self.settings, self.vault
        with self.registry() as context:
            expired = expiry.due(settings=settings, vault=vault, terms=self.terms, now=self.now, context=context)
            if not any(expired.counts.values()):
                return []
            request = self._begin("weights", frozenset())
            # what is due follows from journal and vault: a request that was killed needs no store of its own
            request.done = [store.name for store in stores()]
            request.note("weights", expired.counts, settings=settings)
            try:
                counts = expired.remove(opening=lambda name: opened(settings, vault=vault, name=name))
                request.steps["weights"] |= counts
            except CorpusError as error:
                request.pending["weights"] = error.code
                self._leave_open(request, {"weights": error})
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
        """Erase the remaining stores; a fault in one keeps the request open, and stops only those that need it."""
        case = self._case(request, Gone(self.vault.tombstones()))
        request.pending, faults = {}, dict[str, Exception]()
        for store in stores():
            if store.name in request.done:
                continue
            if missing := [name for name in store.needs if name not in request.done]:
                request.pending[store.name] = f"waits for {missing[0]}"
                continue
            try:
                self._erase(store, request, case)
            except Exception as error:  # whatever fails in one store, the others are erased
                request.pending[store.name], faults[store.name] = name_of(error), error
        counts = request.steps
        trained = counts.get(REPOSITORY, {}).get("models", 0) or any(
            count for name, count in counts.get(MODELS, {}).items() if "/" in name
        )
        if trained and request.weights_due is None:
            begun = datetime.fromisoformat(request.begun)
            request.weights_due = (begun + timedelta(days=self.terms.weights_days)).isoformat(timespec="seconds")
        if request.pending:
            self._leave_open(request, faults)
        hosts.announce(settings=self.settings, vault=self.vault)
        request.finish(now=self.now, vault=self.vault, settings=self.settings)
        self.say("receipt")

    def _erase(self, store: Store, request: TakedownRequest, case: Case) -> None:
        if counts := store.count(case):
            request.note(store.name, counts, settings=self.settings)
            self.say(f"{store.name} noted")
            # the noted counts may be of an earlier attempt that deleted but did not yet erase
            if any(request.steps[store.name].values()):
                store.erase(case)
        request.end_step(store.name, settings=self.settings)
        self.say(store.name)

    def _case(self, request: TakedownRequest | None, gone: Gone) -> Case:
        return Case(
            gone=gone,
            settings=self.settings,
            vault=self.vault,
            now=self.now,
            terms=self.terms,
            request=request,
            registry=self.registry,
            dry_run=request is None,
            say=self.say,
        )

    def _leave_open(self, request: TakedownRequest, faults: Mapping[str, Exception]) -> NoReturn:
        request.save(self.settings)
        told = {name: f"{code}{_cause(faults.get(name))}" for name, code in sorted(request.pending.items())}
        detail = ", ".join(f"{name} ({what})" for name, what in told.items())
        raise TakedownUnfinished(request=request.request, detail=detail) from next(iter(faults.values()), None)


def _cause(error: Exception | None) -> str:
    # other errors may quote what they could not handle
    return f": {error.message.format(**error.fields).rstrip('.')}" if isinstance(error, CorpusError) else ""


def _store(name: str) -> Store:
    return next(store for store in stores() if store.name == name)


def dry_run(
    selection: Selection, *, settings: Settings, vault: Vault, now: datetime, registry: Opening = nullcontext
) -> dict[str, Any]:
    """Count what :meth:`Deletion.run` would delete in each store, without writing anything.

    Returns:
        ``selected`` and ``records``; for each store its counts, ``{"unreadable": 1}`` if it cannot be read.
    """
    request = receipts.begin(selection, reason="", who="", now=now, settings=settings)
    case = Case(
        gone=Gone(selection.records),
        settings=settings,
        vault=vault,
        now=now,
        request=request,
        registry=registry,
        dry_run=True,
    )
    for store in stores():
        try:
            counts = dict(store.count(case))
        except CorpusError:
            counts = {"unreadable": 1}
        if counts:
            request.steps[store.name] = counts
    return {"selected": selection.counts, "records": len(selection.records), "stores": request.steps}
