"""Approve a release: a package is a draft until a named person approves it with a reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pipelines.config.settings import Settings
from pipelines.errors import DataError
from pipelines.registry.journal import signed
from pipelines.release.rekey import release_ids
from pipelines.release.release_store import APPROVED, DRAFT, ReleaseEntry, locked
from pipelines.vault.vault import Vault


class DraftOutdated(DataError):
    """Records of a draft were taken down after it was made."""

    message = "{count} records of draft '{name}' were taken down since it was made."
    remedy = "Nothing was approved. Write the draft again: `corpus release make CORPUS {name}`."
    exit_code = 77


def approve(name: str, *, who: str, why: str, settings: Settings, vault: Vault, now: datetime) -> dict[str, Any]:
    """Set the status of a draft to ``APPROVED``, which ``hydrate`` requires; the call may be repeated.

    Args:
        name: the name of the release.
        who: the person who decides; stored in the register, as is the reason.
        why: their reason.
        settings: the location of the register.
        vault: holds the tombstones, to find records of the draft that were taken down meanwhile.
        now: the current time; its date is published in the manifest.

    Raises:
        BadParams: who or why is empty, too long or not one line.
        NoSuchRelease: there is no draft of this name.
        DraftOutdated: a record of the draft was taken down since it was made.
        PackageAltered: a file differs from the draft.
    """
    approval = {**signed(who, why), "approved": now.isoformat()}
    entry = ReleaseEntry.of(settings, name)
    with locked(settings):
        state = entry.state()
        if state["status"] == DRAFT:
            gone = entry.ids() & set(release_ids(vault.tombstones(), release=name, vault=vault).values())
            if gone:
                raise DraftOutdated(name=name, count=len(gone))
            entry.check_draft(state)
            state |= {**approval, "status": APPROVED}
            entry.put(state)
        # the register is authoritative; this also updates a manifest that a killed run did not reach
        entry.stamp(state)
    return {key: state[key] for key in ("release", "corpus", "status", "who", "approved")}
