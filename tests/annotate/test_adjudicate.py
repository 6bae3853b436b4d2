"""What a third decides: only what is open, between sides that bear no names, in a log that only grows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.annotate.backends import AnnotatorAnswer
from pipelines.annotate.rounds.adjudicate import (
    AdjudicationCase,
    Decided,
    cases,
    read_decisions,
    rejected,
    review_cases,
)
from pipelines.core.taxonomy import load
from tests.annotate.round_manifest import manifest_of

NOW = datetime(2023, 3, 1, 9, tzinfo=UTC)
CRADLE, FIGSIM = load("cradle"), load("figsim")
A, B, C, D = (f"annotator-{n}" for n in range(1, 5))
NOTHING, HARM, PAST, ABUSE = "no_crisis", "selfharm_ongoing", "rape_past", "domesticviolence_past"
ROUND = manifest_of(status="adjudicating")


def record(number: int) -> str:
    return f"{number:032x}"


def assigned(*numbers: int, to: tuple[str, ...] = (A, B)) -> list[dict[str, object]]:
    return [{"record_id": record(n), "image": 0, "annotator": who, "batch": 0} for n in numbers for who in to]


def row(number: int, who: str, *labels: str, key: str = "labels", outcome: str = "answered") -> dict[str, object]:
    given = list(labels) if outcome == "answered" else None
    return {
        **{"record_id": record(number), "image": 0, "annotator": who, "category": key},
        **{"outcome": outcome, "labels": given},
    }


def open_cases(rows: Any, assignments: Any, *, scheme: Any = CRADLE, seed: int = 5) -> list[AdjudicationCase]:
    return cases(rows, assignments=assignments, scheme=scheme, seed=seed)


def answer(number: int, *labels: str, at: int = 0, note: str = "because", **more: Any) -> AnnotatorAnswer:
    given = {"id": str(at), "answered": NOW + timedelta(minutes=at), "values": {"labels": labels} if labels else {}}
    return AnnotatorAnswer(item=(record(number), 0), by="c@x", note=note, **{**given, **more})


def case(number: int, *sides: str) -> AdjudicationCase:
    return AdjudicationCase((record(number), 0), ("labels",), tuple({"labels": (side,)} for side in sides))


def decide(answers: list[AnnotatorAnswer], *asked: AdjudicationCase, known: Any = (), scheme: Any = CRADLE) -> Decided:
    return read_decisions(answers, cases=asked, known=known, scheme=scheme, manifest=ROUND)


def test_only_what_two_differ_in_is_asked() -> None:
    rows = [row(1, A, HARM), row(1, B, HARM), row(2, A, HARM, PAST), row(2, B, HARM), row(3, A, PAST), row(3, B, PAST)]
    found = open_cases(rows, assigned(1, 2, 3))
    assert [(c.item, c.categories) for c in found] == [((record(2), 0), ("labels",))]
    assert sorted(s["labels"] for s in found[0].sides) == [(HARM,), (HARM, PAST)]
    rows = [row(1, who, HARM) for who in (A, B, C)] + [row(1, D, PAST)]
    [three] = open_cases(rows, assigned(1, to=(A, B, C, D)))
    assert sorted(s["labels"] for s in three.sides) == [(PAST,), (HARM,), (HARM,), (HARM,)], "three against one"


def test_what_is_unanswered_is_a_case_with_the_existing_sides() -> None:
    rows = [row(1, A, HARM), row(1, B, outcome="skipped"), row(2, A, outcome="skipped")]
    found = {c.item[0]: c.sides for c in open_cases(rows, assigned(1, 2))}
    assert found == {record(1): ({"labels": (HARM,)},), record(2): ()}
    single = [row(1, A, HARM), row(2, A, outcome="skipped")]
    assert [c.item[0] for c in open_cases(single, assigned(1, 2, 3, to=(A,)))] == [record(2), record(3)]
    # of an item that only some find unfit, the others' answers are sides
    rows = [row(n, who, outcome="unfit") for n, who in ((1, A), (1, B), (2, A))] + [row(2, B, HARM)]
    [found_unfit] = open_cases(rows, assigned(1, 2))
    assert (found_unfit.item[0], found_unfit.sides) == (record(2), ({"labels": (HARM,)},))


def test_sides_hold_all_categories_and_the_word_for_nothing() -> None:
    alike = {"figurative": [], "modality": ["text"], "context": ["context-required"]}
    said = {A: alike | {"severity": ["Suicide death"], "related": []}}
    said[B] = alike | {"severity": ["None"], "related": ["Harmful factors"]}
    rows = [row(1, who, *labels, key=key) for who, answers in said.items() for key, labels in answers.items()]
    (found,) = open_cases(rows, assigned(1), scheme=FIGSIM)
    assert found.categories == ("severity", "related")
    assert {(s["severity"], s["related"]) for s in found.sides} == {
        (("Suicide death",), ("None",)),
        (("None",), ("Harmful factors",)),
    }
    assert all(s["figurative"] == ("None",) for s in found.sides)


def test_the_order_of_sides_reveals_no_annotator_and_is_reproducible() -> None:
    numbers = range(200)
    rows = [row(n, who, label) for n in numbers for who, label in ((A, HARM), (B, PAST))]
    found = open_cases(rows, assigned(*numbers))
    first = sum(c.sides[0]["labels"] == (HARM,) for c in found)
    assert 70 < first < 130
    assert open_cases(rows[::-1], assigned(*numbers)[::-1]) == found
    assert open_cases(rows, assigned(*numbers), seed=6) != found
    assert not any(who in repr(found) for who in (A, B))


def vote(number: int, *labels: str, outcome: str = "vote") -> dict[str, object]:
    return {"record_id": record(number), "category": "labels", "outcome": outcome, "labels": list(labels)}


def gold(number: int, *labels: str) -> dict[str, object]:
    return {"record_id": record(number), "image": 0, "category": "labels", "labels": list(labels)}


def reviewed(numbers: Any, votes: Any, **more: Any) -> tuple[dict[str, list[Any]], int]:
    """Return the sides of the cases of a review by gpt and claude, by record, and the number of items without votes.

    Gold of items 1 to 199 is HARM; ``numbers`` are in the splits under review.
    """
    splits = {(record(n), 0) for n in numbers}
    people = [gold(n, HARM) for n in range(1, 200)]
    found, unvoted = review_cases(people, votes, against=["gpt", "claude"], splits=splits, seed=5, **more)
    return {case.item[0]: [side["labels"] for side in case.sides] for case in found}, unvoted


def test_a_review_flags_what_differs_from_both_models_and_from_both_only() -> None:
    votes = {
        "gpt": [*(vote(n, PAST) for n in (1, 3, 4, 6, 7)), vote(2, HARM), vote(5, outcome="refused")],
        "claude": [vote(1, PAST), vote(2, PAST), vote(3, ABUSE), vote(5, PAST), vote(6, ABUSE), vote(7, HARM)],
        "gemini": [vote(n, HARM) for n in range(1, 8)],
    }
    # 2 and 7 agree with one model each, and 6 is in no split under review
    found, unvoted = reviewed((1, 2, 3, 4, 5, 7), votes)
    assert {r: sorted(sides) for r, sides in found.items()} == {
        record(1): [(PAST,), (HARM,)],
        record(3): [(ABUSE,), (PAST,), (HARM,)],
    }
    assert unvoted == 2


def test_a_review_takes_in_what_annotators_marked_with_the_votes_that_exist() -> None:
    claude = [vote(1, PAST), vote(2, HARM), vote(3, outcome="refused")]
    votes = {"gpt": [vote(1, HARM), vote(2, PAST)], "claude": claude}
    found, _ = reviewed((1, 2, 3), votes, marked={(record(n), 0) for n in (1, 3, 4)})
    assert {r: sorted(sides) for r, sides in found.items()} == {record(1): [(PAST,), (HARM,)], record(3): [(HARM,)]}, (
        "2 is not marked, and 4 is in no split under review"
    )
    # gold has no fixed side
    numbers = range(1, 200)
    found, _ = reviewed(numbers, {name: [vote(n, PAST) for n in numbers] for name in ("gpt", "claude")})
    assert 70 < sum(sides[0] == (HARM,) for sides in found.values()) < 130


def test_a_decision_is_a_row_with_its_rationale() -> None:
    found = decide([answer(1, PAST, note=" clear in the end ")], case(1, PAST, HARM), case(2, PAST, HARM))
    assert found.rows == [
        {
            **{"record_id": record(1), "image": 0, "category": "labels", "decided": NOW, "round": "round-1"},
            **{"guideline": "1" * 16, "adjudicator": "adjudicator-1", "labels": [PAST], "sides": 2},
            "rationale": "clear in the end",
        }
    ]
    assert found.problems == {"unanswered": 1}


def test_a_changed_decision_is_a_new_row_and_the_old_one_stays() -> None:
    first = decide([answer(1, PAST)], case(1, PAST, HARM))
    changed = decide([answer(1, HARM, at=5)], known=first.rows)
    assert changed.rows[0] == first.rows[0]
    assert [(r["labels"], r["sides"]) for r in changed.rows] == [([PAST], 2), ([HARM], 2)]
    assert decide([answer(1, HARM, at=9)], known=changed.rows) == changed, "touched, but not changed"
    assert len(decide([answer(1, HARM, at=9, note="another")], known=changed.rows).rows) == 3
    assert decide([answer(1, PAST, at=2)], known=changed.rows) == changed, "what is older than the log changes nothing"


def test_of_two_decisions_of_one_moment_the_later_id_counts_and_stays() -> None:
    answers = [answer(1, PAST, id="9"), answer(1, HARM, id="10")]
    found = decide(answers, case(1, PAST, HARM))
    assert [r["labels"] for r in found.rows] == [[HARM]]
    assert decide(answers[::-1], known=found.rows) == found
    # one that is changed under its old time is said and does not count
    first = decide([answer(1, PAST)], case(1, PAST, HARM))
    changed = decide([answer(1, HARM)], known=first.rows)
    assert (changed.rows, changed.problems) == (first.rows, {"not_later": 1})


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (answer(1, PAST, note="  "), {"without_rationale": 1, "unanswered": 1}),
        (answer(1, "sadness"), {"outside_scheme": 1, "unanswered": 1}),
        (answer(1, PAST, NOTHING), {"against_rules": 1, "unanswered": 1}),
        (answer(1), {"unanswered": 1}),
        (answer(1, skipped=True), {"unanswered": 1}),
        (answer(7, PAST), {"not_assigned": 1, "unanswered": 1}),
    ],
)
def test_what_is_no_decision_is_counted_and_breaks_nothing(given: AnnotatorAnswer, problems: dict[str, int]) -> None:
    found = decide([given, answer(2, PAST)], case(1, PAST, HARM), case(2, PAST, HARM))
    assert [r["record_id"] for r in found.rows] == [record(2)]
    assert found.problems == problems


def unfit(number: int, *, at: int = 0, note: str = "not a post") -> AnnotatorAnswer:
    return answer(number, at=at, note=note, values={"unfit": ("Unfit",), "labels": (PAST,)})


def test_the_adjudicator_may_find_an_item_unfit_and_change_that() -> None:
    first = decide([unfit(1)], case(1, PAST, HARM), case(2, PAST, HARM))
    assert [(r["category"], r["labels"], r["sides"]) for r in first.rows] == [("unfit", [], 2)]
    assert first.problems == {"unanswered": 1}
    assert rejected(first.rows) == {(record(1), 0)}
    assert decide([unfit(1)], case(1, PAST, HARM), known=first.rows).rows == first.rows
    labelled = decide([unfit(1), answer(1, PAST, at=5)], case(1, PAST, HARM), known=first.rows)
    assert [r["category"] for r in labelled.rows] == ["unfit", "labels"] and rejected(labelled.rows) == set()
    assert decide([unfit(1), answer(1, PAST, at=5)], case(1, PAST, HARM), known=labelled.rows) == labelled
    again = decide([unfit(1, at=9)], case(1, PAST, HARM), known=labelled.rows)
    assert [r["category"] for r in again.rows] == ["unfit", "labels", "unfit"]
    back = decide([answer(1, PAST, at=12)], case(1, PAST, HARM), known=again.rows)
    assert [r["category"] for r in back.rows] == ["unfit", "labels", "unfit", "labels"]
    assert decide([unfit(1, note=" ")], case(1, PAST, HARM)).problems == {"without_rationale": 1, "unanswered": 1}
    assert decide([unfit(7)], case(1, PAST, HARM)).problems == {"not_assigned": 1, "unanswered": 1}


def test_only_disputed_categories_are_decided() -> None:
    asked = AdjudicationCase((record(1), 0), ("severity", "related"), ())
    given = answer(1, values={"severity": ("None",), "modality": ("text",), "related": ("None",)})
    found = decide([given], asked, scheme=FIGSIM)
    assert {r["category"]: r["labels"] for r in found.rows} == {"severity": ["None"], "related": []}
    assert found.problems == {"not_assigned": 1}
