"""Record which ids takedowns removed from the lists of records that models were trained on.

A list is identified by its digest, which the model's committed metrics hold, too. Each row has the number of ids that a
takedown removed from a list, and the digest of the shortened list, by which the shortened list is recognised. The rows
hold digests and counts; each is authenticated under the project secret.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa

from pipelines.core.errors import DataError
from pipelines.store.vault.database import removals
from pipelines.store.vault.vault import Vault


@dataclass(frozen=True)
class Removal:
    """A takedown's removal of ids from one list of training records.

    ``before`` and ``after`` are the digests of the list, ``removed`` is the number of ids, and ``at`` the time.
    """

    before: str
    after: str
    removed: int
    at: datetime


def record(vault: Vault, fresh: list[Removal]) -> None:
    """Store removals of ids from lists of training records; a removal that is already stored keeps its time."""
    if not fresh:
        return
    with vault.database.writing() as connection:
        known = {(row.before, row.after) for row in connection.execute(sa.select(removals))}
        rows = {(r.before, r.after): r for r in fresh if (r.before, r.after) not in known}
        if rows:
            connection.execute(sa.insert(removals), [asdict(r) | {"mac": _mac(vault, r)} for r in rows.values()])


def every(vault: Vault) -> list[Removal]:
    """Return all removals of ids from lists of training records, oldest first."""
    with vault.database.reading() as connection:
        rows = connection.execute(sa.select(removals).order_by(removals.c.at, removals.c.before)).all()
    stored = [Removal(row.before, row.after, row.removed, row.at) for row in rows]
    if wrong := sum(not hmac.compare_digest(row.mac, _mac(vault, r)) for row, r in zip(rows, stored, strict=True)):
        raise DataError("RemovalAltered", count=wrong)
    return stored


def removed(vault: Vault, *, before: str, after: str) -> int | None:
    """Return how many ids takedowns removed from the list with digest ``before`` to leave the list ``after``.

    Returns ``None`` if takedowns did not shorten the one list to the other.
    """
    reached = {before: 0}
    rows = every(vault)
    # each pass follows one takedown further
    for _ in rows:
        reached = {r.after: reached[r.before] + r.removed for r in rows if r.before in reached} | reached
    return reached.get(after)


def begun(vault: Vault) -> dict[str, datetime]:
    """Return when a takedown first removed an id from each list of training records, by the list's digest."""
    return {r.before: r.at for r in reversed(every(vault))}


def _mac(vault: Vault, removal: Removal) -> str:
    text = f"{removal.before} {removal.after} {removal.removed} {removal.at.isoformat()}"
    return vault.record_id(text, domain="removals")
