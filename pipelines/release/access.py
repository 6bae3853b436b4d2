"""Approve a release, keep the register of who asked for it, and hand it over to approved researchers.

A package is a draft until a named person approves it with a reason.

FigSIM's terms (Ethics): approved researchers, academic use, not commercial. A request states who asks, where they work
and for which purpose; a named person grants or denies it, with a reason and until a day. Package and key leave only by
:func:`hand_over`, which needs a grant that has not ended. The register (``access.json`` beside ``release.json``) holds
no content and no ids of records; ``hydrate`` and removal lists are as before.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pipelines.core import formats
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, DataError
from pipelines.registry.journal import signed
from pipelines.release.release_store import (
    APPROVED,
    DRAFT,
    RETIRED,
    PackageAltered,
    ReleaseEntry,
    dumped,
    entries,
    locked,
    release_ids,
    write,
)
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


FILE = "access.json"
ASKED, GRANTED, DENIED = "asked", "granted", "denied"
# Ours: access is looked at again after at most this long.
MOST_DAYS = 731
Row = dict[str, Any]


def request(
    name: str, *, researcher: str, institution: str, purpose: str, settings: Settings, now: datetime
) -> dict[str, Any]:
    """Enter a request for a release into its register; return ``release``, ``number`` of the request and ``status``."""
    asked = signed(researcher, purpose)
    place = signed(institution, purpose)["who"]
    with locked(settings):
        entry, rows = _read(settings, name)
        row = {"number": len(rows) + 1, "researcher": asked["who"], "institution": place, "purpose": asked["why"]}
        row |= {"asked": now.isoformat(), "status": ASKED, "handed_over": []}
        _write(entry, [*rows, row])
    return {"release": name, "number": row["number"], "status": ASKED}


def decide(
    name: str,
    number: int,
    *,
    grant: bool,
    who: str,
    why: str,
    expires: date | None = None,
    settings: Settings,
    now: datetime,
) -> dict[str, Any]:
    """Grant a request until a day, or deny it; a later decision on the same request replaces the earlier one."""
    decision = signed(who, why)
    if grant and (expires is None or not 0 < (expires - now.date()).days <= MOST_DAYS):
        raise BadParams(where="--expires", detail="must be a day after today and within two years")
    with locked(settings):
        entry, rows = _read(settings, name)
        row = _of(rows, number, name=name, can="can be decided on")
        if row["researcher"].casefold() == decision["who"].casefold():
            raise BadParams(where="--who", detail="is the person who asks; another must decide")
        row |= {"status": GRANTED if grant else DENIED, "decided": now.isoformat(), **decision}
        row["expires"] = expires.isoformat() if grant and expires else None
        _write(entry, rows)
    return {"release": name, "number": number, "status": row["status"], "expires": row["expires"]}


def hand_over(name: str, number: int, *, to: Path, settings: Settings, now: datetime) -> dict[str, Any]:
    """Copy an approved release and its key to new folders for the person of a granted request, and note the day.

    The key is written beside the package, not into it: send both on different ways.

    Returns:
        ``release``, ``number``, ``package`` and ``key`` (paths).
    """
    with locked(settings):
        entry, rows = _read(settings, name)
        state = entry.state()
        if state["status"] != APPROVED:
            raise DataError("NotGranted", name=name, detail=f"it is {state['status']}, not {APPROVED}")
        row = _of(rows, number, name=name, can="can be handed over")
        if row["status"] != GRANTED:
            raise DataError("NotGranted", name=name, detail=f"request {number} is {row['status']}, not {GRANTED}")
        if date.fromisoformat(row["expires"]) <= now.date():
            raise DataError("NotGranted", name=name, detail=f"the grant of request {number} ended on {row['expires']}")
        if to.exists():
            raise BadParams(where="--to", detail="exists already and is not replaced")
        to.mkdir(parents=True, mode=0o700)
        shutil.copytree(entry.package(state), to / "package")
        key = to / "key" / entry.key.name
        write(key, entry.key.read_text(), mode=0o600)
        row["handed_over"] = [*row["handed_over"], now.isoformat()]
        _write(entry, rows)
    return {"release": name, "number": number, "package": str(to / "package"), "key": str(key)}


def register(settings: Settings, *, name: str | None = None, now: datetime) -> list[Row]:
    """Return the requests of one release, or of all, with ``valid``: whether a grant is valid today."""
    names = [name] if name else [entry.name for entry in entries(settings)]
    return [
        {"release": each, **row, "valid": _valid(row, now=now)} for each in names for row in _read(settings, each)[1]
    ]


def _valid(row: Row, *, now: datetime) -> bool:
    return row["status"] == GRANTED and date.fromisoformat(row["expires"]) > now.date()


def _read(settings: Settings, name: str) -> tuple[ReleaseEntry, list[Row]]:
    entry = ReleaseEntry.of(settings, name)
    entry.state()
    path = entry.folder / FILE
    rows: list[Row] = formats.opened("release", json.loads(path.read_text()))["requests"] if path.exists() else []
    return entry, rows


def _write(entry: ReleaseEntry, rows: list[Row]) -> None:
    write(entry.folder / FILE, dumped(formats.stamped("release", {"requests": rows})), mode=0o600)


def _of(rows: list[Row], number: int, *, name: str, can: str) -> Row:
    for row in rows:
        if row["number"] == number:
            return row
    raise DataError("NoSuchRequest", name=name, number=number, can=can)
