"""Read the valid votes (label sets that labellers gave to records) of a table, and compute their agreement.

:func:`valid` is the only source of votes: rows whose outcome is not ``vote`` never pass it, and a missing answer equals
nothing, not even another missing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from pipelines.core.errors import DataError

LabelSet = frozenset[str]
Agreement = Literal["unanimous", "consensus", "none"]


def valid(votes: pa.Table, *, category: str) -> dict[str, dict[str, LabelSet]]:
    """Return the label sets of valid votes (outcome ``vote``): record -> labeller -> label set."""
    ballots: dict[str, dict[str, LabelSet]] = {}
    for row in _valid_rows(votes, category=category):
        ballots.setdefault(row["record_id"], {})[row["labeller"]] = frozenset(row["labels"] or ())
    return ballots


def valid_scores(votes: pa.Table, *, category: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return the probabilities of valid votes that have scores (record -> labeller), ordered as in the category."""
    scores: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in _valid_rows(votes, category=category):
        if row["scores"]:
            scores.setdefault(row["record_id"], {})[row["labeller"]] = tuple(row["scores"])
    return scores


def _valid_rows(votes: pa.Table, *, category: str) -> list[dict[str, Any]]:
    votes = votes.select(["record_id", "labeller", "category", "outcome", "labels", "scores"])
    rows: list[dict[str, Any]] = [
        row for row in votes.to_pylist() if row["outcome"] == "vote" and row["category"] == category
    ]
    for (record, labeller), times in sorted(Counter((row["record_id"], row["labeller"]) for row in rows).items()):
        if times > 1:
            raise DataError("TwoVotes", labeller=labeller, votes=times, record_id=record)
    return rows


def quorum(members: Sequence[str]) -> int:
    """Return how many votes are a majority of an ensemble's members, including those without a vote: two of three."""
    return len(set(members)) // 2 + 1


def agree(votes: Mapping[str, LabelSet], *, members: Sequence[str]) -> tuple[Agreement, LabelSet | None]:
    """Return how far an ensemble's valid votes on a record agree, and the agreed label set (``None`` without majority).

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
