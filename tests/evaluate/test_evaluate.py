"""The stage: what it reads, what it refuses, and that nothing of an item gets out."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import load as load_params
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import report
from pipelines.operate import status
from pipelines.registry.packaging import card
from tests.annotate.round_manifest import write_manifest
from tests.contexts import context_of
from tests.evaluate import printed
from tests.evaluate.figsim_runs import SCHEME, Sets, paper_gold, paper_test, write_gold, write_run
from tests.refusals import refused
from tests.small_corpus import full, write_table

REVIEW = {
    **{"corpus": "memes", "protocol": "figsim", "phase": "review", "scheme": "figsim", "overlap": 0, "annotators": []},
    **{"agreement": False, "splits": ["test"], "draw": "disagreement", "against": ["gpt", "claude"]},
    "status": "adjudicating",
}
PARAMS = load_params(Path(__file__).resolve().parents[2])
FEW = Sampling(resamples=50, seed=1)
WISH = frozenset({"Wish to be dead"})


@pytest.fixture
def truth(tmp_path: Path) -> Sets:
    """Write the paper's gold, and return what models should say of severity in the test split."""
    split, gold = paper_gold()
    write_gold(tmp_path, split, gold)
    return paper_test(gold, split, "severity")


def measured(root: Path) -> dict[str, Any]:
    return evaluate.run(context_of("memes", params=PARAMS, root=root), sampling=FEW)


def test_metrics_are_written_and_hold_no_item(tmp_path: Path, truth: Sets) -> None:
    lost = dict.fromkeys(list(truth)[:3], "refused")
    write_run(tmp_path, "severity", "bert", 1, truth)
    write_run(tmp_path, "severity", "other", 1, dict.fromkeys(truth, WISH), source="prompted", outcomes=lost)
    metrics = measured(tmp_path)
    text = (tmp_path / "metrics" / "memes" / "evaluate.json").read_text()
    assert json.loads(text) == metrics
    assert not any(record in text for record, _ in truth)
    severity = metrics["tasks"]["severity"]
    assert severity["best"] == "bert"
    assert (severity["models"]["bert"]["kind"], severity["models"]["other"]["kind"]) == ("text", None)
    assert severity["models"]["other"]["outcomes"] == {"refused": 3, "vote": 205}
    assert severity["models"]["other"]["by_seed"]["1"]["n_valid"] == 205
    assert [(pair["a"], pair["b"]) for pair in severity["pairs"]] == [("bert", "other")]
    assert metrics["tasks"]["related"]["models"] == {}


def test_scores_are_stated_without_the_items_of_a_review(tmp_path: Path, truth: Sets) -> None:
    items = list(truth)
    wrong = {item: WISH for item in items[:20] if truth[item] != WISH}
    write_run(tmp_path, "severity", "bert", 1, {**truth, **wrong})
    assert "unflagged" not in measured(tmp_path)["tasks"]["severity"]["models"]["bert"], "there was no review"
    folder = write_manifest(tmp_path, "review", **REVIEW)
    rows = [
        full("assignments", record_id=record, image=image, annotator="a", round="review", batch=0, position=n)
        for n, (record, image) in enumerate([*wrong, items[30]])
    ]
    write_table(folder / "assignments.parquet", rows, name="assignments")
    model = measured(tmp_path)["tasks"]["severity"]["models"]["bert"]
    assert model["unflagged"]["n"] == len(items) - len(wrong) - 1
    assert model["unflagged"]["by_seed"]["1"]["valid"]["figures"]["exact"] == 1
    exact = model["by_seed"]["1"]["valid"]["figures"]["exact"]
    assert exact == pytest.approx(1 - len(wrong) / len(items))
    [sheet] = printed.results("figsim", measured(tmp_path)).sheets("review")
    assert sheet.rows[0][:3] == ("bert", "208", str(207 - len(wrong)))
    assert sheet.rows[0][3:6] == (f"{100 * exact:.1f}", "100.0", f"{100 * (1 - exact):+.1f}")


