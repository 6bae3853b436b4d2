"""People join rounds after they agreed with what earlier rounds settled about the hard cases."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.annotate import manifest
from pipelines.annotate.rounds.opening import eligible, hard, scores, settled
from pipelines.core.taxonomy import load
from tests.annotate.round_manifest import write_manifest
from tests.refusals import refused

A, B, C, D = (f"annotator-{n}" for n in range(1, 5))
HARM, PAST, NOTHING = "selfharm_ongoing", "rape_past", "no_crisis"
NOW = datetime(2023, 3, 1, tzinfo=UTC)
PLANNED = {planned.name: planned for planned in manifest.load_protocol("cradle-schemes").rounds}


def row(number: int, who: str, *labels: str, outcome: str = "answered") -> dict[str, Any]:
    place = {"record_id": f"r{number}", "image": 0, "annotator": who, "category": "labels", "batch": 0}
    return place | {"outcome": outcome, "labels": list(labels) if outcome == "answered" else None}


def held(root: Path, name: str, *people: str, **more: Any) -> None:
    scheme = {"protocol": "cradle-schemes", "gold": False, "agreement": False}
    write_manifest(root, name, **scheme | {"annotators": people} | more)


def test_hard_cases_are_those_that_were_adjudicated_or_marked() -> None:
    given = [row(1, A, HARM), row(2, A, HARM), row(3, A, outcome="ambiguous"), row(4, B, outcome="unfit")]
    assert hard(given, [row(2, "adjudicator-1", PAST)]) == {("r2", 0), ("r3", 0), ("r4", 0)}


def test_answers_are_compared_with_what_the_rounds_settled() -> None:
    assigned = [row(n, who) for n in range(1, 5) for who in (A, B)]
    given = [row(1, A, HARM), row(1, B, HARM), row(2, A, HARM), row(2, B, PAST), row(3, A, HARM), row(3, B, PAST)]
    log = [row(2, "adjudicator-1", HARM, PAST) | {"decided": NOW}]
    known = settled([(assigned, given, log)], scheme=load("cradle"))
    assert known == {(("r1", 0), "labels"): {HARM}, (("r2", 0), "labels"): {HARM, PAST}}, "3 and 4 are not settled"
    answers = [row(1, C, HARM), row(2, C, HARM), row(3, C, NOTHING), row(1, D, NOTHING), row(2, D, outcome="skipped")]
    found = scores(answers, known=known, people=[C, D], items=2)
    assert found == {C: 0.75, D: 0.0}, "C: 1 and a half; a skip counts in no figure"
    assert scores(answers, known=known, people=[C, D], items=5) == {}, "less than half is too little to measure"


def test_a_round_takes_who_was_there_and_who_qualified(tmp_path: Path) -> None:
    people, single = (A, B, C, D), PLANNED["round-4"]
    given: dict[str, Any] = {"people": people, "corpus": "posts", "root": tmp_path}
    assert PLANNED["qualification"].bound == 0.7417, "CRADLE T10: the least Jaccard index of two experts"
    with refused("NotQualified", match="needs 4 annotators; 0 of"):
        eligible(single, **given)
    held(tmp_path, "round-3", A, B)
    assert eligible(PLANNED["qualification"], **given) == [C, D], "those who settled the cases are not asked again"
    test = {"phase": "qualification", "draw": "again", "again": ["round-3"], "bound": 0.7417}
    held(tmp_path, "qualification", C, D, **test)
    with refused("NotQualified", match=r"2 of round\.annotators"):
        eligible(single, **given)
    held(tmp_path, "qualification", C, D, **test, scores={C: 0.9, D: 0.74})
    with refused("NotQualified", match=r"3 of round\.annotators"):
        eligible(single, **given)
    held(tmp_path, "qualification", C, D, **test, scores={C: 0.9, D: 0.7417})
    assert eligible(single, **given) == [A, B, C, D]
    assert eligible(PLANNED["again"], **given) == [A, B, C, D], "a round that names no qualification takes everybody"
