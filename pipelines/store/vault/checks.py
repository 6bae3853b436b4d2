"""Store the deletion sweep's last result for each record, and the counts of its newest run.

A sweep checks on Reddit whether the posts still exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa

from pipelines.store.vault.database import among, checks, get_mark, put_mark, records, sweeps
from pipelines.store.vault.engine import chunks

SEEN, MISSING, CLOSED = "seen", "missing", "closed"
# Reddit's own marks of a post that no longer exists.
MARKS = frozenset({"deleted", "removed"})
# `reddit.info()` leaves out posts that it cannot see: once is no proof of deletion (DESIGN.md 11), twice in a row is.
MISSES = 2


@dataclass(frozen=True, slots=True)
class Known:
    """A live record with time and outcome of its last check on Reddit, both ``None`` if it was never checked."""

    record_id: str
    month: str
    first_seen: datetime
    missed: int
    checked_at: datetime | None
    outcome: str | None

    @property
    def quarantined(self) -> bool:
        """Return whether the post was missing, deleted or removed when it was last checked."""
        return self.missed > 0 or self.outcome in MARKS


@dataclass(frozen=True, slots=True)
class SweepTally:
    """The counts of a deletion sweep over records that were not quarantined before.

    ``fresh`` counts checked records, ``missing`` missing posts, and ``marked`` deleted or removed posts.
    """

    fresh: int = 0
    missing: int = 0
    marked: int = 0

    def __add__(self, other: SweepTally) -> SweepTally:
        return SweepTally(self.fresh + other.fresh, self.missing + other.missing, self.marked + other.marked)

    @classmethod
    def of(cls, answers: Mapping[Known, str]) -> SweepTally:
        """Count these check outcomes by record; outcomes for closed subreddits are not counted."""
        heard = [a for known, a in answers.items() if not known.quarantined and a != CLOSED]
        return cls(len(heard), sum(a == MISSING for a in heard), sum(a in MARKS for a in heard))


def known(connection: sa.Connection, *, corpus: str) -> list[Known]:
    """Return every live record of a corpus with its last check on Reddit."""
    return _read(connection, _live(corpus))


def begin(connection: sa.Connection, *, corpus: str, now: datetime) -> tuple[datetime, SweepTally]:
    """Return start and counts of the corpus's unfinished deletion sweep, or start a new one.

    The checks of tombstoned records are deleted.
    """
    dead = sa.select(records.c.record_id).where(records.c.deleted_at.is_not(None))
    connection.execute(sa.delete(checks).where(checks.c.record_id.in_(dead)))
    query = sa.select(sweeps.c.begun, sweeps.c.fresh, sweeps.c.missing, sweeps.c.marked)
    row = connection.execute(query.where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))).one_or_none()
    if row:
        return row.begun, SweepTally(row.fresh, row.missing, row.marked)
    connection.execute(sa.delete(sweeps).where(sweeps.c.corpus == corpus))
    connection.execute(sa.insert(sweeps).values(corpus=corpus, begun=now, fresh=0, missing=0, marked=0))
    return now, SweepTally()


def note(connection: sa.Connection, answers: Mapping[Known, str], *, corpus: str, now: datetime) -> dict[Known, str]:
    """Store the outcomes of one request to Reddit for many records in one transaction.

    Returns the outcomes that were stored, without records that were taken down or checked by another process meanwhile.
    """
    asked = {known.record_id: known for known in answers}
    there = _read(connection, sa.and_(among(list(asked)), records.c.deleted_at.is_(None)))
    kept = {known: answers[known] for known in there if asked[known.record_id] == known}
    if not kept:
        return kept
    for outcome, values in (SEEN, {"missed": 0, "last_seen": now}), (MISSING, {"missed": records.c.missed + 1}):
        if ids := [k.record_id for k, answer in kept.items() if answer == outcome]:
            connection.execute(sa.update(records).where(among(ids)).values(values))
    connection.execute(sa.delete(checks).where(checks.c.record_id.in_([k.record_id for k in kept])))
    rows = [
        {"record_id": k.record_id, "checked_at": now, "outcome": k.outcome if a == CLOSED and k.outcome else a}
        for k, a in kept.items()
    ]
    connection.execute(sa.insert(checks), rows)
    counts = {name: sweeps.c[name] + count for name, count in asdict(SweepTally.of(kept)).items()}
    connection.execute(sa.update(sweeps).where(sweeps.c.corpus == corpus).values(counts))
    return kept


def end(connection: sa.Connection, *, corpus: str, now: datetime) -> None:
    """End the unfinished deletion sweep of a corpus."""
    open_run = sa.update(sweeps).where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))
    connection.execute(open_run.values(ended=now))


def succeed(connection: sa.Connection, *, corpus: str, now: datetime) -> None:
    """End the unfinished deletion sweep of a corpus and record its success, which later failures do not delete."""
    end(connection, corpus=corpus, now=now)
    put_mark(connection, name=_mark(corpus), value=now.isoformat().encode())


def last_success(connection: sa.Connection, *, corpus: str) -> datetime | None:
    """Return the time of the last successful deletion sweep of a corpus, or ``None``."""
    value = get_mark(connection, name=_mark(corpus))
    return datetime.fromisoformat(value.decode()) if value else None


def first_seen(connection: sa.Connection, *, corpus: str) -> datetime | None:
    """Return when the oldest live record of a corpus was first stored, or ``None`` if there are no records."""
    query = sa.select(records.c.first_seen).where(_live(corpus)).order_by(records.c.first_seen).limit(1)
    seen: datetime | None = connection.scalar(query)
    return seen


def never_checked(connection: sa.Connection, *, corpus: str) -> int:
    """Count the live records of a corpus that no sweep has checked, such as imported ones that no source knows."""
    checked = sa.select(checks.c.record_id)
    query = sa.select(sa.func.count()).where(_live(corpus), records.c.record_id.not_in(checked))
    return int(connection.scalar(query) or 0)


def _mark(corpus: str) -> str:
    return f"swept/{corpus}"[:32]


def take_back(connection: sa.Connection, *, corpus: str, since: datetime, now: datetime) -> int:
    """Undo all misses and marks since the deletion sweep began, end the sweep, and return how many were undone.

    These records have their earlier state again and are due for a check at once.
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
    """Return the records due for a takedown with the reason: ``deleted``, ``removed`` or ``missing``.

    Results of an unfinished sweep are left out until it ends, because Reddit may prove to have an outage.
    """
    query = sa.select(sweeps.c.begun).where(sweeps.c.corpus == corpus, sweeps.c.ended.is_(None))
    begun = connection.scalar(query)
    marked = sa.select(checks.c.record_id).where(checks.c.outcome.in_(MARKS))
    candidates = sa.or_(records.c.missed >= MISSES, records.c.record_id.in_(marked))
    reasons = {}
    for each in _read(connection, sa.and_(_live(corpus), candidates)):
        if begun is not None and each.checked_at is not None and each.checked_at >= begun:
            continue
        reasons[each.record_id] = str(each.outcome) if each.outcome in MARKS else MISSING
    return reasons


def _live(corpus: str) -> sa.ColumnElement[bool]:
    return sa.and_(records.c.corpus == corpus, records.c.deleted_at.is_(None))


def _read(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Known]:
    columns = (records.c.record_id, records.c.month, records.c.first_seen, records.c.missed)
    joined = records.outerjoin(checks, checks.c.record_id == records.c.record_id)
    query = sa.select(*columns, checks.c.checked_at, checks.c.outcome).select_from(joined).where(condition)
    return [Known(*row) for row in connection.execute(query)]