def test_without_any_run_there_is_gold_and_a_baseline(tmp_path: Path, truth: Sets) -> None:
    metrics = measured(tmp_path)
    severity = metrics["tasks"]["severity"]
    assert (severity["n"], severity["best"], severity["pairs"]) == (208, None, [])
    assert severity["baselines"]["majority"]["figures"]["exact"] == pytest.approx(66 / 208)


def test_rows_of_other_splits_count_nowhere(tmp_path: Path, truth: Sets) -> None:
    write_run(tmp_path, "severity", "bert", 1, truth)
    before = measured(tmp_path)
    validation = {(f"validation-{i:04d}", 0): WISH for i in range(208)}
    write_run(tmp_path, "severity", "bert", 1, validation, split="validation")
    after = measured(tmp_path)
    assert after["tasks"]["severity"]["models"]["bert"].pop("dev")["n"] == len(validation)
    assert before["tasks"]["severity"]["models"]["bert"].pop("dev") is None
    assert after == before


def test_what_no_run_knows_is_left_out_and_what_one_lacks_is_missing(tmp_path: Path, truth: Sets) -> None:
    items = list(truth)
    write_run(tmp_path, "severity", "bert", 1, {item: truth[item] for item in items[2:]})
    write_run(tmp_path, "severity", "vit", 1, {item: truth[item] for item in items[5:]})
    severity = measured(tmp_path)["tasks"]["severity"]
    assert (severity["n"], severity["left_out"]) == (206, 2)
    assert severity["models"]["vit"]["outcomes"] == {"missing": 3, "vote": 203}
    assert severity["models"]["vit"]["valid"]["figures"]["exact"]["mean"] == 1
    assert severity["models"]["vit"]["all"]["figures"]["exact"]["mean"] == pytest.approx(203 / 206)


def test_items_never_asked_about_are_left_out_and_refusals_are_not(tmp_path: Path, truth: Sets) -> None:
    items = list(truth)
    lost = {items[0]: "abstained", items[1]: "refused"}
    write_run(tmp_path, "severity", "few", 1, truth, outcomes=lost, source="prompted")
    severity = measured(tmp_path)["tasks"]["severity"]
    assert (severity["n"], severity["left_out"]) == (207, 1)
    assert severity["models"]["few"]["outcomes"] == {"refused": 1, "vote": 206}


def test_a_model_that_answered_nothing_is_never_the_best(tmp_path: Path, truth: Sets) -> None:
    write_run(tmp_path, "severity", "bert", 1, truth, outcomes=dict.fromkeys(truth, "failed"))
    write_run(tmp_path, "severity", "vit", 1, dict.fromkeys(truth, WISH))
    severity = measured(tmp_path)["tasks"]["severity"]
    assert severity["models"]["bert"]["valid"] is None
    assert severity["best"] == "vit"


@pytest.mark.parametrize(
    ("item", "labels", "sources", "why"),
    [
        ("test", {"Suicide death"}, ["train"], "labels that are not in the task"),
        ("test", {"None", "Wish to be dead"}, ["train"], "exactly one"),
        ("test", set(), ["train"], "exactly one"),
        ("train-0001", WISH, ["train"], "another split"),
        ("test", WISH, ["train", "prompted"], "an item has two rows"),
    ],
)
def test_predictions_that_contradict_the_task_or_the_split_are_refused(
    tmp_path: Path, truth: Sets, item: str, labels: set[str], sources: list[str], why: str
) -> None:
    place = next(iter(truth)) if item == "test" else (item, 0)
    for source in sources:
        write_run(tmp_path, "severity", "bert", 1, {**truth, place: frozenset(labels)}, source=source)
    with refused("BadPredictions", match=why):
        measured(tmp_path)


def test_groups_are_those_of_the_split(tmp_path: Path, truth: Sets) -> None:
    write_run(tmp_path, "severity", "bert", 1, dict.fromkeys(truth, WISH))
    apart = measured(tmp_path)["tasks"]["severity"]["models"]["bert"]["all"]["figures"]["exact"]
    split, gold = paper_gold()
    write_gold(tmp_path, split, gold, groups=dict.fromkeys(truth, "one"))
    together = measured(tmp_path)["tasks"]["severity"]["models"]["bert"]["all"]["figures"]["exact"]
    assert apart["low"] < apart["mean"] < apart["high"]
    assert together["low"] == together["high"] == pytest.approx(together["mean"])


