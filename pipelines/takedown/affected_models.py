"""Mark registered model versions that learnt from deleted records as stale; withdraw those that learnt from many.

The journal's row ``stale`` is written before anything is changed: from then on the promotion gate refuses the version,
and consumers see it. At the deadline in the row, :mod:`pipelines.takedown.expiry` removes the version.

The deleted ids are also removed from the list of ids in a version's model package. This changes two files of the
version, ``records.parquet`` and ``files.json``, and so the digest by which its files are verified: the journal gets
another row ``registered`` with the new digest and the name of the requester. Weights stay until the deadline and
may remember training records; therefore a version is withdrawn at once if the share of deleted records is too large.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import FILES, RECORDS, digest, sha256
from crisis_corpus.state import standing
from crisis_corpus.versions import DIGEST, Version
from pipelines.core.config.operate import Takedown
from pipelines.promotion import promote
from pipelines.registry import lineage, transitions
from pipelines.registry.candidate import Context, registration, scratch
from pipelines.registry.versions import TAKEN_DOWN
from pipelines.store.vault import removals
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redaction import Gone


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
        shutil.rmtree(copy, ignore_errors=True)
    return counts


def run(
    request: TakedownRequest,
    gone: Gone,
    *,
    context: Context,
    terms: Takedown,
    now: datetime,
    say: Callable[[str], None],
) -> None:
    """Mark model versions as stale, remove deleted ids from their packages, and withdraw those that lost too many.

    Args:
        request: what earlier attempts stored, and where counts and future digests are stored before a change.
        context: registry and journal.
        terms: the share of deleted records from which a version is withdrawn, and the days until weights are deleted.
        say: called when a version's files are changed but tag and journal are not yet, and after each version.
    """
    request.note("models", look(gone, context=context, keep=True), settings=context.settings)
    counts = request.steps["models"]
    until = (now + timedelta(days=terms.weights_days)).astimezone(UTC).isoformat(timespec="seconds")
    open_move = None
    for name in context.registry.names():
        for version in context.registry.versions(name):
            if not (taken := counts.get(_key(version), 0)):
                continue
            _mark(version, taken=taken, until=until, context=context, request=request)
            if (intention := standing(context.journal, name).intention) is not None:
                # the other models need not wait for this one
                open_move = transitions.ahead(intention)
                continue
            left = _replace(version, gone=gone, taken=taken, context=context, request=request, now=now, say=say)
            lineage.forget(version, settings=context.settings)
            if taken >= terms.withdraw_share * (left + taken):
                why = f"{request.reason}: {taken} of {left + taken} training records are taken down"
                promote.withdraw(name, version.version, who=request.who, why=why, context=context)
            say(_key(version))
    if open_move is not None:
        raise open_move


def _mark(version: Version, *, taken: int, until: str, context: Context, request: TakedownRequest) -> None:
    """Record in the journal that a version is stale, unless a row says so with this number of records."""
    journal, name = context.journal, version.name
    rows = [row for row in journal.rows(name) if (row.event, row.from_version) == ("stale", version.version)]
    if any(row.metrics["taken_down"] >= taken for row in rows):
        return
    why = f"{request.reason}: {taken} training records are taken down"
    versions: dict[str, Any] = {"from_version": version.version, "to_version": standing(journal, name).champion}
    metrics = {"taken_down": taken, "until": until}
    journal.append(name, event="stale", who=request.who, why=why, metrics=metrics, **versions)


def _replace(
    version: Version,
    *,
    gone: Gone,
    taken: int,
    context: Context,
    request: TakedownRequest,
    now: datetime,
    say: Callable[[str], None],
) -> int:
    """Remove the ids from a version's pack, update tag and journal, and return the number of ids left."""
    registry, journal = context.registry, context.journal
    with scratch(context.settings) as folder:
        place = registry.fetch(version, to=folder / "version")
        before, pack = digest(place), integrity.place(place)
        table = pq.read_table(pack / RECORDS)
        kept = table.filter(pc.invert(pc.is_in(table["record_id"], value_set=gone.array)))
        if kept.num_rows < table.num_rows:
            left = gone.without(pack / RECORDS, made := folder / RECORDS)
            removals.record(context.vault, [removals.Removal(*removal, at=now) for removal in left.lists])
            made.replace(pack / RECORDS)
        listed = json.loads((pack / FILES).read_bytes())
        listed[RECORDS] = sha256(pack / RECORDS)
        if json.loads((pack / FILES).read_bytes()) != listed:
            (pack / FILES).write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")
        row, after = registration(journal, version), digest(place)
        # a version that was altered elsewhere keeps failing verification: its other files are not vouched for
        sound = row is not None and (row.files == before or request.promised.get(_key(version)) == after)
        if sound:
            request.promise(_key(version), after, settings=context.settings)
        registry.put(version, [pack / RECORDS, pack / FILES], below=str(pack.relative_to(place)))
        say(f"{_key(version)} changed")
        if sound and row is not None and row.files != after:
            why = f"{request.reason}: its list of records lost {taken}"
            fields: dict[str, Any] = {"to_version": version.version, "files": after, "metrics": dict(row.metrics)}
            journal.append(version.name, event="registered", who=request.who, why=why, **fields)
        tags = {TAKEN_DOWN: str(taken)} | ({DIGEST: after} if sound else {})
        registry.tag(version, tags)
    return int(kept.num_rows)


def _key(version: Version) -> str:
    return f"{version.name}/{version.version}"
