"""Open, pull, adjudicate, close and report annotation rounds between the corpus repository and an annotation backend.

Every command is idempotent. It commits first and then fills or empties the queues from the commit alone. Repeating the
command, or the next pull, therefore completes an interrupted one. A pull without new answers makes no commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import BACKENDS
from pipelines.annotate.manifest import RoundDecision, RoundManifest
from pipelines.annotate.rounds import descriptions, opening, store
from pipelines.annotate.rounds.desk import Pulled, RoundContext, round_fields, wrong
from pipelines.annotate.rounds.store import RoundSite, StoredRound
from pipelines.core.config.base import fitted
from pipelines.core.config.label import Round
from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as load_scheme
from pipelines.store.metrics_file import read_metrics
from pipelines.store.tables import Row, item_of
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.publish import publish_round

Result = dict[str, object]


def open_round(
    site: RoundSite,
    corpus: str,
    name: str,
    *,
    dry_run: bool = False,
    backend: str | None = None,
    annotators: Sequence[str] = (),
) -> Result:
    """Draw an annotation round's items, commit the assignments, and fill each annotator's queue up to the daily cap.

    ``backend`` and ``annotators`` are used instead of those of the parameters, and then all of these annotators.
    """
    given: Result = {"backend": backend, "annotators": tuple(annotators)}
    stated = {key: value for key, value in given.items() if value}

    def work(clone: Workspace) -> Result:
        params = load(clone.path)
        planned = opening.planned_of(corpus, name, params=params)
        asking = fitted(Round, params.round.model_dump() | stated, key="round")
        BACKENDS.get(asking.backend, params.distributions)
        if len(annotators) > planned.annotators > 0:
            planned = planned.model_copy(update={"annotators": len(annotators)})
        path = manifests.folder(clone.path, corpus, name) / manifests.FILE
        commit: Result = {"commit": clone.head, "changed": False}
        unvoted = 0

        def described(manifest: RoundManifest, assigned: Iterable[Row]) -> Result:
            return round_fields(manifest) | {"planned": planned.size, "assigned": loads(assigned), "unvoted": unvoted}

        if not path.exists():
            plan = opening.plan(clone, corpus=corpus, planned=planned, asking=asking, vault=site.vault, now=site.now)
            unvoted = plan.unvoted
            if dry_run:
                return described(plan.manifest, plan.rows)
            written = store.write(path.parent, plan.rows, name="assignments", vault=site.vault)
            manifests.write(plan.manifest, path)
            commit = publish_round(clone, corpus=corpus, name=name, event="opened", written=written)
        stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
        manifest = stored.manifest
        _going(stored, detail="a closed round cannot be opened again")
        if (manifest.protocol, manifest.seed) != (params.round.protocol[corpus], planned.seed):
            raise wrong(manifest, detail="the round was opened with another protocol or seed than the current ones")
        if {key: getattr(manifest, key) for key in stated} != stated:
            raise wrong(
                manifest, detail="it was opened with another backend or other annotators; repeat it without them"
            )
        result = described(manifest, stored.assigned)
        if dry_run:
            return result
        desk = RoundContext(site, stored)
        desk.take_out(stored)
        desk.check_guideline(stored)
        pending = desk.look(stored).cases if manifest.status == "adjudicating" else []
        released = desk.fill(stored, pending=pending)
        return result | {"released": released, "address": desk.addresses(stored)} | commit

    return store.on_tip(site.settings, work)


def pull(site: RoundSite, corpus: str, name: str) -> Result:
    """Commit a round's new answers (during adjudication: new decisions), and refill its queues up to the daily cap.

    Items of records that were taken down are removed from the queues. After the start of adjudication, the annotators'
    answers are no longer read, because the adjudicator was shown them.
    """
    return _collect(site, corpus, name, ending=False)


def adjudicate(site: RoundSite, corpus: str, name: str) -> Result:
    """End annotation in a round: pull once more, and queue the undecided items for the adjudicator, without names."""
    return _collect(site, corpus, name, ending=True)


def _collect(site: RoundSite, corpus: str, name: str, *, ending: bool) -> Result:
    """Commit what is new in the queues and fill them again; with ``ending``, annotation ends."""

    def work(clone: Workspace) -> Result:
        stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
        _going(stored, detail=f"a closed round {'has nothing to adjudicate' if ending else 'collects no answers'}")
        desk = RoundContext(site, stored)
        removed = desk.take_out(stored)
        desk.check_guideline(stored)
        pulled = desk.look(stored)
        written = pulled.write(site.vault)
        manifest = stored.manifest.model_copy(update={"status": "adjudicating"} if ending else {})
        event = "pulled" if manifest == stored.manifest else "adjudicating"
        manifests.write(manifest, stored.folder / manifests.FILE)
        commit = publish_round(clone, corpus=corpus, name=name, event=event, written=written)
        released = desk.fill(replace(pulled.round, manifest=manifest), pending=pulled.cases)
        more = {"status": manifest.status, "removed": removed, "released": released}
        return pulled.summary | more | ({"address": desk.addresses(stored)} if any(released.values()) else {}) | commit

    return store.on_tip(site.settings, work)


def close(
    site: RoundSite, corpus: str, name: str, *, go_on: bool, reason: str, abandon: bool = False, dry_run: bool = False
) -> Result:
    """Import a round's last answers, commit the decision about the round, and delete its queues from the backend.

    ``go_on`` is whether the round's labels become gold; ``abandon`` allows it although the adjudicator has undecided
    cases, which never get gold from this round. ``reason`` is a code of at most 64 characters.
    """

    def work(clone: Workspace) -> Result:
        stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
        manifest, desk = stored.manifest, RoundContext(site, stored)
        if manifest.decision is not None:
            if manifest.decision.go_on != go_on:
                raise wrong(manifest, detail="it was closed with the opposite of this --gold or --no-gold")
            result = round_fields(manifest) | {"go_on": go_on, "commit": clone.head, "changed": False}
        else:
            pulled = desk.look(stored)
            if dry_run:
                return pulled.summary
            if go_on and not abandon:
                _complete(pulled, vault=site.vault)
            written = pulled.write(site.vault)
            decision = RoundDecision(go_on=go_on, reason=reason, at=site.now)
            update = {"status": "closed", "closed": site.now, "decision": decision}
            if manifest.phase == opening.PHASE:
                update["scores"] = _scores(clone, pulled=pulled, vault=site.vault)
            manifests.write(manifest.model_copy(update=update), stored.folder / manifests.FILE)
            commit = publish_round(clone, corpus=corpus, name=name, event="closed", written=written)
            result = pulled.summary | {"status": "closed", "go_on": go_on} | commit
        if not dry_run:
            desk.backend.purge(store.queues_of(manifest))
        return result

    return store.on_tip(site.settings, work)


def _complete(pulled: Pulled, *, vault: Vault) -> None:
    if left := descriptions.lacking(pulled.round, vault=vault):
        detail = f"{left} items have no description that a second annotator approved; --abandon closes it so"
        raise wrong(pulled.round.manifest, detail=detail)
    if pulled.cases:
        detail = f"{len(pulled.cases)} items wait for the adjudicator; --abandon closes it without them"
        raise wrong(pulled.round.manifest, detail=detail)


def _scores(clone: Workspace, *, pulled: Pulled, vault: Vault) -> dict[str, float]:
    """Return how well each person's answers in a qualification agree with what the earlier rounds settled."""
    manifest = pulled.round.manifest
    earlier = [store.read(clone, corpus=manifest.corpus, name=name, vault=vault) for name in manifest.again]
    scheme = load_scheme(manifest.scheme, root=clone.path)
    known = opening.settled([(e.assigned, e.annotations, e.decisions) for e in earlier], scheme=scheme)
    items = len({item_of(row) for row in pulled.round.assigned})
    return opening.scores(pulled.round.annotations, known=known, people=manifest.annotators, items=items)


