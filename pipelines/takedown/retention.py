"""Look up sources of records, and find those whose source approval has ended or whose retention period is over.

A takedown deletes both kinds of records. The source of a record is the one in the table ``records`` of its month. A
record of an imported dataset, or one that is in no month's table any more, belongs to no source of ``params.yaml`` and
is only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.collect.refresh_store import RefreshStore
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.store import tables
from pipelines.store.vault import checks
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace


def check_out(clone: Workspace, *, corpora: Iterable[str]) -> None:
    """Check out only the table ``records`` of every month of these corpora in a clone."""
    for corpus in corpora:
        clone.checkout_months(corpus, "records.parquet")


def by_record(root: Path, *, corpus: str, column: str) -> dict[str, str]:
    """Return a column of the table ``records`` by record id, from every month that is checked out under ``root``."""
    paths = sorted((root / "data" / corpus).glob("*/records.parquet"))
    posts = tables.concat(paths, name="records", columns=["record_id", column])
    return dict(zip(posts["record_id"].to_pylist(), posts[column].to_pylist(), strict=True))


def waiting(url: str | None, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id of the posts that wait in the store of refreshes, if any."""
    if url is None:
        return {}
    with RefreshStore.existing(url) as store:
        return store.origins(corpus, column=column) if store else {}


def published(settings: Settings, *, corpus: str, column: str) -> dict[str, str]:
    """Return ``source`` or ``subreddit`` by record id, from the corpus branch's newest commit and unpublished posts."""
    with workspace(settings) as clone:
        check_out(clone, corpora=[corpus])
        of_months = by_record(clone.path, corpus=corpus, column=column)
    return waiting(settings.refresh_url, corpus=corpus, column=column) | of_months


APPROVAL_ENDED, RETENTION = "approval-ended", "retention"


def expired(params: Params, vault: Vault, *, now: datetime, root: Path, refreshed: str | None = None) -> dict[str, str]:
    """Return the records of all corpora whose retention or approval has ended: record id -> code of the reason.

    ``approval-ended``: today is the source's ``expires`` or later, as for the collectors. ``retention``: the record was
    first seen ``retention_days`` ago or earlier. ``root``: a checkout with ``records`` of every month. ``refreshed``:
    the address of the store of refreshes, whose posts wait for their month.
    """
    rows = _rows(params, vault, now=now, root=root, url=refreshed)
    return {record: reason for record, _, _, _, reason in rows if reason}


def listing(
    params: Params, vault: Vault, *, now: datetime, root: Path, refreshed: str | None = None
) -> list[dict[str, Any]]:
    """Count by corpus, source and month the records that were not deleted and, by reason, the expired ones of them.

    ``source`` is ``None`` for records that are in no month's table: their retention is unknown.
    """
    kept: dict[tuple[str, str, str], Counter[str]] = {}
    for _, corpus, source, month, reason in _rows(params, vault, now=now, root=root, url=refreshed):
        counts = kept.setdefault((corpus, source or "", month), Counter())
        counts["records"] += 1
        counts[reason or "kept"] += 1
    return [
        {
            "corpus": corpus,
            "source": source or None,
            "month": month,
            "records": counts["records"],
            "expired": {why: counts[why] for why in (APPROVAL_ENDED, RETENTION) if counts[why]},
        }
        for (corpus, source, month), counts in sorted(kept.items())
    ]


def _rows(
    params: Params, vault: Vault, *, now: datetime, root: Path, url: str | None
) -> Iterator[tuple[str, str, str | None, str, str | None]]:
    """Yield record id, corpus, source, month and reason for every live record."""
    for corpus in params.corpora:
        # of posts that wait for their month, too
        sources = waiting(url, corpus=corpus, column="source") | by_record(root, corpus=corpus, column="source")
        with vault.database.reading() as connection:
            records = checks.known(connection, corpus=corpus)
        for known in records:
            source = sources.get(known.record_id)
            terms = next((terms for name, terms in params.sources.items() if name == source), None)
            reason = _reason(terms, first_seen=known.first_seen, now=now) if terms else None
            yield known.record_id, corpus, source, known.month, reason


def _reason(terms: SourceEntry, *, first_seen: datetime, now: datetime) -> str | None:
    if terms.expires is not None and terms.expires <= now.astimezone(UTC).date():
        return APPROVAL_ENDED
    if terms.retention_days is not None and first_seen + timedelta(days=terms.retention_days) <= now:
        return RETENTION
    return None
