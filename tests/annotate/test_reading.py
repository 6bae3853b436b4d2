"""What people answered: one bad answer breaks nothing beside it, is counted by pseudonym, and skips never are."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipelines.annotate.backends import AnnotatorAnswer, Item
from pipelines.annotate.form import DOUBTFUL, REJECTED, UNFIT
from pipelines.annotate.response_validation import ReadAnswers, answered, marked, read
from pipelines.core.taxonomy import load
from pipelines.store import tables
from pipelines.store.seal import open_column, write_rows
from pipelines.store.vault.vault import Vault
from tests.annotate.round_manifest import manifest_of

NOW = datetime(2023, 3, 1, 9, tzinfo=UTC)
CRADLE, FIGSIM = load("cradle"), load("figsim")
A, B = "annotator-1", "annotator-2"
NOTHING, HARM, PAST = "no_crisis", "selfharm_ongoing", "rape_past"
MEME = {
    "figurative": ("Metaphor", "Irony/sarcasm"),
    "severity": ("Suicide ideation",),
    "related": ("None",),
    "modality": ("text",),
    "context": ("context-required",),
}


def item(number: int) -> Item:
    return f"{number:032x}", 0


def answer(
    number: int, *labels: str, by: str = "a@x", at: int = 0, key: str = "labels", **more: Any
) -> AnnotatorAnswer:
    values = more.pop("values", {key: labels} if labels else {})
    given = {"id": str(at), "answered": NOW + timedelta(minutes=at)} | more
    return AnnotatorAnswer(item=item(number), by=by, values=values, **given)


def pull(
    answers: dict[str, list[AnnotatorAnswer]], *numbers: int, scheme: Any = CRADLE, **accounts: str
) -> ReadAnswers:
    assigned = [
        {"record_id": item(n)[0], "image": 0, "annotator": who, "round": "round-1", "batch": n // 2, "position": n}
        for n in numbers
        for who in (A, B)
    ]
    return read(answers, assignments=assigned, scheme=scheme, manifest=manifest_of(), accounts=accounts)


def sets(found: ReadAnswers, who: str = A) -> dict[tuple[str, str], Any]:
    return {(str(r["record_id"])[-1], str(r["category"])): r["labels"] for r in found.rows if r["annotator"] == who}


def test_an_answer_becomes_a_row_for_each_category() -> None:
    found = pull({A: [answer(1, values=MEME, note=" a note ", seconds=12.5)]}, 1, scheme=FIGSIM)
    assert sets(found) == {
        ("1", "figurative"): ["Irony/sarcasm", "Metaphor"],
        ("1", "severity"): ["Suicide ideation"],
        ("1", "related"): [],
        ("1", "modality"): ["text"],
        ("1", "context"): ["context-required"],
    }
    assert {(r["outcome"], r["round"], r["guideline"]) for r in found.rows} == {("answered", "round-1", "1" * 16)}
    assert [r["note"] for r in found.rows if r["note"]] == ["a note"], "the note is stored once"
    assert sum(float(str(r["seconds"])) for r in found.rows if r["seconds"]) == 12.5, "and so does the time"


@pytest.mark.parametrize(
    ("given", "labels", "twice"),
    [
        ([answer(1, "rape past", "RAPE_PAST")], PAST, 0),
        ([answer(1, HARM, at=1), answer(1, PAST, at=3), answer(1, NOTHING, at=2)], PAST, 1),
        ([answer(1, HARM, at=1), answer(1, "sadness", at=2)], HARM, 1),
        ([answer(1, PAST, id="10"), answer(1, HARM, id="9")], PAST, 1),
        ([answer(1, HARM, at=1), answer(1, skipped=True, at=2)], HARM, 0),
    ],
    ids=["spelling", "the latest", "valid before invalid", "ten comes after nine", "an answer before a skip"],
)
def test_of_two_answers_the_latest_valid_one_counts(given: list[AnnotatorAnswer], labels: str, twice: int) -> None:
    found = pull({A: given, B: [answer(1, HARM)]}, 1)
    assert sets(found) == {("1", "labels"): [labels]}
    assert found.problems == ({A: {"answered_twice": 1}} if twice else {})
    assert (found.answered[A], found.skipped) == (1, 0)


@pytest.mark.parametrize(
    ("key", "values", "problem"),
    [
        ("severity", ("gloomy",), "outside_scheme"),
        ("severity", ("Suicide attempt/death",), "outside_scheme"),
        ("severity", ("None", "Suicide ideation"), "against_rules"),
        ("figurative", ("None", "Hyperbole"), "outside_scheme"),
        ("related", ("None", "Harmful factors"), "against_rules"),
        ("related", (), "incomplete"),
        ("mood", ("grim",), "outside_scheme"),
    ],
)
def test_what_the_scheme_forbids_leaves_other_categories_alone(key: str, values: tuple[str, ...], problem: str) -> None:
    found = pull({A: [answer(1, values=MEME | {key: values})]}, 1, scheme=FIGSIM)
    assert {category for _, category in sets(found)} == MEME.keys() - {key}
    assert found.problems[A] == {problem: 1}


def test_a_skip_has_rows_without_labels_and_is_not_a_problem() -> None:
    found = pull({A: [answer(1, skipped=True), answer(2, HARM)], B: [answer(2, HARM), answer(1, HARM)]}, 1, 2)
    assert found.problems == {}
    assert found.skipped == 1
    assert found.answered == {A: 2, B: 2}, "who skipped cannot be reckoned from it"
    skips = [r for r in found.rows if r["outcome"] == "skipped"]
    assert [(r["annotator"], r["labels"]) for r in skips] == [(A, None)]


def test_an_unfit_item_has_rows_without_labels_and_is_no_skip() -> None:
    unfit = answer(1, values={"unfit": ("Unfit",)})
    fit = answer(2, values={"labels": (HARM,), "unfit": ("Fit",)})
    found = pull({A: [unfit, fit], B: [answer(1, HARM), answer(2, HARM)]}, 1, 2)
    assert (found.problems, found.skipped) == ({}, 0)
    assert [(r["annotator"], r["labels"]) for r in found.rows if r["outcome"] == "unfit"] == [(A, None)]
    assert sum(r["outcome"] == "answered" for r in found.rows) == 3


def test_every_kind_of_problem_is_counted() -> None:
    given = [answer(1, "sadness"), answer(2, PAST, HARM, NOTHING), answer(9, HARM), answer(3), answer(4, HARM, by="b")]
    active_and_passive = answer(2, "suicideideation_active_past", "suicideideation_passive_past")
    both = {A: [*given, *given], B: [answer(1, "rape_past", "rape_ongoing"), active_and_passive]}
    found = pull(both | {"stranger": [answer(1, PAST)]}, 1, 2, 3, 4, 5, **{A: "a@x"})
    assert (found.rows, found.problems["stranger"]) == ([], {"not_assigned": 1})
    of_content = {"outside_scheme": 1, "against_rules": 1, "incomplete": 1, "answered_twice": 3}
    assert found.problems[A] == of_content | {"not_assigned": 1, "other_account": 1, "unanswered": 2}
    assert found.problems[B]["against_rules"] == 2, "rules of the improved tier are for the annotator to heed"


def test_the_same_answers_in_any_order_are_the_same_bytes_and_the_note_is_sealed(tmp_path: Path, vault: Vault) -> None:
    vault.admit([(item(n)[0], f"t3_{n}") for n in range(1, 5)], corpus="posts", month="2023-01", now=NOW)
    given = {
        A: [answer(n, HARM, at=at, note="plainly readable") for n in (1, 2, 3) for at in (0, 1)],
        B: [answer(4, skipped=True), *(answer(n, PAST, seconds=3.0) for n in (1, 2))],
    }
    written = []
    for seed in range(3):
        mixed = {who: Random(seed).sample(answers, len(answers)) for who, answers in given.items()}
        path = tmp_path / f"{seed}.parquet"
        write_rows(pull(mixed, 1, 2, 3, 4).rows, path, name="annotations", vault=vault)
        written.append(path.read_bytes())
    assert len(set(written)) == 1
    assert b"readable" not in written[0]
    table = tables.read(tmp_path / "0.parquet", name="annotations")
    assert b"plainly readable" in open_column(table, name="annotations", column="note", vault=vault)


def test_an_annotator_marks_an_item_as_ambiguous_and_the_labels_count() -> None:
    hard, unfit = ({"labels": (HARM,), UNFIT: (doubt,)} for doubt in (DOUBTFUL, REJECTED))
    given = {
        A: [answer(1, values=hard, note=" hard "), answer(2, values=unfit), answer(3, HARM)],
        B: [answer(1, HARM, by="b@x"), answer(2, HARM, by="b@x"), answer(3, HARM, by="b@x")],
    }
    found = pull(given, 1, 2, 3)
    assert found.problems == {}
    rows = {(row["record_id"], row["annotator"], row["category"]): row for row in found.rows}
    doubt = rows[item(1)[0], A, "ambiguous"]
    assert (doubt["outcome"], doubt["labels"], doubt["note"]) == ("ambiguous", None, None)
    assert rows[item(1)[0], A, "labels"]["note"] == "hard"
    assert answered(found.rows)[item(1), "labels"] == {A: {HARM}, B: {HARM}}, "labels of an ambiguous item count"
    assert marked(found.rows) == {item(1), item(2)}
