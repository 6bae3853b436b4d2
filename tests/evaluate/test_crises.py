"""Refusals, mix-ups, over-extension and severity, counted manually on ten posts."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import label_errors
from pipelines.metrics import label_sets
from tests.evaluate.test_label_errors import board, of, run_of

TASK = task_of(load("cradle"), "labels")
AO, AP = "suicideideation_active_ongoing", "suicideideation_active_past"
PO, PP = "suicideideation_passive_ongoing", "suicideideation_passive_past"
SO, SP = "selfharm_ongoing", "selfharm_past"
RP, HP = "rape_past", "sexualharassment_past"
CO, CP = "childabuse_endangerment_ongoing", "childabuse_endangerment_past"
NO = "no_crisis"
# gold beside what two runs say; None was refused
POSTS: list[tuple[set[str], set[str] | None, set[str] | None]] = [
    ({AO}, {PO}, {AO}),  # active taken for passive, once
    ({PO}, {AO}, {AO, PO}),  # the other way; and both at once
    ({PO}, {PO}, {PO}),
    ({AP, PO}, {AP}, {AP, PO}),  # in the past it is right, ongoing it is lost
    ({SO}, {SP}, {SO}),  # ongoing taken for past, once
    ({RP}, {RP, CP}, {RP}),  # child abuse invented beside rape
    ({HP}, {HP, CO}, None),  # and beside harassment; refused
    ({CP}, {CO}, {CP}),  # another time is no over-extension
    ({NO}, {NO}, {SP}),  # a false alarm
    ({AO, CP}, {NO}, None),  # missed altogether; refused
]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    gold, first, second = zip(*POSTS, strict=True)
    analysed = label_errors.crises_of(board(gold, TASK), runs=[run_of(first), run_of(second, seed=2)])
    assert analysed is not None
    return analysed


def test_an_item_that_a_run_has_no_row_of_is_missing() -> None:
    runs = [run_of([{AO}]), run_of([None, {NO}], seed=2)]
    refusals = label_errors.crises_of(board([{AO}, {NO}], TASK), runs=runs)["refusals"]
    assert refusals[NO]["outcomes"] == {"missing": 1}
    assert refusals[AO]["outcomes"] == {"refused": 1}


def test_ongoing_and_past_are_mixed_up_within_one_kind(found: dict[str, Any]) -> None:
    time = found["confusions"]["time"]
    assert time["values"] == ["ongoing", "past"]
    assert len(time["groups"]) == 7
    assert time["groups"]["self_harm"]["ongoing"] == {"ongoing": 1, "past": 1, "both": 0, "none": 0}
    assert time["groups"]["child_abuse"]["past"] == {"ongoing": 1, "past": 1, "both": 0, "none": 1}
    # active ideation of the past beside passive ideation of today is two kinds, and no mix-up
    assert time["groups"]["suicide_ideation/active"]["past"] == {"ongoing": 0, "past": 2, "both": 0, "none": 0}
    assert {(swap["gold"], swap["said"]): swap["count"] for swap in time["swaps"]} == {
        ("ongoing", "past"): 1,
        ("past", "ongoing"): 1,
    }
    for gold, row in time["total"].items():
        assert row == {said: sum(group[gold][said] for group in time["groups"].values()) for said in row}


def test_over_extension_is_a_type_that_gold_has_at_no_time(found: dict[str, Any]) -> None:
    child = found["over_extension"]["child_abuse"]
    # 18 answers, of which 3 to posts with child abuse; said in 4, twice of post 7
    assert of(child["over"]) == (2, 15)
    assert of(child["of_said"]) == (2, 4)
    assert {label: of(rate) for label, rate in child["beside"].items() if rate["count"]} == {RP: (1, 2), HP: (1, 1)}
    assert of(child["beside"][AO]) == (0, 2)
    assert CP not in child["beside"] and SP not in child["beside"]
    harm = found["over_extension"]["self_harm"]
    assert (of(harm["over"]), of(harm["of_said"])) == ((1, 16), (1, 3))
    assert "no_crisis" not in found["over_extension"]


def test_only_what_is_less_grave_is_milder() -> None:
    found = label_errors.crises_of(board([{AO}, {SP}, {SO}, {SP}], TASK), runs=[run_of([{SP}, {AO}, {PO}, {SO}])])
    assert found is not None and of(found["severity"]["milder"]) == (1, 4)


def test_rules_that_answers_break_are_counted_once_an_answer(found: dict[str, Any]) -> None:
    assert found["violations"] == {"active_before_passive": 1}
    sets = iter([frozenset({SO, SP, NO}), frozenset({RP, HP}), None, frozenset[str](), frozenset({RP, HP})])
    assert label_sets.violations(sets, category=TASK.category) == {
        "empty": 1,
        "exclusive": 1,
        "ongoing_before_past": 1,
        "rape_before_harassment": 2,
    }


def test_rates_have_intervals_and_name_no_item(found: dict[str, Any]) -> None:
    swap = found["confusions"]["level"]["swaps"][0]
    assert swap["low"] <= swap["rate"] <= swap["high"] and swap["low"] < swap["high"]
    assert "r0" not in str(found)


@pytest.mark.parametrize(("scheme", "key"), [("figsim", "severity"), ("figsim", "figurative"), ("cssrs", "severity")])
def test_other_schemes_have_no_crises(scheme: str, key: str) -> None:
    task = task_of(load(scheme), key)
    assert not label_errors.has_crises(task.category)
    assert label_errors.crises_of(board([task.labels[0]], task), runs=[run_of([])]) is None


@pytest.mark.parametrize("attribute", ["type", "time"])
def test_crises_need_a_type_and_a_time(attribute: str) -> None:
    kept = [
        replace(label, attributes={k: v for k, v in label.attributes.items() if k != attribute})
        for label in TASK.category.labels
    ]
    assert label_errors.has_crises(TASK.category)
    assert not label_errors.has_crises(replace(TASK.category, labels=tuple(kept)))


def test_groups_come_from_the_attributes_alone() -> None:
    level = label_errors.groups(TASK.category, attribute="level")
    assert [group.name for group in level] == ["suicide_ideation/ongoing", "suicide_ideation/past"]
    assert {TASK.labels[i] for i in level[0].labels.values()} == {AO, PO}
    assert label_errors.groups(TASK.category, attribute="colour") == []
