"""Annotation rounds: opened, pulled, adjudicated, closed; what is settled is in the corpus, what is asked in a backend.

Every command may be repeated. It commits first and fills or empties queues afterwards, and what it does to a queue
follows from the commit alone, so that whatever dies in between is made good by the same command or by the next pull. A
pull that finds nothing new makes no commit.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends.backend import Backend
from pipelines.annotate.manifest import Decision
from pipelines.annotate.rounds import opening, queues, store
from pipelines.annotate.rounds.desk import Desk, told, wrong
from pipelines.annotate.rounds.status import loads, status
from pipelines.annotate.rounds.store import Stored
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import Workspace
from pipelines.workspace.publish import publish_round

__all__ = ["adjudicate", "close", "open_round", "pull", "status"]

Result = dict[str, object]


def open_round(
    corpus: str,
    name: str,
    *,
    settings: Settings,
    vault: Vault,
    now: datetime,
    backend: Backend | None = None,
    dry_run: bool = False,
) -> Result:
    """Draw a round's items, commit who is asked about which, then fill each queue up to the day's cap.

    A round that exists already goes on where it stopped. A review has no annotators: its adjudicator is asked at once.

    Returns:
        ``status``, ``size`` (drawn; ``planned`` is what the protocol wants), ``assigned`` and ``released`` by person,
        ``unvoted`` (items of a review that a labeller has no vote on), ``commit``, ``changed``.

    Raises:
        UnknownRound: the protocol plans no such round.
        RoundState: it was closed, or opened by another protocol, seed or guideline.
        NotMade: a table to draw from was never published.
        NothingToDraw: no item is left.
        BackendUnavailable: the round is open and its queues are not full; repeat it.
    """

    def work(clone: Workspace) -> Result:
        planned = opening.planned_of(corpus, name, params=load(clone.path))
        path = manifests.folder(clone.path, corpus, name) / manifests.FILE
        commit: Result = {"commit": clone.head, "changed": False}
        unvoted = 0
        if not path.exists():
            plan = opening.plan(clone, corpus=corpus, name=name, vault=vault, now=now)
            unvoted = plan.unvoted
            if dry_run:
                return told(plan.manifest) | {"planned": planned.size, "assigned": plan.loads, "unvoted": unvoted}
            written = store.write(path.parent, plan.rows, name="assignments", vault=vault)
            manifests.write(plan.manifest, path)
            commit = publish_round(clone, corpus=corpus, name=name, event="opened", written=written)
        found = store.read(clone, corpus=corpus, name=name, vault=vault)
        _going(found, detail="a closed round is never opened again")
        if opening.differs(found.manifest, params=found.params):
            raise wrong(found.manifest, detail="it was opened by another protocol or seed than is in force now")
        result = told(found.manifest) | {"planned": planned.size, "assigned": loads(found), "unvoted": unvoted}
        if dry_run:
            return result
        desk = Desk.of(found, settings=settings, vault=vault, now=now, backend=backend)
        desk.take_out(found)
        desk.check_guideline(found)
        pending = desk.look(found).cases if found.manifest.status == "adjudicating" else []
        return result | {"released": desk.fill(found, pending=pending)} | commit

    return store.on_tip(settings, work)


def pull(
    corpus: str, name: str, *, settings: Settings, vault: Vault, now: datetime, backend: Backend | None = None
) -> Result:
    """Bring the answers in, and the decisions once there is an adjudicator; give out what the day's cap allows.

    Items of records that were taken down leave the queues. Annotating ends when adjudication begins: sides that were
    shown do not change any more.

    Returns:
        ``answered`` by person and ``skipped`` in all, ``decided`` and ``cases`` (still to be decided),
        ``problems`` by person and name (see ``backend.PROBLEMS``), ``removed``, ``released``, ``commit``, ``changed``.

    Raises:
        UnknownRound: it was never opened.
        RoundState: it is closed, or its guideline changed since.
        BackendUnavailable: whatever was committed stays; repeat it.
    """

    def work(clone: Workspace) -> Result:
        found = store.read(clone, corpus=corpus, name=name, vault=vault)
        _going(found, detail="nobody is asked any more")
        desk = Desk.of(found, settings=settings, vault=vault, now=now, backend=backend)
        removed = desk.take_out(found)
        desk.check_guideline(found)
        pulled = desk.look(found)
        commit = publish_round(clone, corpus=corpus, name=name, event="pulled", written=pulled.write(vault))
        released = desk.fill(pulled.round, pending=pulled.cases)
        return pulled.told | {"removed": removed, "released": released} | commit

    return store.on_tip(settings, work)


def adjudicate(
    corpus: str, name: str, *, settings: Settings, vault: Vault, now: datetime, backend: Backend | None = None
) -> Result:
    """End annotating: pull once more, and put what is left open before the adjudicator, without names.

    What nobody answered leaves the annotators' queues.

    Returns:
        what :func:`pull` returns; ``cases`` is how many items wait for the adjudicator.

    Raises:
        UnknownRound: it was never opened.
        RoundState: it is closed, or its guideline changed since.
    """

    def work(clone: Workspace) -> Result:
        found = store.read(clone, corpus=corpus, name=name, vault=vault)
        _going(found, detail="nothing is left to decide")
        desk = Desk.of(found, settings=settings, vault=vault, now=now, backend=backend)
        removed = desk.take_out(found)
        desk.check_guideline(found)
        pulled = desk.look(found)
        written = pulled.write(vault)
        manifest = found.manifest.model_copy(update={"status": "adjudicating"})
        manifests.write(manifest, found.folder / manifests.FILE)
        event = "pulled" if manifest == found.manifest else "adjudicating"
        commit = publish_round(clone, corpus=corpus, name=name, event=event, written=written)
        released = desk.fill(replace(pulled.round, manifest=manifest), pending=pulled.cases)
        return pulled.told | {"status": manifest.status, "removed": removed, "released": released} | commit

    return store.on_tip(settings, work)


def close(
    corpus: str,
    name: str,
    *,
    go_on: bool,
    reason: str,
    settings: Settings,
    vault: Vault,
    now: datetime,
    backend: Backend | None = None,
    abandon: bool = False,
    dry_run: bool = False,
) -> Result:
    """Pull for the last time, put the decision on record, and only then remove everything from the backend.

    Args:
        corpus: whose round it is.
        name: the round.
        go_on: whether gold is made of it.
        reason: a code of at most 64 characters, no prose (``agreement-sufficient``).
        settings: where the corpus is.
        vault: where the keys are.
        now: when.
        backend: instead of the manifest's own.
        abandon: close with ``go_on`` although cases wait; they never get gold from this round.
        dry_run: say how it stands, and change nothing.

    Returns:
        what :func:`pull` returns, with ``cases`` left undecided and ``go_on``. Closing again purges again.

    Raises:
        UnknownRound: it was never opened.
        RoundState: cases wait, or it was closed with another decision.
        BadManifest: the reason is no code.
        BackendUnavailable: the round is closed and something may be left of its queues; repeat it.
    """

    def work(clone: Workspace) -> Result:
        found = store.read(clone, corpus=corpus, name=name, vault=vault)
        desk = Desk.of(found, settings=settings, vault=vault, now=now, backend=backend)
        if found.manifest.decision is not None:
            if found.manifest.decision.go_on != go_on:
                raise wrong(found.manifest, detail="the decision on record is another one")
            result = told(found.manifest) | {"go_on": go_on, "commit": clone.head, "changed": False}
        else:
            pulled = desk.look(found)
            if dry_run:
                return pulled.told
            if pulled.cases and go_on and not abandon:
                raise wrong(found.manifest, detail=f"{len(pulled.cases)} items wait for the adjudicator")
            written = pulled.write(vault)
            decision = Decision(go_on=go_on, reason=reason, at=now)
            update = {"status": "closed", "closed": now, "decision": decision}
            manifests.write(found.manifest.model_copy(update=update), found.folder / manifests.FILE)
            commit = publish_round(clone, corpus=corpus, name=name, event="closed", written=written)
            result = pulled.told | {"status": "closed", "go_on": go_on} | commit
        if not dry_run:
            desk.backend.purge(queues.of_round(found.manifest))
        return result

    return store.on_tip(settings, work)


def _going(found: Stored, *, detail: str) -> None:
    if found.manifest.status == "closed":
        raise wrong(found.manifest, detail=detail)
