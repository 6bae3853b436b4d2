"""Select the records that are due for a re-check on Reddit: younger records more often.

A record's age counts from the end of its month, the youngest possible age: the vault stores months only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache

from pipelines.collect.month import Window
from pipelines.config.operate import Band, Sweep
from pipelines.vault.checks import Known

QUARANTINED = "quarantined"


def band_of(month: str, *, bands: Sequence[Band], now: datetime) -> Band:
    """Return the age band (with its re-check interval) of the records of a month."""
    age = now - _end(month)
    return next(b for b in bands if b.until_days is None or age < timedelta(days=b.until_days))


def name_of(known: Known, *, bands: Sequence[Band], now: datetime) -> str:
    """Return the displayed name of a record's age band: ``quarantined``, ``under 30 days`` or ``older``."""
    if known.quarantined:
        return QUARANTINED
    end = band_of(known.month, bands=bands, now=now).until_days
    return "older" if end is None else f"under {end} days"


def due_at(known: Known, *, terms: Sweep, now: datetime) -> datetime:
    """Return when a record's re-check is due: never checked ones at once, quarantined ones in the next run."""
    if known.checked_at is None:
        return known.first_seen
    if known.quarantined:
        return known.checked_at + timedelta(hours=terms.recheck_hours)
    return known.checked_at + timedelta(days=band_of(known.month, bands=terms.bands, now=now).every_days)


def queue(records: Iterable[Known], *, terms: Sweep, now: datetime) -> list[Known]:
    """Return the records whose re-check is due now: quarantined ones first, then by how long they have been due."""
    times = {known: due_at(known, terms=terms, now=now) for known in records}
    ready = [known for known, time in times.items() if time <= now]
    return sorted(ready, key=lambda known: (not known.quarantined, times[known], known.record_id))


@cache
def _end(month: str) -> datetime:
    return Window.from_key(month).end
