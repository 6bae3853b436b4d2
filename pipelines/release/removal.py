"""Remove deleted records from the tables of releases, and add them to the removal lists, in batches on fixed days.

A release's ids can be computed from the vault's tombstones at any time, so no mapping between them is stored.
Consumers with an older copy use the list (``hydrate --removal``). Lists that grow by one id at the same time in two
releases would join the two ids; therefore the days do not depend on a takedown, and a batch has a minimum size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Literal

from pipelines.core.config.settings import Settings
from pipelines.core.process import silent
from pipelines.release.release_store import (
    DRAFT,
    PROGRAM,
    REMOVAL,
    RETIRED,
    ReleaseEntry,
    digest,
    entries,
    locked,
    manifest_of,
    program,
    release_ids,
    write,
)
from pipelines.release.release_tables import without
from pipelines.store.vault.vault import Tombstone, Vault

# Tests kill the process after these steps.
Step = Literal["listed", "noted", "rewritten"]
Say = Callable[[Step], None]


def refresh(
    *, settings: Settings, vault: Vault, now: datetime | None, at_once: bool = False, say: Say = silent
) -> dict[str, dict[str, Any]]:
    """Remove deleted records (with a tombstone) from every release, if their removal is due; repeating changes nothing.

    Writes the list of removed ids, ``removal.json``, in the register and, if the package is still in its folder, its
    tables without the rows, the same list, and their digests in the manifest. The other rows keep their bytes:
    published metadata is not generalised afterwards, though a class may now have fewer than k authors. Drafts are not
    published: their rows are removed at once. A retired release is withdrawn whole.
    The program in a package is replaced by the current one.

    Args:
        at_once: publish all removals now, whatever the schedule of the release.

    Returns:
        by release ``withdrawn`` (records in total), ``new`` (of these in this call), ``waiting`` (for a later day),
        ``package`` (whether there is one to rewrite) and ``altered``: the number of its tables that are missing or were
        changed. The rows are removed from changed tables, too; their digests are left, so that ``hydrate``
        rejects the package.
    """
    with locked(settings):
        tombstones, told = vault.tombstones(), {}
        for entry in entries(settings):
            new, state = _new(entry, tombstones=tombstones, vault=vault), entry.state()
            batch = frozenset[str]()
            if state["status"] == RETIRED:
                # whole: a list that grew by one with that of its successor would join two ids
                new = dict.fromkeys(entry.ids() - entry.withdrawn(), date.min)
                batch = frozenset(new)
            elif at_once or state["status"] == DRAFT:
                batch = frozenset(new)
            elif now is not None:
                batch = due(new, schedule=state["removal"], today=now.date())
            told[entry.name] = _publish(entry, batch, waiting=len(new) - len(batch), say=say)
    return told


def holding(record_ids: Collection[str], *, settings: Settings, vault: Vault) -> dict[str, int]:
    """Return how many of these records each release's tables contain, for the dry run of a takedown."""
    held = {}
    for entry in entries(settings):
        ids = set(release_ids(record_ids, release=entry.name, vault=vault).values())
        if count := len(ids & (entry.ids() - entry.withdrawn())):
            held[entry.name] = count
    return held


def overdue(entry: ReleaseEntry, *, vault: Vault, now: datetime) -> int:
    """Return how many ids :func:`refresh` would publish as removed now, so that the package is not the current one."""
    new = _new(entry, tombstones=vault.tombstones(), vault=vault)
    return len(due(new, schedule=entry.state()["removal"], today=now.date()))


def due(removed: Mapping[str, date], *, schedule: Mapping[str, int], today: date) -> frozenset[str]:
    """Return the release ids to remove today: records deleted before the last fixed day, if enough or too long ago.

    ``removed`` has the day of takedown by release id that is not yet on the removal list; ``schedule`` the days and the
    minimum batch of the release, which its datasheet states.
    """
    begin = today - timedelta(days=today.toordinal() % schedule["every_days"])
    batch = {i: day for i, day in removed.items() if day < begin}
    deadline = begin + timedelta(days=schedule["every_days"] - schedule["at_most_days"])
    urgent = any(day < deadline for day in batch.values())
    return frozenset(batch) if urgent or len(batch) >= schedule["at_least"] else frozenset()


def _new(entry: ReleaseEntry, *, tombstones: Mapping[str, Tombstone], vault: Vault) -> dict[str, date]:
    names, waiting = release_ids(tombstones, release=entry.name, vault=vault), entry.ids() - entry.withdrawn()
    return {names[r]: t.deleted_at.date() for r, t in tombstones.items() if names[r] in waiting}


def _publish(entry: ReleaseEntry, batch: frozenset[str], *, waiting: int, say: Say) -> dict[str, Any]:
    published, state = entry.removal(), entry.state()
    before = frozenset(published["ids"])
    # ids stay on the list, even if a restored vault lacks their tombstones
    gone = before | batch
    removal = entry.removal_text(gone, number=published["number"] + (gone != before))
    write(entry.folder / REMOVAL, removal)
    say("listed")
    folder = entry.package(state)
    there = manifest_of(folder, entry.name) is not None
    result = {"withdrawn": len(gone), "new": len(batch), "waiting": waiting, "package": there, "altered": 0}
    if there:
        after = {REMOVAL: removal, PROGRAM: program()}
        digests = {file: digest(text) for file, text in after.items()}
        for file in (f for f in state["files"] if f.endswith(".csv")):
            text = entry.text(state, file)
            if text is not None:
                after[file] = without(text, ids=gone)
            if text is not None and _known(text, digested=state["files"][file], withdrawn=before):
                digests[file] = digest(after[file])
            else:
                result["altered"] += 1
        # digests first: after a kill, tables older than the register are recognised and rewritten
        state |= {"files": {**state["files"], **digests}, "withdrawn": len(gone)}
        entry.put(state)
        say("noted")
        for file, text in after.items():
            write(folder / file, text)
            say("rewritten")
        entry.stamp(state)
    return result


def _known(text: str, *, digested: str, withdrawn: frozenset[str]) -> bool:
    return digest(text) == digested or (bool(withdrawn) and digest(without(text, ids=withdrawn)) == digested)
