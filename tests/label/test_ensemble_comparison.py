"""Comparisons on dev: every way of voting beside every member, with honest weights and intervals."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pipelines.core.taxonomy import load
from pipelines.label import aggregate, silver
from pipelines.label.aggregate import Panel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crowdkit")

CATEGORY = load("cradle").category()
SETS = [frozenset({name}) for name in ("no_crisis", "rape_past", "selfharm_ongoing", "selfharm_past")]
MEMBERS = ("a", "b", "c")
RATES = {"a": 0.35, "b": 0.35, "c": 0.35}


def panel(*, n: int = 120, rates: dict[str, float] = RATES, seed: int = 3) -> Panel:
    """Make members that err apart from one another at their rates, the rest of their votes being right."""
    rng = random.Random(seed)
    gold = {f"{i:03d}": rng.choice(SETS) for i in range(n)}
    ballots = {
        r: {m: rng.choice([s for s in SETS if s != labels]) if rng.random() < rates[m] else labels for m in MEMBERS}
        for r, labels in gold.items()
    }
    groups = {r: f"g{int(r) // 2}" for r in gold}
    return Panel(ballots=ballots, members=MEMBERS, items=sorted(gold), category=CATEGORY, gold=gold, groups=groups)


def test_members_and_aggregators_stand_side_by_side() -> None:
    rows = silver.table(panel(), resamples=300, seed=1)
    # no member gives probabilities, so there is nothing to average
    assert list(rows) == ["a", "b", "c", "label_set_majority", "k_of_n", "weighted", "dawid_skene"]
    for name, row in rows.items():
        assert row["n"] == 120
        for metric, (low, high) in row["interval"].items():
            assert low <= row["all"][metric] <= high
        assert ("lead" in row) == (name not in MEMBERS)
    vote = rows["label_set_majority"]
    assert vote["best_member"] == max(MEMBERS, key=lambda m: rows[m]["all"]["exact"])
    assert vote["valid"]["exact"] > vote["all"]["exact"]  # what stays a tie counts as wrong over all
    assert vote["lead"]["value"] == pytest.approx(
        vote["all"]["exact"] - rows[vote["best_member"]]["all"]["exact"], abs=1e-12
    )


def test_a_better_ensemble_leads_in_most_resamples_and_a_copy_ties() -> None:
    rows = silver.table(panel(n=240, rates=dict.fromkeys(MEMBERS, 0.25)), resamples=300, seed=1)
    assert rows["label_set_majority"]["lead"]["probability"] > 0.9
    one = panel(n=30)
    copies = {r: dict.fromkeys(MEMBERS, votes["a"]) for r, votes in one.ballots.items()}
    rows = silver.table(replace(one, ballots=copies), resamples=300, seed=1)
    assert rows["label_set_majority"]["lead"]["probability"] == 0.5


def test_no_weight_has_seen_the_record_that_it_decides() -> None:
    one = panel(rates={"a": 0.1, "b": 0.5, "c": 0.5})
    decided = one.decide("weighted")
    record = one.items[0]
    told = {**one.gold, record: frozenset({"rape_ongoing"})}
    assert replace(one, gold=told).decide("weighted")[record] == decided[record]


def test_groups_stay_in_one_fold() -> None:
    assert len({aggregate.fold_of(f"g{i}") for i in range(50)}) == aggregate.FOLDS
    assert aggregate.fold_of("g1") == aggregate.fold_of("g1")


@pytest.mark.faults
def test_a_table_is_the_same_in_any_order() -> None:
    one = panel(n=16)
    shuffled = replace(
        one,
        ballots=dict(reversed(one.ballots.items())),
        members=("c", "a", "b"),
        items=list(reversed(one.items)),
        gold=dict(reversed(one.gold.items())),
    )
    rows, others = (silver.table(p, resamples=100, seed=1) for p in (one, shuffled))
    assert rows == others


def test_without_gold_there_is_no_comparison() -> None:
    assert silver.table(replace(panel(n=10), gold={}), resamples=10, seed=1) == {}
