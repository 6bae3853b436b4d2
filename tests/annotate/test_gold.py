"""Gold from people: every source is checked against the scheme, and each label set says how it came about."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate import gold
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import load as schemes
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests.annotate.round_manifest import write_manifest
from tests.contexts import context_of
from tests.small_corpus import full, write_table

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 1, 2, tzinfo=UTC)
DEV = [f"{i:032x}" for i in range(8)]
TEST, OUTSIDE = "a" * 32, "b" * 32
ITEMS = [*DEV, TEST]
A, B = "annotator-1", "annotator-2"
HARM, PAST, NOTHING = "selfharm_past", "rape_past", "no_crisis"


@dataclass
class World:
    """A corpus with a sample, and the sources of its gold."""

    root: Path
    vault: Vault

    def sample(self, items: Sequence[tuple[str, int]], *, corpus: str = "posts") -> None:
        rows = [{"record_id": r, "image": i} for r, i in items]
        write_table(self.root / f"snapshot/{corpus}/sample/sample.parquet", rows, name="sample")

    def published(self, *lines: str) -> None:
        (self.root / "gold.csv").write_text("\n".join(["record_id,image,category,labels", *lines]) + "\n")

    def run(self, corpus: str = "posts", **section: Any) -> dict[tuple[str, int, str], dict[str, Any]]:
        """Make gold with other values of the section ``gold``; return its rows."""
        params = load(ROOT)
        params = params.model_copy(
            update={"gold": params.gold | {corpus: params.gold[corpus].model_copy(update=section)}}
        )
        settings = Settings.from_env().model_copy(update={"sandbox": self.root})
        gold.run(context_of(corpus, params=params, settings=settings, vault=self.vault, root=self.root))
        rows = tables.read(self.root / f"snapshot/{corpus}/gold/gold.parquet", name="gold").to_pylist()
        return {(row["record_id"], row["image"], row["category"]): row for row in rows}

    def metrics(self, *, corpus: str = "posts") -> dict[str, Any]:
        return json.loads((self.root / f"metrics/{corpus}/gold.json").read_text())

    def unfit(self) -> list[str]:
        path = self.root / "snapshot/posts/gold/drops.parquet"
        return tables.read(path, name="drops")["record_id"].to_pylist()

    def round(
        self,
        name: str,
        given: Mapping[str, Mapping[str, Sequence[str] | None]],
        *,
        decisions: Sequence[tuple[str, Sequence[str] | None]] = (),
        unfit: Sequence[tuple[str, str]] = (),
        days: int = 0,
        **values: Any,
    ) -> None:
        """Write a round: ``given[annotator][record]`` is a label set, or ``None`` where it was assigned only.

        ``unfit`` are the items that an annotator found unfit; so did the adjudicator where a decision is ``None``.
        """
        people = {"overlap": len(given), "annotators": [A, B], "opened": NOW + timedelta(days=days)}
        folder = write_manifest(self.root, name, **people | values)
        asked = [(who, record, labels) for who, sets in given.items() for record, labels in sets.items()]
        answers = [answer for answer in asked if answer[2] is not None] + [(who, record, None) for who, record in unfit]
        common = {"image": 0, "round": name, "guideline": "1" * 16, "note": None, "seconds": 1.0, "answered": NOW}
        common |= {"adjudicator": "adjudicator-1", "sides": 2, "rationale": "because"}
        rows = {
            "assignments": [
                {"record_id": record, "annotator": who, "batch": 0, "position": n}
                for n, (who, record, _) in enumerate(asked)
            ],
            "annotations": [
                {"record_id": record, "annotator": who, "batch": 0, "category": "labels", "labels": labels}
                | {"outcome": "unfit" if labels is None else "answered"}
                for who, record, labels in answers
            ],
            "adjudications": [
                {"record_id": record, "category": "unfit" if labels is None else "labels", "labels": labels or []}
                | {"decided": NOW + timedelta(minutes=n)}
                for n, (record, labels) in enumerate(decisions)
            ],
        }
        for table, own in rows.items():
            whole = [{column: (common | row)[column] for column in tables.SCHEMAS[table].names} for row in own]
            if whole:
                write_rows(whole, folder / f"{table}.parquet", name=table, vault=self.vault)


@pytest.fixture
def world(tmp_path: Path, vault: Vault) -> World:
    vault.admit([(r, f"t3_{r}") for r in [*ITEMS, OUTSIDE]], corpus="posts", month="2023-01", now=NOW)
    made = World(tmp_path, vault)
    made.sample([(record, 0) for record in ITEMS])
    rows = [full("texts", record_id=record) for record in [*ITEMS, OUTSIDE]]
    write_rows(rows, tmp_path / "data/posts/2023-01/texts/000.parquet", name="texts", vault=vault)
    write_table(tmp_path / "snapshot/posts/dedupe/drops.parquet", [], name="drops")
    return made


def closed(*, go_on: bool) -> dict[str, Any]:
    decision = {"go_on": go_on, "reason": "agreement-sufficient" if go_on else "scheme-unclear", "at": NOW}
    return {"status": "closed", "closed": NOW, "decision": decision}


def test_every_sampled_item_has_gold_and_others_are_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = "c" * 32
    world.published(*(f"{r},0,labels,selfharm_past|rape_past" for r in [*ITEMS, OUTSIDE, elsewhere]))
    rows = world.run(published="gold.csv")
    assert "1 labelled items are not in the sample" in caplog.text, "of the two, one is not in the corpus"
    assert f"sample.posts.size {len(ITEMS) + 1}" in caplog.text
    assert {record for record, _, _ in rows} == set(ITEMS)
    assert all(r["labels"] == [PAST, HARM] and r["how"] == "published" for r in rows.values())
    found = world.metrics()
    assert (found["records"], found["outside"], found["without"]) == (9, 2, 0)


def test_an_item_that_all_find_unfit_has_no_gold(world: World) -> None:
    world.published(f"{DEV[0]},0,labels,no_crisis", f"{DEV[1]},0,unfit,")
    given = {A: {DEV[0]: None, DEV[2]: None}, B: {DEV[0]: None, DEV[2]: [HARM]}}
    world.round("round-1", given, unfit=[(A, DEV[0]), (B, DEV[0]), (A, DEV[2])])
    rows = world.run(published="gold.csv")
    assert (rows, world.unfit()) == ({}, [DEV[0], DEV[1]])
    found = world.metrics()
    assert (found["unfit"], found["without"], found["pending"]) == (2, 7, 1)


def test_the_adjudicator_decides_whether_an_item_is_unfit(world: World) -> None:
    asked = {who: {DEV[0]: None, DEV[1]: None} for who in (A, B)}
    found = [(who, record) for who in (A, B) for record in DEV[:2]]
    decisions = [(DEV[0], [HARM]), (DEV[2], None), (DEV[3], None), (DEV[3], [PAST])]
    world.round("round-1", asked, unfit=found, decisions=decisions)
    rows = world.run()
    assert {record: r["labels"] for (record, _, _), r in rows.items()} == {DEV[0]: [HARM], DEV[3]: [PAST]}
    assert world.unfit() == [DEV[1], DEV[2]]


def test_labels_of_a_later_source_make_an_item_fit(world: World) -> None:
    world.published(f"{DEV[0]},0,unfit,")
    world.round("round-1", {A: {DEV[0]: [HARM]}})
    assert len(world.run(published="gold.csv")) == 1
    assert world.unfit() == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{dev},0,labels,no_crisis|rape_past", "breaks"),
        ("{dev},0,labels,sadness", "unknown_label"),
        ("{dev},0,severity,None", "category"),
        ("{dev},0,labels", "four fields"),
        ("{dev},one,labels,no_crisis", "four fields"),
        ("{dev},0,labels,no_crisis\n{dev},0,labels,rape_past", "line 3"),
        (None, "first line"),
    ],
)
def test_gold_that_the_scheme_forbids_is_refused(world: World, line: str | None, says: str) -> None:
    if line:
        world.published(line.format(dev=DEV[0]))
    else:
        (world.root / "gold.csv").write_text("id,label\n")
    with pytest.raises(BadParams, match=says):
        world.run(published="gold.csv")
    assert not (world.root / "snapshot/posts/gold").exists()


def test_two_who_agree_make_gold_and_a_decision_settles_the_rest(world: World) -> None:
    agreeing, differing, undecided, half = DEV[:4]
    world.round(
        "round-1",
        {
            A: {agreeing: [HARM], differing: [HARM], undecided: [HARM], half: [HARM]},
            B: {agreeing: [HARM], differing: [PAST], undecided: [PAST], half: None},
        },
        decisions=[(differing, [HARM]), (differing, [PAST, HARM])],
    )
    rows = world.run()
    assert {record: (r["labels"], r["how"], r["round"]) for (record, _, _), r in rows.items()} == {
        agreeing: ([HARM], "agreed", "round-1"),
        differing: ([PAST, HARM], "adjudicated", "round-1"),
    }
    found = world.metrics()
    assert found["how"] == {"adjudicated": 1, "agreed": 1}
    assert (found["pending"], found["without"], found["rounds"]) == (2, 7, {"round-1": 2})


def test_a_decision_beats_an_agreement_and_of_a_log_in_any_order_the_last_one_counts(world: World) -> None:
    given = {who: {DEV[0]: [HARM]} for who in (A, B)}
    world.round("round-1", given, decisions=[(DEV[0], [NOTHING])])
    (row,) = world.run().values()
    assert (row["labels"], row["how"]) == ([NOTHING], "adjudicated")
    place = {"record_id": TEST, "image": 0, "category": "labels"}
    log = [place | {"labels": [label], "decided": NOW + timedelta(hours=n)} for n, label in ((2, HARM), (1, PAST))]
    found = gold.settle([], assignments=[], log=log, scheme=schemes("cradle"), name="round-1")
    assert found == {((TEST, 0), "labels"): gold.GoldLabel(frozenset({HARM}), "adjudicated", "round-1")}


def test_one_annotator_makes_gold_where_one_was_assigned(world: World) -> None:
    world.round("round-4", {A: {DEV[0]: [HARM], DEV[1]: None}})
    (row,) = world.run().values()
    assert (row["record_id"], row["how"]) == (DEV[0], "single")
    assert world.metrics()["pending"] == 1


def test_rounds_that_do_not_count_or_hold_no_answers_yet_give_nothing(world: World) -> None:
    given = {A: {DEV[0]: [HARM]}}
    world.round("trial", given, gold=False)
    world.round("stopped", given, **closed(go_on=False))
    world.round("fresh", {A: {DEV[1]: None}})
    assert world.run() == {}
    assert world.metrics()["pending"] == 1
    assert world.metrics()["rounds"] == {"fresh": 0}
    world.round("done", {A: {DEV[2]: [HARM], DEV[3]: None}}, **closed(go_on=True))
    assert [record for record, _, _ in world.run()] == [DEV[2]]
    assert world.metrics()["pending"] == 1, "a closed round waits for nothing"


def test_later_sources_win(world: World) -> None:
    world.published(*(f"{r},0,labels,no_crisis" for r in DEV[:3]))
    # names are in another order than dates
    world.round("z-first", {A: {DEV[0]: [HARM], DEV[1]: [HARM], OUTSIDE: [HARM]}}, days=1)
    world.round("a-review", {}, decisions=[(DEV[0], [PAST])], days=2)
    rows = world.run(published="gold.csv")
    assert {record: (r["how"], r["round"]) for (record, _, _), r in rows.items()} == {
        DEV[0]: ("adjudicated", "a-review"),
        DEV[1]: ("single", "z-first"),
        DEV[2]: ("published", None),
    }


def test_a_disagreement_leaves_what_was_known_and_an_old_scheme_is_refused_by_the_rounds_name(world: World) -> None:
    world.published(f"{DEV[0]},0,labels,no_crisis")
    world.round("round-1", {A: {DEV[0]: [HARM]}, B: {DEV[0]: [PAST]}})
    (row,) = world.run(published="gold.csv").values()
    assert (row["labels"], row["how"]) == ([NOTHING], "published")
    world.round("round-2", {A: {DEV[0]: ["crisis_of_old"]}})
    with pytest.raises(BadParams, match="round-2"):
        world.run()


def test_the_same_gold_is_the_same_bytes(world: World) -> None:
    world.published(*(f"{r},0,labels,selfharm_past|rape_past" for r in DEV))
    path = world.root / "snapshot/posts/gold/gold.parquet"
    world.run(published="gold.csv")
    before = path.read_bytes()
    world.published(*(f"{r},0,labels,rape_past|selfharm_past" for r in reversed(DEV)))
    world.run(published="gold.csv")
    assert path.read_bytes() == before


def test_memes_have_gold_for_every_image_and_category_in_the_annotators_labels(world: World) -> None:
    labels = {"figurative": [], "severity": ["Suicide death"], "related": ["Third-person description"]}
    labels |= {"modality": ["text"], "context": ["context-required"]}
    posts = [{"fullname": "t3_x", "labels": {"figsim": labels}}, {"fullname": "t3_y", "labels": {"figsim": None}}]
    (world.root / "truth_images.json").write_text(json.dumps({"submissions": posts}))
    known, other = world.vault.record_id("t3_x"), world.vault.record_id("t3_y")
    world.sample([(known, 0), (known, 2), (other, 0)], corpus="memes")
    rows = world.run("memes", truth=True)
    assert {(image, key): r["labels"] for (_, image, key), r in rows.items()} == {
        (image, key): given for image in (0, 2) for key, given in labels.items()
    }
    assert {r["how"] for r in rows.values()} == {"truth"}
    assert world.metrics(corpus="memes")["without"] == 1


def test_figsims_none_is_the_empty_set_and_two_none_labels_differ(world: World) -> None:
    world.sample([(DEV[0], 1)], corpus="memes")
    world.published(f"{DEV[0]},1,figurative,None", f"{DEV[0]},1,severity,None")
    rows = world.run("memes", published="gold.csv")
    assert {key: r["labels"] for (_, _, key), r in rows.items()} == {"figurative": [], "severity": ["None"]}