def _going(stored: StoredRound, *, detail: str) -> None:
    if stored.manifest.status == "closed":
        raise wrong(stored.manifest, detail=detail)


def status(site: RoundSite, corpus: str, name: str | None) -> Result:
    """Return the status of a corpus's annotation rounds, or the details of one round, without changing anything."""
    with workspace(site.settings) as clone:
        if name is None:
            return _all(clone, corpus=corpus)
        stored = store.read(clone, corpus=corpus, name=name, vault=site.vault)
        result = round_fields(stored.manifest) | {"assigned": loads(stored.assigned)} | _decision(stored.manifest)
        if stored.manifest.status != "closed":
            desk = RoundContext(site, stored)
            own = [queue for queue in store.queues_of(stored.manifest) if desk.backend.present(queue)]
            result |= desk.look(stored).summary
            result["given"] = {queue.annotator: len(desk.backend.present(queue)) for queue in own}
            result["address"] = desk.addresses(stored)
        return result | _agreement(clone, corpus=corpus, name=name)


def _all(clone: Workspace, *, corpus: str) -> Result:
    opened = manifests.opened(clone.path, corpus)
    params = load(clone.path)
    planned = manifests.load_protocol(params.round.protocol[corpus]).rounds if corpus in params.round.protocol else ()
    known = {manifest.round for manifest in opened}
    return {
        "corpus": corpus,
        "rounds": [round_fields(manifest) | _decision(manifest) for manifest in opened],
        "planned": [p.name for p in planned if p.name not in known],
    }


def _decision(manifest: RoundManifest) -> Result:
    decided = manifest.decision
    return {"decision": {"go_on": decided.go_on, "reason": decided.reason} if decided else None}


def _agreement(clone: Workspace, *, corpus: str, name: str) -> Result:
    """Return ``agreement`` of a round from the last published metrics: each kappa, and whether they suffice."""
    metrics = read_metrics(clone.path / "metrics" / corpus / "agreement.json")
    published = metrics.get("rounds", {}).get(name)
    if published is None:
        return {}
    kappas = {key: figures["kappa"]["value"] for key, figures in published["categories"].items()}
    return {"agreement": {"kappa": kappas, "sufficient": published["sufficient"]}}


def loads(assigned: Iterable[Row]) -> dict[str, int]:
    """Count the items assigned to each annotator, from rows of the table ``assignments``."""
    return dict(sorted(Counter(str(row["annotator"]) for row in assigned).items()))
