"""Find the sources of a corpus's records, whose approvals have to cover each use of them.

A corpus is refused as a whole: a split, a round or a model of the records of its other sources would be another one.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.core.config.collect import Sources, require
from pipelines.core.config.params import Params
from pipelines.store import tables

__all__ = ["require", "sources_of", "stated"]


def sources_of(corpus: str, *, params: Params, root: Path | None = None) -> Sources:
    """Return the sources that a corpus reads, and those of its records in the months checked out below ``root``."""
    names = set(params.corpora[corpus].sources)
    # where every approval covers everything, the records need not be looked at
    if root and any(entry.restricted for entry in params.sources.values()):
        months = sorted((root / "data" / corpus).glob("*/records.parquet"))
        names |= set(tables.concat(months, name="records", columns=["source"])["source"].unique().to_pylist())
    return {name: entry for name, entry in params.sources.items() if name in names}


def stated(sources: Sources) -> dict[str, dict[str, object]]:
    """Return the approvals behind a corpus, for reports and receipts: by source its board, terms, end and uses."""
    keys = {"ethics", "access_basis", "approval", "expires", "uses"}
    return {name: entry.model_dump(mode="json", include=keys) for name, entry in sources.items()}
