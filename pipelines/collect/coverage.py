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
    pointers = {p.parent.name: p for p in sorted((clone.path / "data" / corpus).glob(f"*/{GAPS}.dvc"))}
    if not pointers:
        return {}
    # months without a gap have the same, empty table
    digests = {month: read_pointer(path.read_text()).md5 for month, path in pointers.items()}
    clone.objects.fetch(digests.values())
    lost = {digest: _hours(Path(clone.objects.cache.oid_to_path(digest))) for digest in set(digests.values())}
    return {
        "months": len(pointers),
        "month_gap_hours": {month: lost[digest] for month, digest in digests.items() if lost[digest]},
    }


def _hours(path: Path) -> float:
    return hours(interval for intervals in gaps_of(path).values() for interval in intervals)
