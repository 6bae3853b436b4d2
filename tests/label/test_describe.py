"""Counts about a silver set that the stage's own test does not reach."""

from __future__ import annotations

from pipelines.core.taxonomy import load
from pipelines.label.silver import statistics
from pipelines.label.silver.aggregate import Decision, Panel

CATEGORY = load("cradle").category()
PAST, BOTH = frozenset({"rape_past"}), frozenset({"rape_past", "rape_ongoing"})
HARASSED = frozenset({"rape_past", "sexualharassment_past"})


def test_broken_rules_are_counted_for_gold_members_and_ensemble() -> None:
    ballots = {"r": {"a": BOTH, "b": PAST}, "s": {"a": BOTH}}
    panel = Panel(ballots=ballots, members=("a", "b"), records=["r", "s"], category=CATEGORY)
    decisions = {"r": Decision(PAST, "consensus", "majority"), "s": Decision(None, "none", "discarded")}
    found = statistics.violations(panel, decisions=decisions, gold={"r": HARASSED})
    assert list(found["gold"].values()) == [1]  # a soft rule, which no mode repairs
    assert found["a"] == {"ongoing_before_past": 2}
    assert found["b"] == found["ensemble"] == {}


def test_unanimous_is_within_consensus() -> None:
    decisions = {
        "a": Decision(PAST, "unanimous", "majority"),
        "b": Decision(BOTH, "consensus", "majority"),
        "c": Decision(None, "none", "discarded"),
        "d": Decision(PAST, "unanimous", "majority"),
    }
    subsets = statistics.training_subsets(decisions, train={"a", "b", "c"})
    assert (subsets["train_consensus"].instances, subsets["train_consensus"].labels["rape_past"]) == (2, 2)
    assert (subsets["train_unanimous"].instances, subsets["train_unanimous"].labels) == (1, {"rape_past": 1})


def test_refusals_are_reported_by_the_posts_gold() -> None:
    gold = {"r": HARASSED, "s": PAST}
    found = statistics.refusals(gold, refused={"r": {"a"}, "x": {"b"}}, members=("a", "b"))
    assert found == {"rape_past": {"gold": 2, "a": 1, "b": 0}, "sexualharassment_past": {"gold": 1, "a": 1, "b": 0}}
