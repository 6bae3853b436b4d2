"""Read the valid votes (label sets that labellers gave to items) of a table, and compute their agreement.

:func:`valid` is the only source of votes: rows whose outcome is not ``vote`` never pass it, and a missing answer equals
nothing, not even another missing one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from pipelines.core.errors import DataError
from pipelines.store.tables import Item

LabelSet = frozenset[str]
Agreement = Literal["unanimous", "consensus", "none"]


def valid(
    votes: pa.Table, *, category: str
) -> tuple[dict[Item, dict[str, LabelSet]], dict[Item, dict[str, tuple[float, ...]]]]:
    """Return the label sets of valid votes (outcome ``vote``), and the probabilities of those that have scores.

    Both are by item and labeller; probabilities are ordered as in the category.
    """
    columns = ["record_id", "image", "labeller", "category", "outcome", "labels", "scores"]
    cast: dict[tuple[Item, str], list[Any]] = {}
    for row in votes.select(columns).to_pylist():
        if row["outcome"] == "vote" and row["category"] == category:
            cast.setdefault(((row["record_id"], row["image"]), row["labeller"]), []).append(row)
    ballots: dict[Item, dict[str, LabelSet]] = {}
    scores: dict[Item, dict[str, tuple[float, ...]]] = {}
    for (item, labeller), rows in sorted(cast.items()):
        if len(rows) > 1:
            raise DataError("TwoVotes", labeller=labeller, votes=len(rows), record_id=item[0])
        ballots.setdefault(item, {})[labeller] = frozenset(rows[0]["labels"] or ())
        if rows[0]["scores"]:
            scores.setdefault(item, {})[labeller] = tuple(rows[0]["scores"])
    return ballots, scores


def quorum(members: Sequence[str]) -> int:
    """Return how many votes are a majority of an ensemble's members, including those without a vote: two of three."""
    return len(set(members)) // 2 + 1


def agree(votes: Mapping[str, LabelSet], *, members: Sequence[str]) -> tuple[Agreement, LabelSet | None]:
    """Return how far an ensemble's valid votes on an item agree, and the agreed label set (``None`` without majority).

    Unanimity requires every member's vote.
    """
    for labels in {votes[member] for member in set(members) if member in votes}:
        if (found := backing(labels, votes=votes, members=members)) != "none":
            return found, labels
    return "none", None


def backing(labels: LabelSet, *, votes: Mapping[str, LabelSet], members: Sequence[str]) -> Agreement:
    """Return how far an ensemble agrees on ``labels``: all members gave this set, a majority of them, or fewer."""
    count = sum(votes.get(member) == labels for member in set(members))
    if count < quorum(members):
        return "none"
    return "unanimous" if count == len(set(members)) else "consensus"
