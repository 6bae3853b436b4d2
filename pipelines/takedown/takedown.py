"""Take records down in every store, in the order of the registry of stores, and remove the weights of models.

Once the vault has the tombstones, the content is unreadable everywhere and cannot be collected again. From then on the
tombstones define the deleted records, and every store searches for all of them: what an earlier takedown left, because
a task was running, is removed by the next one. Stores can be erased again. An interrupted takedown is finished by
repeating the command, by the next takedown, or by :meth:`Deletion.revisit`.

The weights of models that were trained on deleted records go when ``takedown.weights_days`` have passed, after the
champion's alias. A stale champion is replaced by the newest version that is not stale and passes the promotion gate; it
need not be better than the stale champion, which is deleted anyway. Without such a version, the model has no champion,
and subscribers get a notice. What is due follows from the journal and from the vault's table ``removals``, so a killed
run is finished by the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from crisis_corpus.journal import standing
from crisis_corpus.versions import Version
from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, CorpusError, DataError, name_of
from pipelines.core.process import silent
from pipelines.registry import lineage
from pipelines.registry.candidate import Context, opened, registration
from pipelines.registry.journal import SamePerson
from pipelines.store import tables
from pipelines.store.vault import removals
from pipelines.store.vault.vault import Vault
from pipelines.takedown import hosts, receipts, rewrite
from pipelines.takedown.object_versions import Objects, RecordIndex, remove_folder
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redaction import Gone
from pipelines.takedown.rewrite import LOCK, Pointers
from pipelines.takedown.selection import Selection
from pipelines.takedown.stores import REPOSITORY, VAULT, Case, Store, stores
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import TREE

WHO = "corpus takedown"


@dataclass(frozen=True)
class Expiry:
    """The weights that are due for removal.

    ``objects`` are DVC objects with weights of fitted models that no other model uses, ``stages`` those that name such
    models in the newest commit of the corpus branch.
    """

    settings: Settings
    context: Context | None
    objects: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    versions: tuple[Version, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(getattr(self, name)) for name in ("versions", "objects", "stages")}

    def remove(
        self, *, opening: Callable[[str], AbstractContextManager[Context]], say: Callable[[str], None] = silent
    ) -> dict[str, int]:
        """Remove the weights; count the replaced champions and the models left without one.

        ``opening`` opens the context in which the gate judges a version of the named model; tests kill the process in
        ``say``.
        """
        from pipelines.registry.promotion import promote

        counts = {"moved": 0, "without_champion": 0}
        if self.context is not None:
            for version in self.versions:
                name, number = version.name, version.version
                if standing(self.context.journal, name).champion == number:
                    why = f"version {number} learnt from deleted records"
                    moved = _successor(name, context=self.context, opening=opening, why=why)
                    counts["moved" if moved else "without_champion"] += 1
                    say(f"{name}/{number} left")
                why = "its weights are deleted, because it was trained on records that were taken down"
                promote.withdraw(name, number, who=WHO, why=why, context=self.context)
                say(f"{name}/{number} withdrawn")
                _delete(version, context=self.context)
                say(f"{name}/{number} deleted")
        if self.stages:
            with workspace(self.settings) as clone, Objects.opened(clone) as objects:
                Pointers(clone.path, objects=objects).drop(self.stages)
                clone.commit(f"takedown: {len(self.stages)} models are trained again", paths=[LOCK])
            say("stages dropped")
        if self.objects:
            with workspace(self.settings) as clone, Objects.opened(clone) as objects:
                objects.remove(self.objects)
            say("objects removed")
        return counts


def due(*, settings: Settings, vault: Vault, terms: Takedown, now: datetime, context: Context | None) -> Expiry:
    """Return the weights of models whose deadline for removal has passed; nothing is changed."""
    before = now - timedelta(days=terms.weights_days)
    lists = {digest for digest, at in removals.begun(vault).items() if at <= before}
    trained = _trained(settings, lists=lists) if lists else (frozenset[str](), frozenset[str]())
    if context is None:
        return Expiry(settings, context, *trained)
    return Expiry(settings, context, *trained, tuple(_stale(context, now=now)))


def _stale(context: Context, *, now: datetime) -> list[Version]:
    stamp = now.astimezone(UTC).isoformat(timespec="seconds")
    stale = []
    for name in context.registry.names():
        until = standing(context.journal, name).stale
        stale += [v for v in context.registry.versions(name) if until.get(v.version, stamp + "~") <= stamp]
    return stale


def _successor(
    name: str, *, context: Context, opening: Callable[[str], AbstractContextManager[Context]], why: str
) -> bool:
    """Promote the newest version that is not stale and passes the gate; return whether there is one."""
    from pipelines.registry.promotion.promote import NotPromoted, promote

    state = standing(context.journal, name)
    versions = [v for v in context.registry.versions(name) if v.version not in {*state.stale, *state.withdrawn}]
    for version in reversed([v for v in versions if registration(context.journal, v) is not None]):
        try:
            with opening(name) as own:
                promote(name, version.version, who=WHO, why=why, context=own, compare=False)
            return True
        except (NotPromoted, SamePerson, ConfigError, DataError):
            # it failed the gate, cannot be judged, or needs two persons: the weights must go all the same
            continue
    return False


def _delete(version: Version, *, context: Context) -> None:
    if lineage.DIGESTED.fullmatch(version.digest):
        remove_folder(context.settings.home / "models" / version.digest)
    lineage.forget(version, settings=context.settings)
    context.registry.remove(version)


def _trained(settings: Settings, *, lists: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the objects with weights of models that were trained on these lists, and the stages that name them."""
    doomed, kept, folders = set[str](), set[str](), set[str]()
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        for digest in (digest for digest in objects.digests() if digest.endswith(TREE)):
            entries = objects.tree(digest)
            if _lists(entries, objects=objects) & lists:
                # a fit that has predictions only needs no second fit
                if own := {file for name, file in entries.items() if name not in tables.FIT}:
                    doomed |= {file for file in own if objects.exists(file)}
                    folders.add(digest)
            else:
                kept |= set(entries.values())
        stages = Pointers(clone.path, objects=objects).naming(folders)
    return frozenset(doomed - kept), frozenset(stages)


def _lists(entries: dict[str, str], *, objects: Objects) -> set[str]:
    listed = entries.get(tables.CARD)
    if listed is None or tables.RECORDS not in entries or not objects.exists(listed):
        return set()
    with objects.file(listed) as path:
        card_values = json.loads(path.read_bytes())
    return {part["digest"] for name in ("train", "selected") if (part := card_values.get(name))}


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
    """The takedowns of one run of a command; ``registry`` yields ``None`` if none is configured.

    Tests kill the process in ``say``, which is called after each action.
    """

    settings: Settings
    vault: Vault
    terms: Takedown
    now: datetime
    registry: Opening = nullcontext
    say: Say = silent

    def run(self, selection: Selection, *, reason: str, who: str) -> TakedownRequest:
        """Delete records in all stores; a repeated call changes nothing and returns the same receipt.

        Ids of posts that were never collected get a tombstone, too. ``who`` is shown in the journal of models.
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
            expired = due(settings=settings, vault=vault, terms=self.terms, now=self.now, context=context)
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
    """Count what :meth:`Deletion.run` would delete in each store (``unreadable``: 1), without writing anything."""
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
