"""Assemble a month from the store of refreshes, and record which intervals no source could show.

A published month that has gaps, or posts of a listing, is never collected again as a whole: its posts stay, and only
those of its gaps and those approved late are added, since pictures and listings of the others may be gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.collect.admission import Admission, revived
from pipelines.collect.gap_filling import GapFiller, remaining
from pipelines.collect.intervals import Interval
from pipelines.collect.listing_reader import SOURCE
from pipelines.collect.month import ADDITION, Window
from pipelines.collect.refresh import read_listings, seconds_of
from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.sources.service import SubredditClosed
from pipelines.config.settings import Settings
from pipelines.errors import SourceError
from pipelines.storage import tables
from pipelines.storage.exclusions import CLOSED
from pipelines.workspace.clone import Workspace

GAPS, POSTS, DROPS = "gaps.parquet", "posts.parquet", "drops.parquet"
# Copies of the published tables, which the step `partition` joins with what is added.
PUBLISHED = "published_"


@dataclass(frozen=True)
class AssembledMonth:
    """The posts of a month, why others are left out, and its gaps by subreddit.

    ``published`` has the ids that are in the month already; ``first`` is the number of the first shard; ``closed`` has
    the subreddits that no source shows, with the reason.
    """

    rows: list[dict[str, Any]]
    drops: dict[str, str]
    gaps: dict[str, list[Interval]]
    published: frozenset[str] = frozenset()
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
    def of(cls, corpus: str, month: str, *, root: Path, settings: Settings) -> PublishedMonth | None:
        """Read the month's tables, fetching them if they are only named; ``None`` for a month to collect as a whole."""
        folder = root / "data" / corpus / month
        if (folder / f"{GAPS}.dvc").exists():
            wanted = (folder.relative_to(root) / name for name in (GAPS, POSTS, DROPS))
            with closing(Workspace(root, settings=settings)) as clone:
                clone.checkout(*map(str, wanted))
        if not (folder / GAPS).exists():
            return None
        gaps, sources = gaps_of(folder / GAPS), tables.read(folder / POSTS, name="posts", columns=["source"])["source"]
        if not gaps and SOURCE not in sources.unique().to_pylist():
            return None
        shards = (path.name.partition(".")[0] for path in folder.glob("*/*.parquet*"))
        additions = 1 + max((int(shard) // ADDITION for shard in shards if shard.isdigit()), default=0)
        return cls(folder, gaps, frozenset(ids_of(folder)), additions)

    def copy(self, folder: Path) -> None:
        """Copy the published tables beside those of the addition, without the subreddits that were closed then."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / POSTS, folder / f"{PUBLISHED}{POSTS}")
        drops = tables.read(self.folder / DROPS, name="drops")
        drops = drops.filter(pc.invert(pc.starts_with(drops["record_id"], CLOSED)))
        tables.write(drops, folder / f"{PUBLISHED}{DROPS}", name="drops")


def assemble(
    window: Window, *, admission: Admission, settings: Settings, published: PublishedMonth | None
) -> AssembledMonth:
    """Bring what is missing of a month to the store, source by source, and return the month.

    Raises:
        SourceError: no source could show anything of the month; the first error.
    """
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
            admission.params.sources[name].check(name, today=admission.now.date())
            if name == SOURCE:
                failures += read_listings(gaps, admission=admission, settings=settings, store=store)
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
    closed = {f"r/{one['subreddit']}": f"subreddit_{one['reason']}" for one in refused if one["subreddit"] in gaps}
    return AssembledMonth(rows, left, gaps, done, published.additions * ADDITION if published else 0, closed)


def write_gaps(gaps: Mapping[str, Sequence[Interval]], path: Path) -> None:
    """Write the table ``gaps``, which is empty for a month of which everything was read."""
    rows = [
        {"subreddit": subreddit, "start": _moment(start), "end": _moment(end)}
        for subreddit, intervals in gaps.items()
        for start, end in intervals
    ]
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["gaps"]), path, name="gaps")


def gaps_of(path: Path) -> dict[str, list[Interval]]:
    """Return the intervals of a table ``gaps`` by subreddit."""
    found: dict[str, list[Interval]] = {}
    for row in tables.read(path, name="gaps").to_pylist():
        found.setdefault(row["subreddit"], []).append((int(row["start"].timestamp()), int(row["end"].timestamp())))
    return found


def ids_of(folder: Path) -> set[str]:
    """Return the records of a month's tables, kept or left out."""
    found = (tables.read(folder / f"{name}.parquet", name=name, columns=["record_id"]) for name in ("posts", "drops"))
    return {record_id for table in found for record_id in table["record_id"].to_pylist()}


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, tz=UTC)
