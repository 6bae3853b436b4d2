"""Gold from people: every source is checked against the scheme, and each label set says how it came about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate import gold
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import load as schemes
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests.annotate.round_manifest import write_manifest
from tests.small_corpus import write_table

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 1, 2, tzinfo=UTC)
DEV = [f"{i:032x}" for i in range(8)]
TEST, OUTSIDE = "a" * 32, "b" * 32
ITEMS = [*DEV, TEST]
A, B = "annotator-1", "annotator-2"
HARM, PAST, NOTHING = "selfharm_past", "rape_past", "no_crisis"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=bytes(32)) as opened:
        opened.admit(
            [(record, f"t3_{record}") for record in [*ITEMS, OUTSIDE]], corpus="posts", month="2023-01", now=NOW
        )
        yield opened


@pytest.fixture
def params(tmp_path: Path) -> Params:
    write_sample(tmp_path, [(record, 0) for record in ITEMS])
    return load(ROOT)


def write_sample(root: Path, items: Sequence[tuple[str, int]], *, corpus: str = "posts") -> None:
    rows = [{"record_id": r, "image": i} for r, i in items]
    path = root / "snapshot" / corpus / "sample" / "sample.parquet"
    write_table(path, rows, name="sample")


def sourced(params: Params, *, corpus: str = "posts", **values: Any) -> Params:
    return params.model_copy(update={"gold": params.gold | {corpus: params.gold[corpus].model_copy(update=values)}})


def published(root: Path, *lines: str) -> None:
    (root / "gold.csv").write_text("\n".join(["record_id,image,category,labels", *lines]) + "\n")


def run(
    root: Path, *, params: Params, vault: Vault, corpus: str = "posts", sandbox: Path | None = None
) -> dict[tuple[str, int, str], dict[str, Any]]:
    settings = Settings.from_env()
    settings = settings.model_copy(update={"sandbox": sandbox or settings.sandbox})
    gold.run(corpus, params=params, settings=settings, vault=vault, root=root)
    rows = tables.read(root / f"snapshot/{corpus}/gold/gold.parquet", name="gold").to_pylist()
    return {(row["record_id"], row["image"], row["category"]): row for row in rows}


def metrics(root: Path, *, corpus: str = "posts") -> dict[str, Any]:
    return json.loads((root / f"metrics/{corpus}/gold.json").read_text())


def open_round(
    root: Path,
    name: str,
    *,
    vault: Vault,
    given: Mapping[str, Mapping[str, Sequence[str] | None]],
    decisions: Sequence[tuple[str, Sequence[str] | None]] = (),
    unfit: Sequence[tuple[str, str]] = (),
    days: int = 0,
    **values: Any,
) -> None:
    """Write a round: ``given[annotator][record]`` is a label set, or ``None`` where it was assigned only.

    ``unfit`` are the items that an annotator found unfit; so did the adjudicator where a decision is ``None``.
    """
    people = {"overlap": len(given), "annotators": [A, B], "opened": NOW + timedelta(days=days)}
    folder = write_manifest(root, name, **people | values)
    common = {"image": 0, "round": name}
    asked = [(who, record, labels) for who, sets in given.items() for record, labels in sets.items()]
    rows = {
        "assignments": [
            {**common, "record_id": record, "annotator": who, "batch": 0, "position": n}
            for n, (who, record, _) in enumerate(asked)
        ],
        "annotations": [
            {
                **{**common, "record_id": record, "annotator": who, "batch": 0, "category": "labels"},
                **{"guideline": "1" * 16, "outcome": "unfit" if labels is None else "answered", "seconds": 1.0},
                **{"labels": None if labels is None else list(labels), "answered": NOW, "note": None},
            }
            for who, record, labels in [
                *((who, record, labels) for who, record, labels in asked if labels is not None),
                *((who, record, None) for who, record in unfit),
            ]
        ],
        "adjudications": [
            {
                **{**common, "record_id": record, "category": "unfit" if labels is None else "labels"},
                **{"guideline": "1" * 16, "adjudicator": "adjudicator-1", "labels": list(labels or ()), "sides": 2},
                "decided": NOW + timedelta(minutes=n),
                "rationale": "because",
            }
            for n, (record, labels) in enumerate(decisions)
        ],
    }
    for table, values_of in rows.items():
        if values_of:
            write_rows(values_of, folder / f"{table}.parquet", name=table, vault=vault)


def closed(*, go_on: bool) -> dict[str, Any]:
    decision = {"go_on": go_on, "reason": "agreement-sufficient" if go_on else "scheme-unclear", "at": NOW}
    return {"status": "closed", "closed": NOW, "decision": decision}


def test_every_sampled_item_has_gold_and_others_are_counted(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, *(f"{r},0,labels,selfharm_past|rape_past" for r in [*ITEMS, OUTSIDE]))
    rows = run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault)
    assert {record for record, _, _ in rows} == set(ITEMS)
    assert all(r["labels"] == [PAST, HARM] and r["how"] == "published" for r in rows.values())
    found = metrics(tmp_path)
    assert (found["records"], found["outside"], found["without"]) == (9, 1, 0)


def unfit(root: Path) -> list[str]:
    return tables.read(root / "snapshot/posts/gold/drops.parquet", name="drops")["record_id"].to_pylist()


def test_an_item_that_all_find_unfit_has_no_gold(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, f"{DEV[0]},0,labels,no_crisis", f"{DEV[1]},0,unfit,")
    given = {A: {DEV[0]: None, DEV[2]: None}, B: {DEV[0]: None, DEV[2]: [HARM]}}
    open_round(tmp_path, "round-1", vault=vault, given=given, unfit=[(A, DEV[0]), (B, DEV[0]), (A, DEV[2])])
    rows = run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault)
    assert (rows, unfit(tmp_path)) == ({}, [DEV[0], DEV[1]])
    found = metrics(tmp_path)
    assert (found["unfit"], found["without"], found["pending"]) == (2, 7, 1)


def test_the_adjudicator_decides_whether_an_item_is_unfit(tmp_path: Path, params: Params, vault: Vault) -> None:
    asked = {who: {DEV[0]: None, DEV[1]: None} for who in (A, B)}
    found = [(who, record) for who in (A, B) for record in DEV[:2]]
    decisions = [(DEV[0], [HARM]), (DEV[2], None), (DEV[3], None), (DEV[3], [PAST])]
    open_round(tmp_path, "round-1", vault=vault, given=asked, unfit=found, decisions=decisions)
    rows = run(tmp_path, params=params, vault=vault)
    assert {record: r["labels"] for (record, _, _), r in rows.items()} == {DEV[0]: [HARM], DEV[3]: [PAST]}
    assert unfit(tmp_path) == [DEV[1], DEV[2]]


def test_labels_of_a_later_source_make_an_item_fit(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, f"{DEV[0]},0,unfit,")
    open_round(tmp_path, "round-1", vault=vault, given={A: {DEV[0]: [HARM]}})
    assert len(run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault)) == 1
    assert unfit(tmp_path) == []


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
def test_gold_that_the_scheme_forbids_is_refused(
    tmp_path: Path, params: Params, vault: Vault, line: str | None, says: str
) -> None:
    if line:
        published(tmp_path, line.format(dev=DEV[0]))
    else:
        (tmp_path / "gold.csv").write_text("id,label\n")
    with pytest.raises(BadParams, match=says):
        run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault)
    assert not (tmp_path / "snapshot/posts/gold").exists()


def test_two_who_agree_make_gold_and_a_decision_settles_the_rest(tmp_path: Path, params: Params, vault: Vault) -> None:
    agreeing, differing, undecided, half = DEV[:4]
    open_round(
        tmp_path,
        "round-1",
        vault=vault,
        given={
            A: {agreeing: [HARM], differing: [HARM], undecided: [HARM], half: [HARM]},
            B: {agreeing: [HARM], differing: [PAST], undecided: [PAST], half: None},
        },
        decisions=[(differing, [HARM]), (differing, [PAST, HARM])],
    )
    rows = run(tmp_path, params=params, vault=vault)
    assert {record: (r["labels"], r["how"], r["round"]) for (record, _, _), r in rows.items()} == {
        agreeing: ([HARM], "agreed", "round-1"),
        differing: ([PAST, HARM], "adjudicated", "round-1"),
    }
    found = metrics(tmp_path)
    assert found["how"] == {"adjudicated": 1, "agreed": 1}
    assert (found["pending"], found["without"], found["rounds"]) == (2, 7, {"round-1": 2})


def test_a_decision_beats_an_agreement(tmp_path: Path, params: Params, vault: Vault) -> None:
    given = {who: {DEV[0]: [HARM]} for who in (A, B)}
    open_round(tmp_path, "round-1", vault=vault, given=given, decisions=[(DEV[0], [NOTHING])])
    (row,) = run(tmp_path, params=params, vault=vault).values()
    assert (row["labels"], row["how"]) == ([NOTHING], "adjudicated")


def test_of_a_log_in_any_order_the_last_decision_counts() -> None:
    log = [
        {"record_id": TEST, "image": 0, "category": "labels", "labels": [label], "decided": NOW + timedelta(hours=n)}
        for n, label in ((2, HARM), (1, PAST))
    ]
    found = gold.settle([], assignments=[], log=log, scheme=schemes("cradle"), name="round-1")
    assert found == {((TEST, 0), "labels"): gold.GoldLabel(frozenset({HARM}), "adjudicated", "round-1")}


def test_one_annotator_makes_gold_where_one_was_assigned(tmp_path: Path, params: Params, vault: Vault) -> None:
    open_round(tmp_path, "round-4", vault=vault, given={A: {DEV[0]: [HARM], DEV[1]: None}})
    (row,) = run(tmp_path, params=params, vault=vault).values()
    assert (row["record_id"], row["how"]) == (DEV[0], "single")
    assert metrics(tmp_path)["pending"] == 1


def test_rounds_that_do_not_count_or_hold_no_answers_yet_give_nothing(
    tmp_path: Path, params: Params, vault: Vault
) -> None:
    given = {A: {DEV[0]: [HARM]}}
    open_round(tmp_path, "trial", vault=vault, given=given, gold=False)
    open_round(tmp_path, "stopped", vault=vault, given=given, **closed(go_on=False))
    open_round(tmp_path, "fresh", vault=vault, given={A: {DEV[1]: None}})
    assert run(tmp_path, params=params, vault=vault) == {}
    assert metrics(tmp_path)["pending"] == 1
    assert metrics(tmp_path)["rounds"] == {"fresh": 0}


def test_a_closed_round_counts_and_waits_for_nothing(tmp_path: Path, params: Params, vault: Vault) -> None:
    open_round(tmp_path, "done", vault=vault, given={A: {DEV[0]: [HARM], DEV[1]: None}}, **closed(go_on=True))
    assert len(run(tmp_path, params=params, vault=vault)) == 1
    assert metrics(tmp_path)["pending"] == 0


def test_later_sources_win(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, *(f"{r},0,labels,no_crisis" for r in DEV[:3]))
    # names are in another order than dates
    open_round(tmp_path, "z-first", vault=vault, given={A: {DEV[0]: [HARM], DEV[1]: [HARM], OUTSIDE: [HARM]}}, days=1)
    open_round(tmp_path, "a-review", vault=vault, given={}, decisions=[(DEV[0], [PAST])], days=2)
    rows = run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault)
    assert {record: (r["how"], r["round"]) for (record, _, _), r in rows.items()} == {
        DEV[0]: ("adjudicated", "a-review"),
        DEV[1]: ("single", "z-first"),
        DEV[2]: ("published", None),
    }


def test_a_disagreement_leaves_what_was_known(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, f"{DEV[0]},0,labels,no_crisis")
    open_round(tmp_path, "round-1", vault=vault, given={A: {DEV[0]: [HARM]}, B: {DEV[0]: [PAST]}})
    (row,) = run(tmp_path, params=sourced(params, published="gold.csv"), vault=vault).values()
    assert (row["labels"], row["how"]) == ([NOTHING], "published")


def test_a_round_that_the_scheme_does_not_know_any_more_is_refused_by_name(
    tmp_path: Path, params: Params, vault: Vault
) -> None:
    open_round(tmp_path, "round-1", vault=vault, given={A: {DEV[0]: ["crisis_of_old"]}})
    with pytest.raises(BadParams, match="round-1"):
        run(tmp_path, params=params, vault=vault)


def test_the_same_gold_is_the_same_bytes(tmp_path: Path, params: Params, vault: Vault) -> None:
    published(tmp_path, *(f"{r},0,labels,selfharm_past|rape_past" for r in DEV))
    path, values = tmp_path / "snapshot/posts/gold/gold.parquet", sourced(params, published="gold.csv")
    run(tmp_path, params=values, vault=vault)
    before = path.read_bytes()
    published(tmp_path, *(f"{r},0,labels,rape_past|selfharm_past" for r in reversed(DEV)))
    run(tmp_path, params=values, vault=vault)
    assert path.read_bytes() == before


def test_memes_have_gold_for_every_image_and_category_in_the_annotators_labels(
    tmp_path: Path, params: Params, vault: Vault
) -> None:
    labels = {"figurative": [], "severity": "Suicide death", "related": ["Third-person description"]}
    labels |= {"modality": "text", "context": "context-required"}
    posts = [{"fullname": "t3_x", "labels": {"figsim": labels}}, {"fullname": "t3_y", "labels": {"figsim": None}}]
    (tmp_path / "truth.json").write_text(json.dumps({"submissions": posts}))
    known, other = vault.record_id("t3_x"), vault.record_id("t3_y")
    write_sample(tmp_path, [(known, 0), (known, 2), (other, 0)], corpus="memes")
    values = sourced(params, corpus="memes", truth=True)
    rows = run(tmp_path, params=values, vault=vault, corpus="memes", sandbox=tmp_path)
    assert {(image, key): r["labels"] for (_, image, key), r in rows.items()} == {
        (image, key): [given] if isinstance(given, str) else given for image in (0, 2) for key, given in labels.items()
    }
    assert {r["how"] for r in rows.values()} == {"truth"}
    assert metrics(tmp_path, corpus="memes")["without"] == 1


def test_figsims_none_is_the_empty_set_and_two_none_labels_differ(tmp_path: Path, params: Params, vault: Vault) -> None:
    write_sample(tmp_path, [(DEV[0], 1)], corpus="memes")
    published(tmp_path, f"{DEV[0]},1,figurative,None", f"{DEV[0]},1,severity,None")
    values = sourced(params, corpus="memes", published="gold.csv")
    rows = run(tmp_path, params=values, vault=vault, corpus="memes")
    assert {key: r["labels"] for (_, _, key), r in rows.items()} == {"figurative": [], "severity": ["None"]}
