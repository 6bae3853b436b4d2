"""Assemble a month from the store of refreshes, and record which intervals no source could show.

A published month that has gaps, or posts of a listing, is never collected again as a whole: its posts stay, and only
those of its gaps and those approved late are added, since pictures and listings of the others may be gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from pipelines.collect.admission import Admission, revived
from pipelines.collect.month import ADDITION, Interval, Window, hours, seconds_of
from pipelines.collect.refresh import GapFiller, read_listings, remaining
from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.service import SubredditClosed
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceError
from pipelines.store import tables
from pipelines.store.exclusions import CLOSED
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.inventory import read_pointer

GAPS, RECORDS, DROPS = "gaps.parquet", "records.parquet", "drops.parquet"
# Copies of the published tables, which the step `partition` joins with what is added.
PUBLISHED = "published_"


@dataclass(frozen=True)
class AssembledMonth:
    """The posts of a month, why others are left out, and its gaps by subreddit.

    ``first`` is the number of the first shard; ``closed`` has the subreddits that no source shows, with the reason.
    """

    rows: list[dict[str, Any]]
    drops: dict[str, str]
    gaps: dict[str, list[Interval]]
    first: int = 0
    closed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedMonth:
    """The tables of a published month that has a table ``gaps``."""

    folder: Path
    gaps: dict[str, list[Interval]] = field(default_factory=dict)
    record_ids: frozenset[str] = frozenset()
    additions: int = 0

    @classmethod
    def of(cls, corpus: str, month: str, *, params: Params, root: Path, settings: Settings) -> PublishedMonth | None:
        """Read the month's tables, fetching them if they are only named; ``None`` for a month to collect as a whole."""
        folder = root / "data" / corpus / month
        if (folder / f"{GAPS}.dvc").exists():
            wanted = (folder.relative_to(root) / name for name in (GAPS, RECORDS, DROPS))
            with closing(Workspace(root, settings=settings)) as clone:
                clone.checkout(*map(str, wanted))
        if not (folder / GAPS).exists():
            return None
        gaps, records = gaps_of(folder / GAPS), tables.read(folder / RECORDS, name="records", columns=["source"])
        listed = {name for name, entry in params.sources.items() if entry.listing}
        if not gaps and listed.isdisjoint(records["source"].unique().to_pylist()):
            return None
        shards = (path.name.partition(".")[0] for path in folder.glob("*/*.parquet*"))
        additions = 1 + max((int(shard) // ADDITION for shard in shards if shard.isdigit()), default=0)
        return cls(folder, gaps, frozenset(ids_of(folder)), additions)

    def copy(self, folder: Path) -> None:
        """Copy the published tables beside those of the addition, without the subreddits that were closed then."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / RECORDS, folder / f"{PUBLISHED}{RECORDS}")
        drops = tables.read(self.folder / DROPS, name="drops")
        drops = drops.filter(pc.invert(pc.starts_with(drops["record_id"], CLOSED)))
        tables.write(drops, folder / f"{PUBLISHED}{DROPS}", name="drops")


def assemble(
    window: Window, *, admission: Admission, settings: Settings, published: PublishedMonth | None
) -> AssembledMonth:
    """Bring what is missing of a month to the store, source by source, and return the month."""
    corpus, interval = admission.corpus, seconds_of(window)
    described = admission.params.corpora[corpus]
    whole = published.gaps if published else {subreddit: [interval] for subreddit in described.subreddits}
    failures: list[SourceError] = []
    with RefreshStore.open(settings.refresh_url) as store:
        if published is None:
            store.forget_published(corpus, interval)
        gaps = remaining(whole, store, corpus=corpus)
        for name in described.sources:
            if not gaps:
                break
            if name == admission.params.listing(corpus):
                failures += read_listings(name, gaps, admission=admission, settings=settings, store=store)
            else:
                failures += GapFiller(admission, settings, store).fill(name, gaps)
            gaps = remaining(gaps, store, corpus=corpus)
        if failures and published is None and gaps == {s: [interval] for s in described.subreddits}:
            raise failures[0]
        contents, drops = store.waiting(corpus, interval, vault=admission.vault)
    done = published.record_ids if published else frozenset()
    rows = [revived(content) for content in contents if content["record_id"] not in done]
    left = {record_id: why for record_id, why in drops.items() if record_id not in done}
    refused = (error.fields for error in failures if isinstance(error, SubredditClosed))
    closed = {
        f"r/{fields['subreddit']}": f"subreddit_{fields['reason']}" for fields in refused if fields["subreddit"] in gaps
    }
    return AssembledMonth(rows, left, gaps, published.additions * ADDITION if published else 0, closed)


def write_gaps(gaps: Mapping[str, Sequence[Interval]], path: Path) -> None:
    """Write the table ``gaps``, which is empty for a month of which everything was read."""
    rows = [
        {"subreddit": subreddit, "start": window.start, "end": window.end}
        for subreddit, intervals in gaps.items()
        for window in map(Window.of, intervals)
    ]
    tables.write_rows(rows, path, name="gaps")


def gaps_of(path: Path) -> dict[str, list[Interval]]:
    """Return the intervals of a table ``gaps`` by subreddit."""
    intervals: dict[str, list[Interval]] = {}
    for row in tables.read(path, name="gaps").to_pylist():
        intervals.setdefault(row["subreddit"], []).append((int(row["start"].timestamp()), int(row["end"].timestamp())))
    return intervals


def ids_of(folder: Path) -> set[str]:
    """Return the records of a month's tables, kept or left out."""
    read = (tables.read(folder / f"{name}.parquet", name=name, columns=["record_id"]) for name in ("records", "drops"))
    return {record_id for table in read for record_id in table["record_id"].to_pylist()}


def close_month(corpus: str, window: Window, *, settings: Settings, revision: str, now: datetime) -> dict[str, Any]:
    """Close a month of a commit; return ``gaps`` and ``gap_hours``, or nothing without a table ``gaps``. Idempotent."""
    with workspace(settings, revision=revision) as clone:
        folder = clone.path / "data" / corpus / window.key
        if not (folder / f"{GAPS}.dvc").exists():
            return {}
        clone.checkout(*(str((folder / name).relative_to(clone.path)) for name in (GAPS, RECORDS, DROPS)))
        return close_tables(corpus, window, folder=folder, settings=settings, now=now)


def close_tables(corpus: str, window: Window, *, folder: Path, settings: Settings, now: datetime) -> dict[str, Any]:
    """Close a month whose tables are in ``folder``; see :func:`close_month`."""
    left = gaps_of(folder / GAPS)
    with RefreshStore.open(settings.refresh_url) as store:
        at, ids = int(now.timestamp()), ids_of(folder)
        store.close_month(corpus, window.key, seconds_of(window), record_ids=ids, left=left, at=at)
    intervals = list(chain.from_iterable(left.values()))
    return {"gaps": len(intervals), "gap_hours": hours(intervals)}


def coverage_of(clone: Workspace, corpus: str) -> dict[str, Any]:
    """Return the number of months whose coverage is on record, and the hours without any source by month."""
    digests = _gap_digests(clone, corpus)
    if not digests:
        return {}
    lost = gap_hours_by_digest(clone, corpus)
    return {
        "months": len(digests),
        "month_gap_hours": {month: lost[digest] for month, digest in digests.items() if lost[digest]},
    }


def gap_hours_by_digest(clone: Workspace, corpus: str) -> dict[str, float]:
    """Return the hours without any source for each digest of a table of gaps; months without a gap share one."""
    digests = set(_gap_digests(clone, corpus).values())
    clone.objects.fetch(digests)
    gaps = {digest: gaps_of(Path(clone.objects.cache.oid_to_path(digest))) for digest in digests}
    return {digest: hours(chain.from_iterable(intervals.values())) for digest, intervals in gaps.items()}


def _gap_digests(clone: Workspace, corpus: str) -> dict[str, str]:
    pointers = sorted((clone.path / "data" / corpus).glob(f"*/{GAPS}.dvc"))
    return {path.parent.name: read_pointer(path.read_text()).md5 for path in pointers}
