"""Close a published month: remove its posts from the store of refreshes, and remember its gaps."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pipelines.collect.intervals import hours
from pipelines.collect.month import Window
from pipelines.collect.month_ledger import GAPS, PublishedMonth
from pipelines.collect.refresh import seconds_of
from pipelines.collect.refresh_store import RefreshStore
from pipelines.config.settings import Settings
from pipelines.workspace.clone import workspace


def close(corpus: str, window: Window, *, settings: Settings, revision: str, now: datetime) -> dict[str, Any]:
    """Close a month of the commit ``revision``; a repetition is harmless.

    Returns:
        ``gaps`` and ``gap_hours`` of the month; nothing for a month without a table ``gaps``.
    """
    with workspace(settings, revision=revision) as clone:
        if not (clone.path / "data" / corpus / window.key / f"{GAPS}.dvc").exists():
            return {}
        month = PublishedMonth.of(corpus, window.key, root=clone.path, settings=settings)
    if month is None:
        return {}
    given: dict[str, Any] = {"record_ids": month.record_ids, "left": month.gaps, "at": int(now.timestamp())}
    with RefreshStore.open(settings.refresh_url) as store:
        store.close_month(corpus, window.key, seconds_of(window), **given)
    intervals = [interval for several in month.gaps.values() for interval in several]
    return {"gaps": len(intervals), "gap_hours": hours(intervals)}
