"""Close a published month: remove its posts from the store of refreshes, and remember its gaps."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.collect.intervals import hours
from pipelines.collect.month import Window
from pipelines.collect.month_ledger import DROPS, GAPS, POSTS, gaps_of, ids_of
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
        folder = clone.path / "data" / corpus / window.key
        if not (folder / f"{GAPS}.dvc").exists():
            return {}
        clone.checkout(*(str((folder / name).relative_to(clone.path)) for name in (GAPS, POSTS, DROPS)))
        return record(corpus, window, folder=folder, settings=settings, now=now)


def record(corpus: str, window: Window, *, folder: Path, settings: Settings, now: datetime) -> dict[str, Any]:
    """Close a month whose tables are in ``folder``; see :func:`close`."""
    left = gaps_of(folder / GAPS)
    with RefreshStore.open(settings.refresh_url) as store:
        given: dict[str, Any] = {"record_ids": ids_of(folder), "left": left, "at": int(now.timestamp())}
        store.close_month(corpus, window.key, seconds_of(window), **given)
    intervals = [interval for several in left.values() for interval in several]
    return {"gaps": len(intervals), "gap_hours": hours(intervals)}