def test_composition_counts_the_empty_set_as_none() -> None:
    labels = {"figurative": {("a", 0): frozenset(), ("b", 0): frozenset({"None"}), ("c", 0): frozenset({"Metaphor"})}}
    items = labels["figurative"]
    gold = evaluate.EvaluationGold(dict.fromkeys(items, "train"), dict.fromkeys(items, "g"), labels)
    found = evaluate.composition(gold, scheme=SCHEME)["train"]["figurative"]
    assert found == {"Metaphor": 1, "Pun/Double meaning": 0, "Irony/sarcasm": 0, "None": 2}


def test_a_published_split_that_leaks_is_scored_twice_and_claims_are_leak_free(tmp_path: Path, truth: Sets) -> None:
    items = list(truth)
    known = {item: truth[item] if n < 60 else WISH for n, item in enumerate(items)}  # learnt by heart
    write_run(tmp_path, "severity", "bert", 1, known)
    write_run(tmp_path, "severity", "other", 1, dict.fromkeys(truth, WISH))
    before = measured(tmp_path)["tasks"]["severity"]
    assert "leaks" not in before and "leak_free" not in before["models"]["bert"]
    rows = [{"record_id": record, "image": image} for record, image in items[:60]]
    write_table(tmp_path / "snapshot/memes/split/leaks.parquet", rows, name="leaks")
    metrics = measured(tmp_path)
    severity = metrics["tasks"]["severity"]
    bert = severity["models"]["bert"]
    assert (severity["n"], severity["leaks"], bert["leak_free"]["n"]) == (208, 60, 148)
    assert bert["valid"] == before["models"]["bert"]["valid"], "as published"
    share = sum(truth[item] == WISH for item in items[60:]) / 148
    assert bert["leak_free"]["valid"]["figures"]["exact"]["mean"] == pytest.approx(share)
    assert severity["pairs"][0]["macro_f1"]["value"] == 0 != before["pairs"][0]["macro_f1"]["value"]
    [sheet] = printed.results("figsim", metrics).sheets("leak_free")
    cells = dict(zip(sheet.columns, next(row for row in sheet.rows if row[0] == "bert"), strict=True))
    exact = {name: cell.split()[0] for name, cell in cells.items() if name.startswith("Exact")}
    assert [*exact.values()] == [f"{100 * bert[x]['figures']['exact']['mean']:.1f}" for x in ("valid",)] + [
        f"{100 * share:.1f}"
    ]
    assert (cells["Items"], cells["Leak-free"]) == ("208", "148")
    mean = bert["leak_free"]["all"]["figures"]["macro_f1"]["mean"]
    given: dict[str, Any] = {"analysis": None, "agreement": None}
    source = {"subreddits": "r/a", "first_month": "2020-01", "last_month": "2020-02"}
    methods = " ".join(report.methods_paragraphs(metrics, scheme=SCHEME, source=source, **given))
    assert "severity: 60. Macro-F1 without them: bert (severity) " in methods
    [leaky, *_] = card.failures(bert, measured=severity, thing="meme", things="memes")
    assert leaky.startswith("60 memes") and leaky.endswith(f"148 are left; macro-F1 on them, leak-free: {mean:.2f}.")
    assert status._benchmark(severity)["bert, leak-free"]["mean"] == pytest.approx(mean)
    # a test that leaks as a whole has no claim at all
    rows = [{"record_id": record, "image": image} for record, image in items]
    write_table(tmp_path / "snapshot/memes/split/leaks.parquet", rows, name="leaks")
    severity = measured(tmp_path)["tasks"]["severity"]
    assert (severity["leaks"], severity["models"]["bert"]["leak_free"]["n"]) == (208, 0)
    assert severity["models"]["bert"]["leak_free"]["valid"] is None
