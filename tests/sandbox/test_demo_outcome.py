"""The order in which the demo promotes the contested versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from crisis_corpus_sandbox.demo import promotions
from tests.refusals import refused


@dataclass
class Row:
    event: str
    to_version: int


def played(scores: dict[int, float], *, majority: float = 0) -> list[tuple[str, int]]:
    """Play the contested part, by published score 3, 1, 2, against a gate that compares these scores."""
    rows: list[Any] = []
    champion = majority
    for _ in range(6):
        if Counter(row.event for row in rows)["promoted"] > 1 and any(row.event == "refused" for row in rows):
            return [(row.event, row.to_version) for row in rows]
        version = promotions.next_version(rows, order=(3, 1, 2), base="-")
        event = "promoted" if scores[version] > champion else "refused"
        champion = max(champion, scores[version])
        rows.append(Row(event, version))
    raise AssertionError(rows)


@pytest.mark.parametrize(
    ("scores", "majority", "events"),
    [
        ({3: 1, 1: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # the gate sees two in another order than the scores
        ({3: 1, 2: 2, 1: 3}, 0, [("promoted", 3), ("promoted", 2), ("promoted", 1), ("refused", 2)]),
        ({1: 1, 3: 2, 2: 3}, 0, [("promoted", 3), ("promoted", 2), ("refused", 1)]),
        # one is behind the majority
        ({3: 1, 1: 3, 2: 4}, 2, [("refused", 3), ("promoted", 1), ("promoted", 2)]),
    ],
)
def test_the_lowest_the_highest_and_the_middle_play_their_parts(scores: Any, majority: int, events: Any) -> None:
    assert played(scores, majority=majority) == events


@pytest.mark.parametrize("majority", [3, 5])
def test_with_one_version_above_the_majority_or_none_there_is_no_play(majority: float) -> None:
    with refused("RunFailed", match="none is left"):
        played({3: 1, 1: 2, 2: 4}, majority=majority)


def test_versions_are_ordered_by_their_published_score() -> None:
    def model(score: float) -> dict[str, Any]:
        return {"valid": {"figures": {"macro_f1": {"mean": score}}}}

    models = {"a": model(0.5), "b": model(0.3), "c": model(0.4)}
    assert promotions.by_score({"tasks": {"severity": {"models": models}}}, models=["a", "b", "c"]) == [2, 3, 1]
