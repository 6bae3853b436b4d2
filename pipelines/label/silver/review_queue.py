"""Select the items that people should review: labellers disagree, or the text may have influenced them.

Reasons: ``no_majority`` (no label set has a majority), ``severity_dissent`` (a valid vote is more severe than the
silver labels, by the scheme's severities), ``refused_by_most`` (a majority of members refused), ``injection`` (the text
addresses a model rather than a reader and may have influenced the votes), ``offline_dissent`` (the offline labellers,
which cannot follow an instruction in a text, see a more severe case).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from pipelines.core.config.label import Ensemble, Labeller, OfflineLabeller
from pipelines.core.taxonomy import Category
from pipelines.label.silver.aggregate import Decision, Panel
from pipelines.label.silver.ballots import LabelSet, quorum
from pipelines.store import tables
from pipelines.store.tables import REASONS, Item
from pipelines.store.vault.vault import Vault


def reasons(
    decisions: Mapping[Item, Decision],
    *,
    panel: Panel,
    refused: Mapping[Item, Collection[str]],
    injected: Collection[Item],
    offline: Mapping[Item, LabelSet] = MappingProxyType({}),
) -> dict[Item, tuple[str, ...]]:
    """Return the items that people should review in a category, each with its reasons in the order of :data:`REASONS`.

    ``refused`` names the labellers that refused an item; ``injected`` are the items whose text addresses a model;
    ``offline`` has the labels that the offline labellers together give to an item.
    """
    queue, members, category = {}, set(panel.members), panel.category
    for item, decision in sorted(decisions.items()):
        severity = category.severity(decision.labels or frozenset())
        votes = [labels for member, labels in panel.ballots.get(item, {}).items() if member in members]
        found = {
            "no_majority": decision.agreement == "none",
            "severity_dissent": any(category.severity(labels) > severity for labels in votes),
            "refused_by_most": len(set(refused.get(item, ())) & members) >= quorum(panel.members),
            "injection": item in injected,
            "offline_dissent": category.severity(offline.get(item, frozenset())) > severity,
        }
        if any(found.values()):
            queue[item] = tuple(reason for reason in REASONS if found[reason])
    return queue


def offline_members(described: Ensemble, *, labellers: Mapping[str, Labeller], folder: Path) -> tuple[str, ...]:
    """Return the offline labellers outside of an ensemble whose votes are stored in ``folder``."""
    offline = {name for name, one in labellers.items() if isinstance(one, OfflineLabeller)}
    return tuple(sorted(n for n in offline - {*described.members} if (folder / n / "votes.parquet").exists()))


def offline_labels(votes: pa.Table, *, members: Sequence[str], category: Category) -> dict[Item, LabelSet]:
    """Return for each item the labels that the offline labellers give to it together, by their mean logit."""
    ensemble = Ensemble(members=tuple(members), aggregate="mean_logit", fallback=None)
    panel = Panel.of(votes, ensemble=ensemble, category=category, items=sorted(set(tables.items_of(votes))))
    if "mean_logit" not in panel.possible:
        return {}
    return {i: decision.labels for i, decision in panel.decide("mean_logit").items() if decision.labels is not None}


def injected_of(
    corpus: str, *, content: str, items: Collection[Item], vault: Vault, root: Path
) -> tuple[set[Item], set[Item]]:
    """Return the items whose text matches an injection pattern, and all items that could be decrypted."""
    from pipelines.datasets.items import opened
    from pipelines.label.injection import marks

    posts, _ = opened(corpus, content=content, items=items, vault=vault, root=root)
    return {item for item, post in posts.items() if marks(post.text)}, set(posts)
