"""The tables print the paper's numbers and ours beside them."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import evaluate
from pipelines.evaluate.label_errors import Traits, analyse
from pipelines.evaluate.model_scores import Board, Run, Sampling
from pipelines.metrics.label_tables import Sheet
from pipelines.report import figsim
from tests.evaluate.figsim_runs import paper_gold, paper_test, seen, write_gold, write_run

ROOT = Path(__file__).resolve().parents[2]
SCHEME = load("figsim")
PARAMS = load_params(ROOT)
FEW = Sampling(resamples=50, seed=1)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return metrics of a model that is always right, on gold with Table 8's counts."""
    root, (split, gold) = tmp_path_factory.mktemp("figsim"), paper_gold()
    write_gold(root, split, gold)
    for key in ("figurative", "severity", "related"):
        write_run(root, key, "bert", 1, paper_test(gold, split, key))
    return evaluate.run("memes", params=PARAMS, root=root, sampling=FEW)


def by_name(sheet: Sheet) -> dict[str, tuple[str, ...]]:
    return {row[0]: row for row in sheet.rows}


def test_the_papers_averages_follow_from_its_labels() -> None:
    # SPEC 1.5
    assert figsim.recomputed("figurative") == pytest.approx((70.21, 80.685), abs=5e-4)
    assert figsim.recomputed("severity") == pytest.approx((71.598, 71.732), abs=5e-4)
    assert figsim.recomputed("related") == pytest.approx((58.5125, 58.165), abs=5e-4)
    assert [row[2] for row in figsim.table_4().rows if row[2]] == [
        "70.210", "80.685", "71.598", "71.732", "58.513", "58.165",
    ]  # fmt: skip
    assert figsim.support("severity")["Suicide attempt/death"] == 39


def test_table_8_prints_what_the_paper_prints(scored: dict[str, Any]) -> None:
    sheet = figsim.table_8(scored)
    assert len(sheet.rows) == 22
    for row in sheet.rows:
        assert row[2::2] == row[1::2]
    rows = {name.split()[0]: row for name, row in by_name(sheet).items()}
    # SPEC 1.5: totals of the categories
    expected = {
        "F": [161, 121, 833, 146],
        "SS": [189, 339, 163, 167, 30, 161],
        "SR": [266, 81, 70, 282, 21, 401],
        "M": [946, 74, 29],
        "C": [916, 133],
    }
    for code, totals in expected.items():
        assert [int(rows[f"{code}{i}"][-1]) for i in range(1, len(totals) + 1)] == totals
    assert rows["Total"][-1] == "1,049"
    for column in range(1, 7):
        for code in ("SS", "M", "C"):
            total = sum(int(rows[f"{code}{i}"][column]) for i in range(1, len(expected[code]) + 1))
            assert str(total) == rows["Total"][column]


@cache
def error_board() -> tuple[Board, dict, Traits]:
    """The 208 test memes of Table 8, with a run that is wrong on 55: 32 too low, by subtype as Table 12's rates say.

    Appendix F gives where it is wrong: 5 of 26 that need context, 4 of 15 text-only, 3 of 6 image-only memes.
    """
    split, gold = paper_gold()
    items = [item for item, name in split.items() if name == "test"]
    figurative = seen({item: gold["figurative"][item] for item in items}, "figurative")
    # too low, too high: by the exact set of the subtypes that a meme carries
    irony, metaphor, pun = "Irony/sarcasm", "Metaphor", "Pun/Double meaning"
    wanted = {
        frozenset({irony, metaphor}): (5, 1),
        frozenset({irony, pun}): (4, 2),
        frozenset({irony}): (20, 16),
        frozenset(): (3, 4),
    }
    low, high = [], []
    for labels, (under, over) in wanted.items():
        here = [item for item in items if figurative[item] == labels]
        low, high = low + here[:under], high + here[under : under + over]
    levels = task_of(SCHEME, "severity").labels
    # who is too low cannot be None, and who is too high cannot be the gravest
    true = {item: levels[1 + i % 4] if item in low else levels[i % 4] for i, item in enumerate(items)}
    said = {
        item: levels[levels.index(true[item]) + (-1 if item in low else 1 if item in high else 0)] for item in items
    }
    wrong, right = low + high, [item for item in items if item not in {*low, *high}]
    context = dict.fromkeys(wrong[:5] + right[:21], "context-required")
    modality = dict.fromkeys(wrong[5:9] + right[:11], "text") | dict.fromkeys(wrong[9:12] + right[11:14], "image")
    board = Board(
        task_of(SCHEME, "severity"),
        tuple(items),
        tuple(frozenset({true[item]}) for item in items),
        tuple(record for record, _ in items),
        FEW,
    )
    traits = Traits(
        sets={"figurative": figurative},
        kinds={
            "context": {i: context.get(i, "no-context-required") for i in items},
            "modality": {i: modality.get(i, "complementary") for i in items},
        },
        values={
            "figurative": task_of(SCHEME, "figurative").labels,
            "context": ["no-context-required", "context-required"],
            "modality": ["complementary", "text", "image"],
        },
    )
    return board, {item: frozenset({label}) for item, label in said.items()}, traits


