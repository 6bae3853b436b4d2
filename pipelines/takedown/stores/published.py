"""The stores of what is published: registered models, with the lists of their training records, releases, bundles.

The journal's row ``stale`` is written before anything of a version is changed: from then on the promotion gate refuses
the version, and consumers see it. At the deadline in the row, :mod:`pipelines.takedown.takedown` removes the version.

The deleted ids are also removed from the list of ids in a version's model package. This changes two files of the
version, ``records.parquet`` and ``files.json``, and so the digest by which its files are verified: the journal gets
another row ``registered`` with the new digest and the name of the requester. Weights stay until the deadline and
may remember training records; therefore a version is withdrawn at once if the share of deleted records is too large.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import FILES, RECORDS, digest, sha256
from crisis_corpus.journal import Event, standing
from crisis_corpus.versions import DIGEST, Version
from pipelines.core.config.operate import Takedown
from pipelines.registry import lineage, transitions
from pipelines.registry.candidate import Context, registration, scratch
from pipelines.registry.versions import TAKEN_DOWN
from pipelines.store.vault import removals
from pipelines.takedown.object_versions import remove_folder
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redaction import Gone
from pipelines.takedown.stores import Case, Store


def look(gone: Gone, *, context: Context, keep: bool = False) -> dict[str, int]:
    """Count by model version (``<name>/<version>``) how many of the deleted records it was trained on.

    ``unknown`` counts the versions without a readable model package. The copies of ids that this call caches are kept
    only if ``keep`` is true.
    """
    place = context.settings.home / "registry"
    before = set(place.iterdir()) if place.is_dir() else set()
    counts = {"unknown": 0}
    names = context.registry.names()
    for version, learnt in lineage.learnt(names, registry=context.registry, settings=context.settings):
        if learnt is None:
            counts["unknown"] += 1
        elif count := len(gone.ids & learnt):
            counts[_key(version)] = count + int(version.tags.get(TAKEN_DOWN, 0))
    for copy in set(place.iterdir()) - before if place.is_dir() and not keep else ():
        remove_folder(copy)
    return counts


@dataclass(frozen=True)
class Marking:
    """Mark model versions as stale, remove deleted ids from their packages, and withdraw those that lost too many.

    ``request`` has what earlier attempts stored; it gets counts and future digests before a change. ``say`` is called
    when a version's files are changed but tag and journal are not yet, and after each version.
    """

    request: TakedownRequest
    gone: Gone
    context: Context
    terms: Takedown
    now: datetime
    say: Callable[[str], None]

    def run(self) -> None:
        """Work through all versions of all models; raise at the end if a promotion of one is still open."""
        request, context = self.request, self.context
        request.note("models", look(self.gone, context=context, keep=True), settings=context.settings)
        open_move = None
        for name in context.registry.names():
            for version in context.registry.versions(name):
                if not (taken := request.steps["models"].get(_key(version), 0)):
                    continue
                self._mark(version, taken)
                if (intention := standing(context.journal, name).intention) is not None:
                    # the other models need not wait for this one
                    open_move = transitions.ahead(intention)
                    continue
                left = self._replace(version, taken)
                lineage.forget(version, settings=context.settings)
                if taken >= self.terms.withdraw_share * (left + taken):
                    from pipelines.registry.promotion import promote

                    why = f"{request.reason}: {taken} of {left + taken} training records are taken down"
                    promote.withdraw(name, version.version, who=request.who, why=why, context=context)
                self.say(_key(version))
        if open_move is not None:
            raise open_move

    def _mark(self, version: Version, taken: int) -> None:
        """Record in the journal that a version is stale, unless a row says so with this number of records."""
        rows = self.context.journal.rows(version.name)
        stale = [row for row in rows if (row.event, row.from_version) == ("stale", version.version)]
        if any(row.metrics["taken_down"] >= taken for row in stale):
            self._settle(version)
            return
        until = (self.now + timedelta(days=self.terms.weights_days)).astimezone(UTC).isoformat(timespec="seconds")
        why = f"{taken} training records are taken down"
        champion = standing(self.context.journal, version.name).champion
        versions = {"from_version": version.version, "to_version": champion}
        self._enter(version, "stale", why, metrics={"taken_down": taken, "until": until}, **versions)
        self._settle(version)

    def _settle(self, version: Version) -> None:
        transitions.settle(version.name, registry=self.context.registry, journal=self.context.journal)

    def _enter(self, version: Version, event: Event, why: str, **fields: Any) -> None:
        why = f"{self.request.reason}: {why}"
        self.context.journal.append(version.name, event=event, who=self.request.who, why=why, **fields)

    def _replace(self, version: Version, taken: int) -> int:
        """Remove the ids from a version's pack, update tag and journal, and return the number of ids left."""
        request, context, registry = self.request, self.context, self.context.registry
        with scratch(context.settings) as folder:
            place = registry.fetch(version, to=folder / "version")
            before, pack = digest(place), integrity.place(place)
            table = pq.read_table(pack / RECORDS)
            kept = table.filter(pc.invert(pc.is_in(table["record_id"], value_set=self.gone.array)))
            if kept.num_rows < table.num_rows:
                left = self.gone.without(pack / RECORDS, made := folder / RECORDS)
                removals.record(context.vault, [removals.Removal(*removal, at=self.now) for removal in left.lists])
                made.replace(pack / RECORDS)
            listed = json.loads((pack / FILES).read_bytes())
            if listed.get(RECORDS) != (whole := sha256(pack / RECORDS)):
                (pack / FILES).write_text(json.dumps(listed | {RECORDS: whole}, indent=2, sort_keys=True) + "\n")
            row, after = registration(context.journal, version), digest(place)
            # a version that was altered elsewhere keeps failing verification: its other files are not vouched for
            sound = row is not None and (row.files == before or request.promised.get(_key(version)) == after)
            if sound:
                request.promise(_key(version), after, settings=context.settings)
            registry.put(version, [pack / RECORDS, pack / FILES], below=str(pack.relative_to(place)))
            self.say(f"{_key(version)} changed")
            if sound and row is not None and row.files != after:
                fields: dict[str, Any] = {"to_version": version.version, "files": after, "metrics": dict(row.metrics)}
                self._enter(version, "registered", f"its list of records lost {taken}", **fields)
            registry.tag(version, {TAKEN_DOWN: str(taken)} | ({DIGEST: after} if sound else {}))
        return int(kept.num_rows)


