"""Remove deleted records from the tables of releases, and add them to the removal lists.

A release's ids can be computed from the vault's tombstones at any time, so no mapping between them is stored.
Consumers with an older copy use the list (``hydrate --removal``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from pipelines.config.settings import Settings
from pipelines.progress import silent
from pipelines.release.rekey import release_ids
from pipelines.release.release_store import REMOVAL, ReleaseEntry, digest, entries, locked, manifest_of, write
from pipelines.release.release_tables import without, written
from pipelines.vault.vault import Vault

# Tests kill the process after these steps.
Step = Literal["listed", "noted", "rewritten"]
Say = Callable[[Step], None]


def refresh(*, settings: Settings, vault: Vault, say: Say = silent) -> dict[str, dict[str, Any]]:
    """Remove all records with a tombstone from every release; runs in a takedown and after restoring a backup.

    Writes ``removal.csv`` in the register and, if the package is still in its folder, its tables without the rows, the
    same list, and their digests in the manifest. Repeating changes nothing. The other rows keep their bytes: published
    metadata is not generalised afterwards, though a class may now have fewer than k authors.

    Args:
        settings: the location of the register.
        vault: holds the tombstones.
        say: called after each step.

    Returns:
        by release ``withdrawn`` (records in total), ``new`` (of these since the last call), ``package`` (whether there
        is one to rewrite) and ``altered``: the number of its tables that are missing or were changed. The rows are
        removed from changed tables, too, because a takedown must not wait; their digests are left, so that ``hydrate``
        rejects the package.
    """
    with locked(settings):
        found = entries(settings)
        tombstones = vault.tombstones() if found else {}
        return {entry.name: _refresh(entry, tombstones=tombstones, vault=vault, say=say) for entry in found}


def holding(record_ids: Collection[str], *, settings: Settings, vault: Vault) -> dict[str, int]:
    """Count these records in each release's tables, for the dry run of a takedown."""
    held = {}
    for entry in entries(settings):
        ids = set(release_ids(record_ids, release=entry.name, vault=vault).values())
        if count := len(ids & (entry.ids() - entry.withdrawn())):
            held[entry.name] = count
    return held


def _refresh(entry: ReleaseEntry, *, tombstones: Collection[str], vault: Vault, say: Say) -> dict[str, Any]:
    before, state = entry.withdrawn(), entry.state()
    # ids stay on the list, even if a restored vault lacks their tombstones
    gone = before | (entry.ids() & set(release_ids(tombstones, release=entry.name, vault=vault).values()))
    removal = written(["id"], [{"id": i} for i in sorted(gone)])
    write(entry.folder / REMOVAL, removal)
    say("listed")
    folder = entry.package(state)
    there = manifest_of(folder, entry.name) is not None
    told: dict[str, Any] = {"withdrawn": len(gone), "new": len(gone - before), "package": there, "altered": 0}
    if there:
        after, digests = {REMOVAL: removal}, {REMOVAL: digest(removal)}
        for file in (f for f in state["files"] if f.endswith(".csv") and f != REMOVAL):
            text = entry.text(state, file)
            if text is not None:
                after[file] = without(text, ids=gone)
            if text is not None and _known(text, digested=state["files"][file], withdrawn=before):
                digests[file] = digest(after[file])
            else:
                told["altered"] += 1
        # digests first: after a kill, tables older than the register are recognised and rewritten
        state |= {"files": {**state["files"], **digests}, "withdrawn": len(gone)}
        entry.put(state)
        say("noted")
        for file, text in after.items():
            write(folder / file, text)
            say("rewritten")
        entry.stamp(state)
    return told


def _known(text: str, *, digested: str, withdrawn: frozenset[str]) -> bool:
    """Return whether a table has the registered digest, or has it once the withdrawn rows are removed (killed run)."""
    return digest(text) == digested or (bool(withdrawn) and digest(without(text, ids=withdrawn)) == digested)
