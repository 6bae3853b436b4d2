"""Report the gaps of the published months of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.collect.intervals import hours
from pipelines.collect.month_ledger import GAPS, gaps_of
from pipelines.workspace.clone import Workspace
from pipelines.workspace.pointer import read_pointer


def published(clone: Workspace, corpus: str) -> dict[str, Any]:
    """Return the number of months whose coverage is on record, and the hours without any source by month."""
    digests = _digests(clone, corpus)
    if not digests:
        return {}
    lost = hours_by_digest(clone, corpus)
    return {
        "months": len(digests),
        "month_gap_hours": {month: lost[digest] for month, digest in digests.items() if lost[digest]},
    }


def hours_by_digest(clone: Workspace, corpus: str) -> dict[str, float]:
    """Return the hours without any source for each digest of a table of gaps; months without a gap share one."""
    digests = set(_digests(clone, corpus).values())
    clone.objects.fetch(digests)
    return {digest: _hours(Path(clone.objects.cache.oid_to_path(digest))) for digest in digests}


def _digests(clone: Workspace, corpus: str) -> dict[str, str]:
    pointers = sorted((clone.path / "data" / corpus).glob(f"*/{GAPS}.dvc"))
    return {path.parent.name: read_pointer(path.read_text()).md5 for path in pointers}


def _hours(path: Path) -> float:
    return hours(interval for intervals in gaps_of(path).values() for interval in intervals)