def _key(version: Version) -> str:
    return f"{version.name}/{version.version}"


class Models(Store):
    """Registered versions, with the list of the records on which each was trained."""

    name = "models"
    holds = "ids"
    erased = (
        "versions that were trained on the records are marked `stale`, with a deadline, and their lists lose the ids; "
        "from `takedown.withdraw_share` on they are withdrawn; at the deadline the alias moves to a clean version or "
        "is removed, and the stale version is deleted"
    )
    keeps = "the version's weights until the deadline, as under weights; names and numbers of its runs"
    home = ("mlflow", "mlflow.sqlite*")
    settings = ("mlflow_tracking_uri",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count by version on how many of the records it was trained; ``unknown``: versions without readable list."""
        with case.registry() as context:
            if context is None:
                return {"no_registry": 1}
            return look(case.gone, context=context, keep=not case.dry_run)

    def erase(self, case: Case) -> None:
        """Mark the versions, shorten their lists, withdraw those that lost too many."""
        with case.registry() as context:
            if context is None or case.request is None or case.terms is None:
                return
            Marking(
                case.request, case.gone, context, case.terms, case.now, say=lambda what: case.say(f"models {what}")
            ).run()


class Releases(Store):
    """Published packages of labels and ids."""

    name = "releases"
    holds = "ids"
    erased = (
        "on the next day of the schedule `release.removal`, rows leave the packages, and their ids, which are the "
        "release's own, go to the removal lists (`run-pending`): at the time of a takedown they would reveal it"
    )
    keeps = (
        "until that day, labels and the address, which the release's key decrypts; then the release's own id on its "
        "removal list; copies that consumers have"
    )
    home = ("releases",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the rows of releases about deleted records."""
        if not self.paths(case.settings):
            return {"rows": 0}
        from pipelines.release import removal

        return {"rows": sum(removal.holding(case.gone.ids, settings=case.settings, vault=case.vault).values())}

    def erase(self, case: Case) -> None:
        """Queue the rows for the next day of removals."""
        from pipelines.release import removal

        removal.refresh(settings=case.settings, vault=case.vault, now=None)


class AnswerBundles(Store):
    """Exported outcomes of labellers, under ids of the bundle, and which record each id is."""

    name = "answer bundles"
    holds = "ids"
    erased = (
        "entries leave the file of `corpus answers export`, if it is where it was written; the bundle's own ids go to "
        "its removal list at once"
    )
    keeps = "the bundle's own id on its removal list; copies of the file elsewhere, until their holder imports the list"
    home = ("answer_bundles",)

    def count(self, case: Case) -> Mapping[str, int]:
        if not self.paths(case.settings):
            return {"records": 0}
        from pipelines.release import answer_bundles

        return {"records": answer_bundles.naming(case.gone.ids, settings=case.settings)}

    def erase(self, case: Case) -> None:
        if self.paths(case.settings):
            from pipelines.release import answer_bundles

            answer_bundles.remove(case.gone.ids, settings=case.settings)
