"""Approve a release: a package is a draft until a named person approves it with a reason."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.registry.journal import signed
from pipelines.release.rekey import release_ids
from pipelines.release.release_store import APPROVED, DRAFT, RETIRED, PackageAltered, ReleaseEntry, entries, locked
from pipelines.store.vault.vault import Vault

SHOWN = ("release", "corpus", "status", "who", "approved")


def approve(name: str, *, who: str, why: str, settings: Settings, vault: Vault, now: datetime) -> dict[str, Any]:
    """Set the status of a draft release to ``APPROVED``, which ``hydrate`` requires; the call may be repeated."""
    approval = {**signed(who, why), "approved": now.isoformat()}
    entry = ReleaseEntry.of(settings, name)
    with locked(settings):
        state = entry.state()
        if state["status"] == DRAFT:
            gone = entry.ids() & set(release_ids(vault.tombstones(), release=name, vault=vault).values())
            if gone:
                raise DataError("DraftOutdated", name=name, count=len(gone))
            entry.check_draft(state)
            _check_limits(state, settings=settings)
            state |= {**approval, "status": APPROVED}
            entry.put(state)
        # the register is authoritative; this also updates a manifest that a killed run did not reach
        entry.stamp(state)
    return {key: state[key] for key in SHOWN}


def retire(name: str, *, who: str, why: str, settings: Settings, now: datetime) -> dict[str, Any]:
    """Set the status of an approved release to ``RETIRED``; the call may be repeated.

    Its list of removed ids is still updated for consumers who have a copy, and they can still match that copy with
    later releases.
    """
    decision = signed(who, why)
    entry = ReleaseEntry.of(settings, name)
    with locked(settings):
        state = entry.state()
        if state["status"] == DRAFT:
            raise DataError("NotApproved", name=name)
        if state["status"] == APPROVED:
            retired = {"retired": now.isoformat(), "retired_by": decision["who"], "retired_why": decision["why"]}
            state |= {**retired, "status": RETIRED}
            entry.put(state)
        # the package may be elsewhere by now
        with suppress(PackageAltered):
            entry.stamp(state)
    return {key: state[key] for key in (*SHOWN, "retired")}


def _check_limits(state: dict[str, Any], *, settings: Settings) -> None:
    name = state["release"]
    if state["alone"] > state["limits"]["alone"]:
        raise DataError("TooManyAlone", name=name, share=state["alone"])
    for other in (entry.state() for entry in entries(settings)):
        if other["corpus"] != state["corpus"] or other["status"] != APPROVED:
            continue
        share = state["joined"].get(other["release"])
        if share is None or share > state["limits"]["joined"]:
            shown = "how many is unknown" if share is None else f"{share:.1%}"
            raise DataError("ReleaseJoinable", name=name, other=other["release"], share=shown)
