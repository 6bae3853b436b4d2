"""Run the step ``collect``: bring the submissions of one month into a sealed table.

A month of a single source without listings is scanned once. A month of several sources, or of listings, comes from the
store of refreshes, each gap from the next source that can show it (:mod:`pipelines.collect.month_ledger`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pipelines.collect.admission import Admission, dated, revived
from pipelines.collect.month import Window, hours
from pipelines.collect.month_ledger import GAPS, AssembledMonth, PublishedMonth, assemble, write_gaps
from pipelines.collect.read.decode import require_sandbox
from pipelines.collect.sources import Monthly, open_source
from pipelines.core import telemetry
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.store.exclusions import CLOSED, WHOLE, write_exclusions
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace

STEP, TOMBSTONED = "collect", "tombstoned"


def work(root: Path, *, corpus: str, month: str) -> Path:
    """Return the folder of a month's intermediate tables, which later tasks read and git never contains."""
    return root / "work" / corpus / month


def run(
    corpus: str, *, window: Window, params: Params, settings: Settings, vault: Vault, now: datetime, root: Path = Path()
) -> dict[str, Any]:
    """Write ``records`` and ``drops`` of the month under ``work/``, and its ``gaps`` if it has several sources.

    Submissions of records that were taken down (tombstoned in the vault) are left out. Returns counts, the ``closed``
    subreddits, which no source shows, and for the following tasks ``shards`` (at least 1) and the number of the
    ``first``.
    """
    described = params.corpora[corpus]
    if described.content == "images" and any(params.sources[name].live for name in described.sources):
        # before anything is requested; the step `images` may run on another host and checks again
        require_sandbox(params.images.decode)
    folder = work(root, corpus=corpus, month=window.key)
    published = PublishedMonth.of(corpus, window.key, params=params, root=root, settings=settings)
    admission = Admission(corpus, params, vault, now)
    source, *others = described.sources
    if published or others or params.sources[source].listing:
        month = assemble(window, admission=admission, settings=settings, published=published)
        write_gaps(month.gaps, folder / GAPS)
    else:
        month = _scanned(source, window, admission=admission, settings=settings)
    if published:
        published.copy(folder)
    kept = write_rows(month.rows, folder / "records.parquet", name="records", vault=vault)
    drops = month.drops | dict.fromkeys(vault.tombstoned(month.drops), TOMBSTONED)
    # numbers of an addition must not be those of the published drops
    named = nameless(drops, month=f"{window.key}/{month.first}" if month.first else window.key)
    # not records: rows that name what the month lacks, and stay with the month
    named |= {f"{CLOSED}{window.key}/{name}": why for name, why in month.closed.items()}
    dropped = write_exclusions({(r, WHOLE): why for r, why in named.items()}, folder / "drops.parquet", step=STEP)
    telemetry.count("corpus.records.collected", kept, corpus=corpus)
    gaps = [interval for intervals in month.gaps.values() for interval in intervals]
    return {
        "submissions": kept + len(drops),
        "kept": kept,
        "dropped": {why: n for why, n in dropped.items() if why not in month.closed.values()},
        "closed": month.closed,
        "shards": max(1, -(-kept // params.collect.shard_size)),
        "first": month.first,
        "gaps": len(gaps),
        "gap_hours": hours(gaps),
    }


def _scanned(name: str, window: Window, *, admission: Admission, settings: Settings) -> AssembledMonth:
    # sealed, private and removed when the source is fully read: a retry requests only the missing pages
    state = settings.home / "resume" / f"{admission.corpus}-{window.key}"
    terms: dict[str, Any] = {"params": admission.params, "settings": settings, "today": admission.now.date()}
    source = open_source(name, Monthly, state=state, **terms)
    subreddits = admission.params.corpora[admission.corpus].subreddits
    items = [dated(item, "", 0) for item in source.submissions(window, subreddits=subreddits)]
    posts = admission.posts(items, source=name)
    rows = [revived(post.content) for post in posts if post.content is not None]
    gone = {admission.vault.record_id(item.fullname) for item, *_ in items} - {post.record_id for post in posts}
    drops = {post.record_id: post.reason for post in posts if post.reason}
    return AssembledMonth(rows, drops | dict.fromkeys(gone, TOMBSTONED), {})


def nameless(drops: Mapping[str, str], *, month: str) -> dict[str, str]:
    """Replace the ids of tombstoned records in ``drops`` by numbers, so that they are counted but not identified."""
    numbers = count()
    return {f"{TOMBSTONED}/{month}/{next(numbers)}" if why == TOMBSTONED else r: why for r, why in drops.items()}


def try_day(settings: Settings, *, corpus: str, day: date, now: datetime) -> dict[str, Any]:
    """Collect one day with the parameters of the corpus branch; return counts by outcome.

    Nothing stays: the vault has a secret of its own and is removed with the scratch folder, with every key in it. No
    tombstone is known, so a real month may have fewer records.
    """
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    with workspace(settings) as clone:
        params = load(clone.path)
        if corpus not in params.corpora:
            raise ConfigError("UnknownName", kind="corpus", name=corpus, known=", ".join(params.corpora))
        # beside the clone: removed with it, also after a kill
        home = clone.path.parent / "trial"
        home.mkdir()
        with Vault.open(f"sqlite:///{home}/vault.sqlite", secret=secrets.token_bytes(64)) as vault:
            done = run(
                corpus,
                window=Window(start, start + timedelta(days=1)),
                params=params,
                settings=settings.model_copy(update={"home": home, "refresh_url": f"sqlite:///{home}/refresh.sqlite"}),
                vault=vault,
                now=now,
                root=home,
            )
    return {"day": day.isoformat(), "source": ", ".join(params.corpora[corpus].sources)} | {
        key: done[key] for key in ("submissions", "kept", "dropped", "closed")
    }
