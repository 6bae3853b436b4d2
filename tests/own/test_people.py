"""Section 4 of the page: two people label items in spreadsheets, and as well in Label Studio; a third decides."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.annotate.backends import Queue, item_of
from pipelines.annotate.backends.label_studio import title
from pipelines.store.vault.keyring import Keyring
from tests.annotate import annotators
from tests.annotate.test_sheets import opened, tables
from tests.own import content
from tests.own.equal import differing
from tests.own.page import PAGE, SECRET, TEXTS, Desk, files
from tests.ports import free_port
from tests.test_docs_commands import SHELL

pytestmark = pytest.mark.faults  # six minutes
PEOPLE, ADJUDICATOR = ("anna", "ben"), "adjudicator-1"
# The pilot has 30 items, and the first round what is left of the sample.
SAMPLE, ROUNDS = "sample: {forum: {size: 90}}\n", {"pilot": 30, "round-1": 60}
# Every so many answers one is wrong, and every so many items one is skipped.
ERRORS, SKIPS = 6, 25
Answer = tuple[str, str]
"""A label, or nothing where the item is skipped, and a note."""


def drawn(*words: str) -> int:
    return int(hashlib.sha256(" ".join(words).encode()).hexdigest(), 16)


@dataclass(frozen=True)
class Person:
    """An annotator who knows the truth and sometimes errs; an adjudicator does not err, and gives a reason."""

    name: str
    truth: Mapping[str, str]

    def answer(self, record: str) -> Answer:
        if self.name == ADJUDICATOR:
            return self.truth[record], "as the guideline says"
        if drawn(record, self.name, "skip") % SKIPS == 0:
            return "", ""
        wrong = drawn(record, self.name)
        return (content.KINDS[wrong // ERRORS % 4] if wrong % ERRORS == 0 else self.truth[record]), ""


class Sheets:
    """People who fill in spreadsheets."""

    as_printed = True

    def __init__(self, desk: Desk) -> None:
        self.folder = desk.code.parent / "tables"

    def label(self, queue: Queue, person: Person) -> int:
        done = 0
        for path in tables(self.folder / queue.name / person.name):
            with opened(path) as rows:
                at = {name: place for place, name in enumerate(rows[0])}
                for row in rows[1:]:
                    label, note = person.answer(item_of(row[at["item"]])[0])
                    row[at["labels" if label else "skip"]], row[at["note"]] = label or "x", note
                    done += 1
        return done


class Studio:
    """People who log in to Label Studio."""

    as_printed = False

    def __init__(self, desk: Desk) -> None:
        served = json.loads(desk.corpus("annotate", "--port", str(free_port())).splitlines()[-1])
        self.url, self.accounts = served["url"], Path(served["accounts"])

    def label(self, queue: Queue, person: Person) -> int:
        account = json.loads(self.accounts.read_text())[person.name]
        with annotators.log_in(self.url, email=account["email"], password=account["password"]) as client:
            tasks = [task for task in annotators.asked(client, queue_title=title(queue)) if not task.done]
            for task in tasks:
                label, note = person.answer(task.item[0])
                values = {"labels": (label,)} if label else {}
                annotators.send(client, task, values, note=note, skipped=not label)
        return len(tasks)


@dataclass(frozen=True)
class Labelled:
    """What came of the rounds: how many items each person had, and the corpus with its models."""

    desk: Desk
    truth: Mapping[str, str]
    given: dict[str, dict[str, int]]
    registered: dict[str, Any]

    def metrics(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.desk.code / "lab" / "metrics" / "forum" / f"{name}.json").read_text()))


def hold(desk: Desk, name: str, people: Sheets | Studio, truth: Mapping[str, str]) -> dict[str, int]:
    """Type the commands of a round as printed, and let people label where they are to."""
    [block] = [block for block in SHELL if block.page == PAGE and block.needs == "people"]
    given = {}
    for line in block.text.replace("pilot", name).splitlines():
        desk.run(replace(block, text=line if people.as_printed else line.replace("--as xlsx ", "")))
        if "round open" in line:
            given = {who: people.label(Queue(f"forum/{name}", who), Person(who, truth)) for who in PEOPLE}
        elif "round adjudicate" in line:
            decider = Person(ADJUDICATOR, truth)
            given[ADJUDICATOR] = people.label(Queue(f"forum/{name}/adjudication", ADJUDICATOR), decider)
    return given


def labelled(way: type[Sheets | Studio], desk: Desk, truth: Mapping[str, str]) -> Labelled:
    """Run the corpus without labels, hold the rounds, and run it again."""
    desk.type("own", end="corpus run")
    assert last(desk.corpus("run", "forum"))["waits"]
    people = way(desk)
    given = {name: hold(desk, name, people, truth) for name in ROUNDS}
    ended = last(desk.corpus("run", "forum"))
    assert not ended["waits"]
    desk.type("own", begin="corpus clone", end="corpus promote")
    return Labelled(desk, truth, given, ended["registered"])


def last(output: str) -> dict[str, Any]:
    return dict(json.loads(output.splitlines()[-1]))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Labelled]]:
    """The rounds of two checkouts of one team: in spreadsheets, and in Label Studio."""
    folder, ids = tmp_path_factory.mktemp("people"), Keyring(bytes.fromhex(SECRET))
    with files(TEXTS, folder / "files") as written, ExitStack() as stack:
        truth = {ids.name(f"t3_{post}", domain="post"): kind for post, kind in written.labels.items()}
        found = {}
        for name, way in {"spreadsheets": Sheets, "label-studio": Studio}.items():
            desk = Desk.of(replace(TEXTS, profile=SAMPLE), folder / name, given=folder / "files")
            stack.callback(desk.corpus, "down")
            found[name] = labelled(way, desk, truth)
        yield found


@pytest.mark.parametrize("way", ["spreadsheets", "label-studio"])
def test_two_people_label_and_a_third_decides(done: dict[str, Labelled], way: str) -> None:
    found = done[way]
    for name, size in ROUNDS.items():
        assert {found.given[name][person] for person in PEOPLE} == {size}
        assert 0 < found.given[name][ADJUDICATOR] < size / 2
    measured = found.metrics("agreement")["rounds"]["round-1"]["categories"]["labels"]
    assert 0.4 < measured["kappa"]["value"] < 0.9
    gold = pq.read_table(found.desk.code / "lab" / "snapshot" / "forum" / "gold" / "gold.parquet").to_pylist()
    assert Counter(row["round"] for row in gold) == ROUNDS
    assert {row["how"] for row in gold} == {"agreed", "adjudicated"}
    # what both got wrong alike is wrong in gold, and nothing else
    alike = {
        record
        for record, label in found.truth.items()
        if len(said := {Person(who, found.truth).answer(record)[0] for who in PEOPLE}) == 1 and said != {label}
    }
    assert {row["record_id"] for row in gold if row["labels"] != [found.truth[row["record_id"]]]} <= alike
    [versions] = found.registered.values()
    assert versions, "a model is registered"


def test_both_ways_give_the_same_gold_and_the_same_models(done: dict[str, Labelled]) -> None:
    desks = [found.desk for found in done.values()]
    lines, _ = differing(*desks)
    assert [line for line in lines if not line.lstrip().startswith("annotations")] == []
    for name in ROUNDS:
        first, second = (answers(desk, name) for desk in desks)
        assert first == second


def answers(desk: Desk, name: str) -> list[dict[str, Any]]:
    """Return the answers of a round, but for the times that people took."""
    table = pq.read_table(desk.code / "lab" / "annotations" / "forum" / name / "annotations.parquet")
    keys = [(key, "ascending") for key in ("record_id", "annotator", "category")]
    return list(table.drop_columns(["seconds", "answered"]).sort_by(keys).to_pylist())
