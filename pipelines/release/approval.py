"""The sign-off: a package is a draft until a person says who they are and why it may leave the house."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pipelines.config.settings import Settings
from pipelines.errors import DataError
from pipelines.registry.journal import said
from pipelines.release.register import APPROVED, DRAFT, Entry, locked
from pipelines.release.rekey import release_ids
from pipelines.vault.vault import Vault


class DraftOutdated(DataError):
    """Records of a draft were taken down after it was made."""

    message = "{count} records of draft '{name}' were taken down since it was made."
    remedy = "Nothing was approved. Make the draft again."
    exit_code = 77


def approve(name: str, *, who: str, why: str, settings: Settings, vault: Vault, now: datetime) -> dict[str, Any]:
    """Sign a draft off: its manifest says ``APPROVED`` from now on, and ``hydrate`` takes it. Repeating is harmless.

    Args:
        name: of the release.
        who: decides; stays in the register, as does the reason.
        why: their reason.
        settings: where the register is.
        vault: asked whether a record of the draft was taken down meanwhile.
        now: when; the date goes out.

    Raises:
        BadParams: who or why is empty, too long or not one line.
        NoSuchRelease: there is no draft of this name.
        DraftOutdated: a record of it was taken down since.
        PackageAltered: a file is not what was drafted.
    """
    signed = {"who": said(who, where="who"), "why": said(why, where="why"), "approved": now.isoformat()}
    entry = Entry.of(settings, name)
    with locked(settings):
        state = entry.state()
        if state["status"] == DRAFT:
            gone = entry.ids() & set(release_ids(vault.tombstones(), release=name, vault=vault).values())
            if gone:
                raise DraftOutdated(name=name, count=len(gone))
            entry.check_draft(state)
            state |= {**signed, "status": APPROVED}
            entry.put(state)
        # the register decides; a manifest that a killed run did not reach follows it now
        entry.stamp(state)
    return {key: state[key] for key in ("release", "corpus", "status", "who", "approved")}
