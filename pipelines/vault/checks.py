"""What the vault remembers of the sweep: what was last heard of each record, and the counts of the newest run.

Two tables that older vaults get when they are opened; ``missed`` and ``last_seen`` stand in ``records`` as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from pipelines.vault.database import among, checks, records, sweeps
from pipelines.vault.engine import chunks

SEEN, MISSING, CLOSED = "seen", "missing", "closed"
# What Reddit says itself of a post that is gone.
MARKS = frozenset({"deleted", "removed"})
# `reddit.info()` leaves out what it cannot see; that is no proof (DESIGN.md 11), twice in a row is.
MISSES = 2


@dataclass(frozen=True, slots=True)
class Known:
    """A live record as the sweep knows it; ``outcome`` is the last one, ``None`` if it was never asked about."""

    record_id: str
    month: str
    first_seen: datetime
    missed: int
    checked_at: datetime | None
    outcome: str | None

    @property
    def quarantined(self) -> bool:
        """Return whether it was not as it should be when last asked about."""
        return self.missed > 0 or self.outcome in MARKS


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run has heard of records that were well before: how many were asked about, missing, and marked as gone."""

    fresh: int = 0
    missing: int = 0
    marked: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.fresh + other.fresh, self.missing + other.missing, self.marked + other.marked)

    @classmethod
    def of(cls, answers: Mapping[Known, str]) -> Tally:
        """Count answers; of a closed subreddit nothing was heard."""
        heard = [a for known, a in answers.items() if not known.quarantined and a != CLOSED]
        return cls(len(heard), sum(a == MISSING for a in heard), sum(a in MARKS for a in heard))


def known(connection: sa.Connection, *, corpus: str) -> list[Known]:
    """Return every live record of a corpus."""
    return _read(connection, sa.and_(records.c.corpus == corpus, records.c.deleted_at.is_(None)))


def begin(connection: sa.Connection, *, corpus: str, now: datetime) -> tuple[datetime, Tally]:
    """Return when the open run began and what it has heard; without one, begin it now. Forget records taken down."""
    dead = sa.select(records.c.record_id).where(records.c.deleted_at.is_not(None))
    connection.execute(sa.delete(checks).where(checks.c.record_id.in_(dead)))
    query = sa.select(sweeps.c.begun, sweeps.c.fresh, sweeps.c.missing, sweeps.c.marked)
    row = connection.execute(query.where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))).one_or_none()
    if row:
        return row.begun, Tally(row.fresh, row.missing, row.marked)
    connection.execute(sa.delete(sweeps).where(sweeps.c.corpus == corpus))
    connection.execute(sa.insert(sweeps).values(corpus=corpus, begun=now, fresh=0, missing=0, marked=0))
    return now, Tally()


def note(connection: sa.Connection, answers: Mapping[Known, str], *, corpus: str, now: datetime) -> dict[Known, str]:
    """Keep one request's answers, whole or not at all.

    Returns those that were kept: not of records that were taken down, or asked about by another process, meanwhile.
    """
    asked = {known.record_id: known for known in answers}
    there = _read(connection, sa.and_(among(list(asked)), records.c.deleted_at.is_(None)))
    kept = {known: answers[known] for known in there if asked[known.record_id] == known}
    if not kept:
        return kept
    update = sa.update(records).where(records.c.record_id == sa.bindparam("id"))
    seen = [{"id": k.record_id} for k, answer in kept.items() if answer == SEEN]
    missing = [{"id": k.record_id} for k, answer in kept.items() if answer == MISSING]
    if seen:
        connection.execute(update.values(missed=0, last_seen=now), seen)
    if missing:
        connection.execute(update.values(missed=records.c.missed + 1), missing)
    connection.execute(sa.delete(checks).where(checks.c.record_id.in_([k.record_id for k in kept])))
    rows = [
        {"record_id": k.record_id, "checked_at": now, "outcome": k.outcome if a == CLOSED and k.outcome else a}
        for k, a in kept.items()
    ]
    connection.execute(sa.insert(checks), rows)
    heard = Tally.of(kept)
    counts = {
        "fresh": sweeps.c.fresh + heard.fresh,
        "missing": sweeps.c.missing + heard.missing,
        "marked": sweeps.c.marked + heard.marked,
    }
    connection.execute(sa.update(sweeps).where(sweeps.c.corpus == corpus).values(counts))
    return kept


def end(connection: sa.Connection, *, corpus: str, now: datetime) -> None:
    """Close the open run."""
    open_run = sa.update(sweeps).where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))
    connection.execute(open_run.values(ended=now))


def take_back(connection: sa.Connection, *, corpus: str, since: datetime, now: datetime) -> int:
    """Forget every miss and mark noted since a run began, and close it; return how many.

    These records are as they were before, and due at once.
    """
    heard = sa.select(records.c.record_id, checks.c.outcome).join(checks, checks.c.record_id == records.c.record_id)
    recent = heard.where(records.c.corpus == corpus, records.c.deleted_at.is_(None), checks.c.checked_at >= since)
    rows = connection.execute(recent.where(checks.c.outcome.in_([MISSING, *MARKS]))).all()
    for ids in chunks([record_id for record_id, outcome in rows if outcome == MISSING]):
        missed = sa.update(records).where(among(ids), records.c.missed > 0)
        connection.execute(missed.values(missed=records.c.missed - 1))
    for ids in chunks([record_id for record_id, _ in rows]):
        connection.execute(sa.delete(checks).where(checks.c.record_id.in_(ids)))
    end(connection, corpus=corpus, now=now)
    return len(rows)


def gone(connection: sa.Connection, *, corpus: str) -> dict[str, str]:
    """Return those that a takedown is due for, with the code of its reason: ``deleted``, ``removed``, ``missing``.

    What an open run has noted waits until that run ends: it may yet turn out to be an outage.
    """
    query = sa.select(sweeps.c.begun).where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))
    begun = connection.scalar(query)
    found = {}
    for each in known(connection, corpus=corpus):
        if begun is not None and each.checked_at is not None and each.checked_at >= begun:
            continue
        if each.outcome in MARKS:
            found[each.record_id] = str(each.outcome)
        elif each.missed >= MISSES:
            found[each.record_id] = MISSING
    return found


def _read(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Known]:
    columns = (records.c.record_id, records.c.month, records.c.first_seen, records.c.missed)
    joined = records.outerjoin(checks, checks.c.record_id == records.c.record_id)
    query = sa.select(*columns, checks.c.checked_at, checks.c.outcome).select_from(joined).where(condition)
    return [Known(*row) for row in connection.execute(query)]
