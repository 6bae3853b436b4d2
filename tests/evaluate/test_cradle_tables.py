"""CRADLE's tables: the data is the paper's, its own numbers follow from it, and runs with its counts print its rows."""

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.metrics import label_tables
from pipelines.metrics.label_tables import SCORES, Sheet
from pipelines.report.cradle import crisis_parts, parts, recomputed_figures
from pipelines.report.cradle import tables as cradle_tables
from tests.evaluate import cradle_runs
from tests.evaluate.posts_runs import write_gold, write_run
from tests.evaluate.test_report import said

REPO = Path(__file__).resolve().parents[2]
PARAMS = load_params(REPO)
KNOWN = json.loads((REPO / "tests" / "known_answers.json").read_text())
FEW = Sampling(resamples=20, seed=1)
KEYS = list(recomputed_figures.names())
# known_answers.json spells Tables 13 to 16 as the paper does, which is not as Table 4
SPELLED = dict(
    zip(
        KEYS,
        ["Llama-3.1-8B", "Llama-3.3-70B", "Gemma-3-12B", "Gemma-3-27B", "Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B",
         "Qwen2.5-72B", "Qwen3-8B", "Qwen3-14B", "gpt-oss-20B", "gpt-oss-120B", "Gemini-2.5-Pro", "Claude Sonnet 4",
         "GPT-5", "Ensemble"],
        strict=True,
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return metrics of the paper's sixteen systems, as the stage makes them of 600 posts with the paper's counts."""
    root = tmp_path_factory.mktemp("cradle")
    gold = cradle_runs.gold()
    write_gold(root, {"test": gold})
    for key in KEYS:
        said, lost = cradle_runs.answers(key, gold)
        write_run(root, f"untuned/{key}", {"test": said}, lost=lost)
    return evaluate.run("posts", params=PARAMS, root=root, sampling=FEW)


def by_name(sheet: Sheet, *, whose: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the paper, or of ours, by the first cell; numbers without their intervals."""
    rows = [row for row in sheet.rows if row[1].split(":")[0] == whose]
    return {row[0]: tuple(cell.split(" [")[0] for cell in row[2:]) for row in rows}


# ------------------------------------------------------------------ the data


def test_the_data_is_the_papers() -> None:
    for key, name in recomputed_figures.names().items():
        printed = KNOWN["table4"][name]
        assert list(recomputed_figures.row_4(key).values()) == printed
        assert recomputed_figures.by_label(key) == {
            label: dict(zip(recomputed_figures.PARTS, values, strict=True))
            for label, values in KNOWN["table13_16"][SPELLED[key]].items()
        }
    table = recomputed_figures.published()["table_12"]
    assert table["valid"] == KNOWN["table4"]["Valid samples only (n=586)"]
    assert table["all"] == KNOWN["table4"]["All samples (n=600, blocked=14)"]
    assert table["blocked"] == KNOWN["reconstructed"]["Gemini-2.5-Pro"]["labels_lost_in_blocked"]
    assert recomputed_figures.published()["table_11"]["labels"] == {
        label: [row["cons"], row["unan"], row["dev"], row["test"]] for label, row in KNOWN["table11"].items()
    }


def test_labels_and_columns_are_the_schemes_and_the_softwares() -> None:
    names = set(load("cradle").category().names)
    assert set(recomputed_figures.support()) == names
    assert set(recomputed_figures.by_label("gpt")) == names
    assert set(recomputed_figures.published()["table_12"]["blocked"]) <= names
    assert recomputed_figures.published()["metrics"] == list(SCORES)


def test_sums_are_spec_1_5s() -> None:
    rows = recomputed_figures.published()["table_11"]["labels"].values()
    assert [sum(row[i] for row in rows) for i in range(4)] == [4649, 3257, 443, 670]
    agreed = recomputed_figures.published()["table_5"]
    assert [sum(counts.values()) for counts in agreed.values()] == [4287, 600]
    assert sum(recomputed_figures.refused("gemini").values()) == 21
    assert recomputed_figures.refused("gpt") == {}


@pytest.mark.parametrize("key", KEYS)
def test_counts_follow_from_the_tables_that_print_rates(key: str) -> None:
    known = KNOWN["reconstructed"][SPELLED[key]]
    counts = known.get("counts_tp_fp_fn") or known["counts_tp_fp_fn_valid586"]
    assert recomputed_figures.counts(key) == {label: tuple(values) for label, values in counts.items()}
    assert recomputed_figures.exact_hits(key) == known["exact_hits"]


@pytest.mark.parametrize("key", KEYS)
def test_table_4_follows_from_the_counts_to_its_rounding(key: str) -> None:
    # Jaccard is the mean over posts, which counts of labels do not give (SPEC 26)
    again = recomputed_figures.recomputed(key)
    printed = {name: f"{value:.4f}" for name, value in recomputed_figures.row_4(key).items() if name != "jaccard"}
    assert {name: f"{value:.4f}" for name, value in again.items()} == printed


def test_both_rows_of_table_12_follow_from_one_set_of_counts() -> None:
    table = recomputed_figures.published()["table_12"]
    for row, whole in ((table["valid"], False), (table["all"], True)):
        again = recomputed_figures.recomputed("gemini", whole=whole)
        printed = dict(zip(SCORES, row, strict=True))
        assert {name: f"{value:.4f}" for name, value in again.items()} == {
            name: f"{value:.4f}" for name, value in printed.items() if name != "jaccard"
        }


# ------------------------------------------------------------------ our runs in the paper's form


def test_a_recipe_that_is_not_the_paper_s_is_named_in_its_row(scored: dict[str, Any]) -> None:
    models = scored["tasks"]["labels"]["models"]
    key = next(iter(recomputed_figures.names()))
    reduced = {**models, key: models[key] | {"deviations": ["base in 4 bits (nf4)"]}}
    changed = {**scored, "tasks": {"labels": {**scored["tasks"]["labels"], "models": reduced}}}
    told = {row[1] for row in cradle_tables.table_4(changed).rows} - {
        row[1] for row in cradle_tables.table_4(scored).rows
    }
    assert told == {f"ours: {key}; not the paper's recipe: base in 4 bits (nf4)"}


def test_refusals_by_label_are_the_only_ones_that_fit(scored: dict[str, Any]) -> None:
    sheet = crisis_parts.refusals(
        cradle_tables.task_of(scored),
        paper={"paper": recomputed_figures.refused("gemini")},
        carried=recomputed_figures.support(),
    )
    assert sheet is not None
    assert sheet.columns == ("Label", "paper", "gemini")
    for _, paper, ours in sheet.rows:
        assert ours.split(" [")[0] == paper
    assert {row[0]: row[1] for row in sheet.rows}["rape_past"] == "7/62 (11.3%)"


def test_severity_of_the_papers_models_is_that_of_runs_with_their_counts(scored: dict[str, Any]) -> None:
    task = cradle_tables.task_of(scored)
    assert task is not None
    ours = {row[0]: row[1:] for row in next(crisis_parts.severity(task)).rows}
    severities = load("cradle").category().severities
    theirs = {key: recomputed_figures.severity_recall(key, severities=severities) for key in KEYS}
    paper = {row[0]: row[1:] for row in crisis_parts.published_severity(theirs).rows}
    assert ours.keys() == paper.keys() == set(KEYS)
    for key, row in paper.items():
        assert tuple(cell.split(" [")[0] for cell in ours[key]) == row
    # computed manually from T13 to T16: 3 x 49 of 54, 2 x 200 of 221, 1 x 173 of 209
    assert paper["gpt"] == ("88.6", "49/54 (90.7%)", "200/221 (90.5%)", "173/209 (82.8%)")


def tuned(scored: dict[str, Any]) -> dict[str, Any]:
    """Return metrics with one run told to be another's tuning: gpt's answers are those of a tuned qwen3-14b."""
    task = scored["tasks"]["labels"]
    models = {name: task["models"][name] for name in ("gpt", "claude", "qwen3-14b-zero")}
    origin = {"source": "finetuned", "untuned": "qwen3-14b-zero"}
    models["qwen3-14b-unanimous"] = {**models.pop("gpt"), **origin, "name": "qwen3-14b", "subset": "unanimous"}
    models["mine-gold"] = {**models.pop("claude"), **origin, "untuned": None, "name": "mine", "subset": "gold"}
    pair = next(p for p in task["pairs"] if {p["a"], p["b"]} == {"gpt", "qwen3-14b-zero"})
    pairs = [{**pair, "a": "qwen3-14b-unanimous", "b": "qwen3-14b-zero"}]
    return {**scored, "tasks": {"labels": {**task, "models": models, "pairs": pairs}}}


def test_table_8_prints_changes_and_what_the_paper_misprints(scored: dict[str, Any]) -> None:
    sheet = cradle_tables.table_8(tuned(scored))
    rows = [row for row in sheet.rows if row[0] == "Qwen3-14B, unanimous"]
    assert [row[1] for row in rows] == ["paper", "ours"]
    assert rows[0][2:8] == (
        "75.00 (+3.33)", "77.70 (+3.56)", "77.15 (+3.59)", "64.76 (+1.72)", "75.82 (+3.13)", "60.53 (+0.05)",
    )  # fmt: skip
    assert rows[1][5] == "81.63 (+18.59)" and rows[1][8] != "–"  # GPT-5's row of Table 4 less Qwen3-14B's
    (mine,) = [row for row in sheet.rows if row[0] == "mine-gold"]
    assert mine[2] == f"{100 * 493 / 600:.2f}"  # without a base there is no change
    assert mine[8] == "–"
    again = {row[0]: row[2:8] for row in sheet.rows if row[1] == "recomputed"}
    # SPEC 1.6
    assert again == {
        "Qwen2.5-72B-Instruct, consensus": (
            "75.67 (+5.67)", "78.91 (+2.88)", "78.99 (+2.62)", "70.35 (+2.44)", "79.70 (-0.60)", "70.46 (-3.49)",
        ),
        "Qwen2.5-72B-Instruct, unanimous": (
            "75.67 (+5.67)", "78.87 (+2.84)", "78.90 (+2.53)", "69.96 (+2.05)", "79.55 (-0.75)", "69.71 (-4.24)",
        ),
    }  # fmt: skip


def test_tables_5_and_11_stand_beside_our_silver(scored: dict[str, Any]) -> None:
    agreement = {"train": {"unanimous": 3, "consensus": 1, "none": 1}, "dev": {"unanimous": 9}}
    train = label_tables.Distribution.of([frozenset({"rape_past", "selfharm_past"}), frozenset({"rape_past"})]).plain()
    silver = {
        "members": ["a", "b", "c"],
        "agreement": agreement,
        "agreement_paper": agreement,
        "distributions": {"train_consensus": train},
    }
    sheet = cradle_tables.table_5(silver)
    assert sheet.columns == ("Agreement", "Train, paper", "Train, ours", "Test, paper")
    assert sheet.rows[0] == ("All three agree", "3,058 (71.3%)", "3 (60.0%)", "411 (68.5%)")
    assert sheet.rows[-1] == ("Total count", "4,287", "5", "600")
    rows = {row[0]: row[1:] for row in cradle_tables.table_11(scored, silver=silver).rows}
    assert rows["rape_past"] == ("352", "2", "248", "–", "34", "–", "62", "62")  # gold of test alone
    assert {row[7] for row in rows.values()} == {row[6] for row in rows.values()}
    assert cradle_tables.table_5().rows[-1] == ("Total count", "4,287", "600")


def test_our_recipes_are_the_papers() -> None:
    rows = {
        row["setting"]: row["paper"] for row in recomputed_figures.published()["table_f"]["rows"] if "setting" in row
    }
    for i, key in enumerate(recomputed_figures.published()["table_f"]["columns"]):
        ours = PARAMS.models[key].model_dump()
        assert ours["tuning"] == rows["tuning"][i].lower()
        for setting in ("rank", "alpha", "dropout", "accumulation", "max_length", "learning_rate", "epochs"):
            paper = rows[setting][i]
            assert ours[setting] == (float(paper) if paper else None), (key, setting)


def test_without_runs_only_the_paper_is_shown() -> None:
    sheets = [
        cradle_tables.table_4(), cradle_tables.table_4_again(), cradle_tables.table_5(), cradle_tables.table_8(),
        cradle_tables.table_12(), *cradle_tables.tables_13_to_16(), cradle_tables.table_11(), cradle_tables.settings(),
    ]  # fmt: skip
    for sheet in sheets:
        assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    assert len(by_name(cradle_tables.table_4(), whose="paper")) == 16
    for _, hits, *cells in cradle_tables.table_4_again().rows:
        assert cells[::2] == cells[1::2]
        assert hits.split("/")[1] in ("586", "600")


def test_what_drawings_need_are_fractions() -> None:
    assert recomputed_figures.macro_f1()["gpt"] == 0.8163
    assert recomputed_figures.macro_f1()["llama-70b-consensus"] == pytest.approx(0.6955)
    assert recomputed_figures.label_f1("gpt")["rape_ongoing"] == 0.815
    assert recomputed_figures.label_f1("tiny-consensus") == {}


# ------------------------------------------------------------------ the paper's discrepancies, computed again


def short(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def wilson(hits: int, n: int = 600) -> tuple[float, float]:
    found = binomtest(hits, n).proportion_ci(method="wilson")
    return found.low, found.high


def test_the_ensembles_lead_is_not_tested() -> None:
    text = said("Abstract", claim="significantly", paper="cradle")
    hits = [recomputed_figures.exact_hits(key) for key in ("cradle", "claude")]
    assert f"{hits[0]} of 600" in text
    assert f"alone {hits[1]}" in text
    (low, high), (other_low, other_high) = map(wilson, hits)
    assert low < other_high
    for low_end, high_end in ((low, high), (other_low, other_high)):
        assert f"[{short(low_end, 3)}, {short(high_end, 3)}]" in text
    assert f"14 and 0 would be p = {short(binomtest(0, 14).pvalue, 4)}" in text
    assert f"30 and 16 p = {short(binomtest(16, 46).pvalue, 3)}" in text


def test_subsets_cannot_be_told_apart() -> None:
    text = said("Section 5.3", claim="subset", paper="cradle")
    rows = {(key, subset): cells for key, subset, _, _, *cells in recomputed_figures.published()["table_8"]["rows"]}
    for key in ("qwen3-14b", "llama-70b", "qwen2-72b"):
        hits = [round(6 * rows[key, subset][0][0]) for subset in ("consensus", "unanimous")]
        assert str(hits[0]) in text
        assert str(hits[1]) in text
        (low, high), (other_low, other_high) = map(wilson, hits)
        assert max(low, other_low) < min(high, other_high)


def test_one_tuned_llama_is_not_alone_above_80() -> None:
    text = said("Section 5.3", claim="exceed 80", paper="cradle")
    (twin,) = [
        row for row in recomputed_figures.published()["table_8"]["rows"] if row[:2] == ["llama-70b", "unanimous"]
    ]
    values = {figure: cell[0] for figure, cell in zip(SCORES, twin[4:], strict=True)}
    shown = [values[figure] for figure in ("micro_f1", "micro_recall", "jaccard")]
    assert min(shown) > 80
    assert "({:.2f}, {:.2f} and {:.2f})".format(*shown) in text
    open_source = [key for key, _, family, *_ in recomputed_figures.published()["table_4"]["rows"][:12]]
    above = [recomputed_figures.row_4(key)["micro_recall"] for key in open_source]
    above = [100 * value for value in above if value > 0.8]
    assert "({:.2f}, {:.2f} and {:.2f})".format(*above) in text


def test_geminis_recall_is_not_the_strongest_over_all_posts() -> None:
    text = said("Section 4.2", claim="Gemini", paper="cradle")
    whole = dict(zip(SCORES, recomputed_figures.published()["table_12"]["all"], strict=True))
    for figure in ("micro_recall", "macro_recall"):
        assert whole[figure] < recomputed_figures.row_4("gpt")[figure]
        assert short(whole[figure], 4) in text
        assert short(recomputed_figures.row_4("gpt")[figure], 4) in text
    assert whole["micro_recall"] < recomputed_figures.row_4("claude")["micro_recall"]
    assert whole["macro_recall"] > recomputed_figures.row_4("claude")["macro_recall"]


def test_what_was_blocked_is_sexual_violence() -> None:
    text = said("Appendix D", claim="blocked", paper="cradle")
    kinds = load("cradle").category().attributes
    lost = list(chain.from_iterable([label] * n for label, n in recomputed_figures.refused("gemini").items()))
    violent = [label for label in lost if kinds[label]["type"] in ("rape", "sexual_harassment", "child_abuse")]
    past = [label for label in violent if kinds[label]["time"] == "past"]
    assert f"set of {len(lost)} labels" in text
    assert f"{len(violent)} of them" in text
    assert f"({len(past)} of the past)" in text
    assert not [x for x in lost if kinds[x]["type"] in ("suicide_ideation", "self_harm", "domestic_violence")]


def test_recall_falls_for_more_than_llama() -> None:
    text = said("Limitations", claim="recall", paper="cradle")
    rows = {(key, subset): cells for key, subset, _, _, *cells in recomputed_figures.published()["table_8"]["rows"]}
    for key in ("llama-70b", "qwen2-72b"):
        for subset in ("consensus", "unanimous"):
            base = 100 * recomputed_figures.row_4(f"{key}-zero")["macro_recall"]
            assert f"{base - rows[key, subset][5][0]:.2f}" in text


def test_misprinted_changes_are_named() -> None:
    text = said("Table 8", claim="Changes", paper="cradle")
    wrong = 0
    for _, _, _, base, *cells in recomputed_figures.published()["table_8"]["rows"]:
        for (value, printed), figure in zip(cells, SCORES, strict=True):
            right = round(value - 100 * recomputed_figures.row_4(base)[figure], 2)
            if right != printed:
                wrong += 1
                assert f"{printed:+.2f}" in text
                assert f"{right:+.2f}" in text
    assert wrong == 5
    assert "Five of the twelve" in text


def test_shares_of_table_11_are_rounded_up() -> None:
    text = said("Table 11", claim="percent", paper="cradle")
    for label in ("rape_past", "domesticviolence_past"):
        n = recomputed_figures.published()["table_11"]["labels"][label][2]
        assert str(n) in text
        assert label_tables.percent(n, 443) in text
        assert f"{KNOWN['table11'][label]['pct']['dev']:.2f}" in text
        assert label_tables.percent(n, 443) != f"{KNOWN['table11'][label]['pct']['dev']:.2f}"


def test_our_runs_bear_on_the_claims(scored: dict[str, Any]) -> None:
    found = parts.bearing(scored)
    assert set(found) == {"ensemble", "refusals", "child"}
    assert found["ensemble"].startswith("cradle is exactly right for 84.5 [")
    assert "claude for 82.2 [" in found["ensemble"]
    assert "McNemar p" in found["ensemble"]
    assert found["refusals"].startswith("gemini, 14 not answered: macro-recall 90.6 [")
    assert found["child"].startswith("cradle: childabuse_endangerment_ongoing: precision 66.7 [")
    both = tuned(scored)
    models = both["tasks"]["labels"]["models"]
    origin = {"name": "qwen3-14b", "subset": "consensus"}
    models["qwen3-14b-consensus"] = {**models["mine-gold"], **origin}
    text = parts.bearing(both)["subsets"]
    assert re.match(r"qwen3-14b: macro-F1 77\.5 \[[^]]+\] \(consensus\), 81\.6 \[[^]]+\] \(unanimous\)\.$", text)
