"""Find records whose source approval has ended or whose retention period is over.

A takedown deletes both kinds of records. The source of a record is the one in the table ``posts`` of its month. A
record of an imported dataset, or one that is in no month's table any more, belongs to no source of ``params.yaml`` and
is only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.config.collect import Source
from pipelines.config.params import Params
from pipelines.takedown.partitions import by_record
from pipelines.vault import checks
from pipelines.vault.vault import Vault

APPROVAL_ENDED, RETENTION = "approval-ended", "retention"


def expired(params: Params, vault: Vault, *, now: datetime, root: Path) -> dict[str, str]:
    """Return the records of all corpora whose retention or approval has ended: record id -> code of the reason.

    ``approval-ended``: today is the source's ``expires`` or later, as for the collectors. ``retention``: the record was
    first seen ``retention_days`` ago or earlier. ``root``: a checkout with ``posts`` of every month.
    """
    return {record: reason for record, _, _, _, reason in _rows(params, vault, now=now, root=root) if reason}


def listing(params: Params, vault: Vault, *, now: datetime, root: Path) -> list[dict[str, Any]]:
    """Count by corpus, source and month the records that were not deleted and, by reason, the expired ones of them.

    ``source`` is ``None`` for records that are in no month's table: their retention is unknown.
    """
    kept: dict[tuple[str, str, str], Counter[str]] = {}
    for _, corpus, source, month, reason in _rows(params, vault, now=now, root=root):
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
    params: Params, vault: Vault, *, now: datetime, root: Path
) -> Iterator[tuple[str, str, str | None, str, str | None]]:
    """Yield record id, corpus, source, month and reason for every live record."""
    for corpus in params.corpora:
        sources = by_record(root, corpus=corpus, column="source")
        with vault.database.reading() as connection:
            records = checks.known(connection, corpus=corpus)
        for known in records:
            source = sources.get(known.record_id)
            terms = next((terms for name, terms in params.sources.items() if name == source), None)
            reason = _reason(terms, first_seen=known.first_seen, now=now) if terms else None
            yield known.record_id, corpus, source, known.month, reason


def _reason(terms: Source, *, first_seen: datetime, now: datetime) -> str | None:
    if terms.expires is not None and terms.expires <= now.astimezone(UTC).date():
        return APPROVAL_ENDED
    if terms.retention_days is not None and first_seen + timedelta(days=terms.retention_days) <= now:
        return RETENTION
    return None
