"""What was taken down leaves the releases that are out: off their tables, on to their removal lists.

A release's ids can be computed from the vault's tombstones at any time, so nothing that leads from one to the other is
kept anywhere. Consumers who hold an older copy get the list (``hydrate --removal``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from pipelines.config.settings import Settings
from pipelines.release.form import without, written
from pipelines.release.register import REMOVAL, Entry, digest, entries, locked, manifest_of, write
from pipelines.release.rekey import release_ids
from pipelines.vault.vault import Vault

# After these a test kills the process.
Step = Literal["listed", "noted", "rewritten"]
Say = Callable[[Step], None]


def refresh(*, settings: Settings, vault: Vault, say: Say | None = None) -> dict[str, dict[str, Any]]:
    """Bring every release in step with the tombstones: the step of a takedown, and of whoever restored a backup.

    Writes ``removal.csv`` of the register and, where the package still lies where it was made, its tables without the
    rows, the same list, and their digests in the manifest. Repeating it changes nothing. The other rows keep their
    bytes: what was published is not made coarser afterwards, though a class may now have fewer than k authors.

    Args:
        settings: where the register is.
        vault: whose tombstones.
        say: told after each step.

    Returns:
        by release ``withdrawn`` (records, in all), ``new`` (of these since last time), ``package`` (whether there is
        one to rewrite) and ``altered``: tables of it that are missing or not what was written. The rows leave these,
        too, for no takedown waits for somebody's edit; their digests stay, so that ``hydrate`` refuses the package.
    """
    with locked(settings):
        found = entries(settings)
        tombstones = vault.tombstones() if found else {}
        return {entry.name: _refresh(entry, tombstones=tombstones, vault=vault, say=say or _nobody) for entry in found}


def holding(record_ids: Collection[str], *, settings: Settings, vault: Vault) -> dict[str, int]:
    """Return how many of these records each release has in its tables: for a takedown's dry run."""
    held = {}
    for entry in entries(settings):
        ids = set(release_ids(record_ids, release=entry.name, vault=vault).values())
        if count := len(ids & (entry.ids() - entry.withdrawn())):
            held[entry.name] = count
    return held


def _nobody(step: Step) -> None:
    """Tell nobody."""


def _refresh(entry: Entry, *, tombstones: Collection[str], vault: Vault, say: Say) -> dict[str, Any]:
    before, state = entry.withdrawn(), entry.state()
    # what is on the list stays there, whatever a restored vault has forgotten
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
        # digests first: a killed run leaves tables that are older than the register, and these it knows again
        state |= {"files": {**state["files"], **digests}, "withdrawn": len(gone)}
        entry.put(state)
        say("noted")
        for file, text in after.items():
            write(folder / file, text)
            say("rewritten")
        entry.stamp(state)
    return told


def _known(text: str, *, digested: str, withdrawn: frozenset[str]) -> bool:
    """Whether a table is what the register says, or what a killed run has left to rewrite."""
    return digest(text) == digested or (bool(withdrawn) and digest(without(text, ids=withdrawn)) == digested)