def severity_metrics(said: dict) -> dict[str, Any]:
    board, _, traits = error_board()
    run = Run(1, dict.fromkeys(board.items, "vote"), said)
    model = {"errors": analyse(board, runs=[run], traits=traits)}
    return {"tasks": {"severity": {"best": "x", "models": {"x": model}}}}


def test_table_12_prints_what_the_paper_prints() -> None:
    metrics = severity_metrics(error_board()[1])
    rows = figsim.table_12(metrics).rows
    paper = [row for row in rows if not row[0].startswith("Any")]
    assert [(row[3], row[4]) for row in paper] == [(row[1], row[2]) for row in paper]
    # SPEC 1.5: each pair sums to 32/55
    assert [row[4] for row in paper] == ["3/7", "29/48", "27/49", "5/6", "28/49", "4/6"]
    errors = metrics["tasks"]["severity"]["models"]["x"]["errors"]
    assert (errors["wrong"]["count"], errors["wrong"]["of"]) == (55, 208)
    # the caption's denominator: all memes with the property
    assert by_name(figsim.table_12(metrics))["Metaphor: present"][7] == "5/32"


def test_errors_by_context_and_modality_are_the_papers() -> None:
    errors = severity_metrics(error_board()[1])["tasks"]["severity"]["models"]["x"]["errors"]["by_category"]
    found = {label: f"{r['count']}/{r['of']}" for places in errors.values() for label, r in places.items()}
    assert found.items() >= figsim.misclassified("severity").items()
    assert figsim.misclassified("severity") == {"context-required": "5/26", "text": "4/15", "image": "3/6"}


def test_without_runs_only_the_paper_is_shown() -> None:
    for table in ("table_3", "table_4", "table_8", "table_9", "table_10", "table_12"):
        sheet = getattr(figsim, table)()
        assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    assert len(figsim.table_3().rows) == 22  # SPEC 7


def test_a_new_model_is_a_new_row_and_refusals_are_a_second_one(tmp_path: Path) -> None:
    split, gold = paper_gold()
    write_gold(tmp_path, split, gold)
    test = paper_test(gold, split, "severity")
    lost = dict.fromkeys(list(test)[:8], "refused")
    write_run(tmp_path, "severity", "llama-3-2-vision-zero", 1, test, outcomes=lost, source="prompted")
    write_run(tmp_path, "severity", "my-own", 1, test)
    metrics = evaluate.run("memes", params=PARAMS, root=tmp_path, sampling=FEW)
    rows = by_name(figsim.table_3(metrics))
    assert rows["my-own"][8] == rows["Llama-3.2 Vision zero-shot"][8] == "100.00"
    assert float(rows["Llama-3.2 Vision zero-shot, all records"][8]) < 100
    assert rows["Majority"][8] == "9.64"  # of five classes the most frequent alone: 2x66/(208+66)/5


def test_settings_stand_beside_the_papers(scored: dict[str, Any]) -> None:
    rows = by_name(figsim.table_9(scored))
    assert float(rows["Learning rate"][1]) == float(rows["Learning rate"][2])
    decoding = {"gpt": {"temperature": None, "top_p": None, "max_output_tokens": 1024, "stop": False}}
    sheet = figsim.table_10({"decoding": decoding})
    assert sheet.columns[-1] == "gpt"
    assert by_name(sheet)["Temperature"][1:] == ("0.0", "not sent")


def test_what_drawings_need_are_fractions() -> None:
    assert figsim.macro_f1("figurative")["clip"] == pytest.approx(0.6206)
    assert "m3h" not in figsim.macro_f1("figurative")
    assert figsim.label_f1("related")["Harmful factors"] == pytest.approx(0.4719)
