"""Select the records that people should review: labellers disagree, or the text may have influenced them.

Reasons: ``no_majority`` (no label set has a majority), ``severity_dissent`` (a valid vote is more severe than the
silver labels, by the scheme's severities), ``refused_by_most`` (a majority of members refused), ``injection`` (the text
addresses a model rather than a reader and may have influenced the votes).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pipelines.label.aggregate import Decision, Panel
from pipelines.label.ballots import quorum
from pipelines.storage import tables
from pipelines.storage.seal import open_column
from pipelines.vault.vault import Vault

REASONS = ("no_majority", "severity_dissent", "refused_by_most", "injection")


def reasons(
    decisions: Mapping[str, Decision],
    *,
    panel: Panel,
    refused: Mapping[str, Collection[str]],
    injected: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """Return the records to review, each with its reasons in the order of :data:`REASONS`.

    ``refused`` names the labellers that refused a record; ``injected`` are the records marked by :func:`injected_of`.
    """
    queue, members, category = {}, set(panel.members), panel.category
    for record, decision in sorted(decisions.items()):
        severity = category.severity(decision.labels or frozenset())
        votes = [labels for member, labels in panel.ballots.get(record, {}).items() if member in members]
        found = {
            "no_majority": decision.agreement == "none",
            "severity_dissent": any(category.severity(labels) > severity for labels in votes),
            "refused_by_most": len(set(refused.get(record, ())) & members) >= quorum(panel.members),
            "injection": record in injected,
        }
        if any(found.values()):
            queue[record] = tuple(reason for reason in REASONS if found[reason])
    return queue


def injected_of(corpus: str, *, records: Collection[str], vault: Vault, root: Path) -> tuple[set[str], set[str]]:
    """Return the records whose text matches an injection pattern, and all records whose text could be decrypted."""
    from pipelines.datasets.post import Post
    from pipelines.label.injection import marks

    months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
    table = tables.concat(months, name="posts", columns=["record_id", "title", "body"])
    table = table.filter([record in records for record in table["record_id"].to_pylist()])
    titles, bodies = (open_column(table, name="posts", column=c, vault=vault) for c in ("title", "body"))
    read, marked = set(), set()
    for record, title, body in zip(table["record_id"].to_pylist(), titles, bodies, strict=True):
        if title is not None and body is not None:
            read.add(record)
            if marks(Post(record, title.decode(), body.decode()).text):
                marked.add(record)
    return marked, read
