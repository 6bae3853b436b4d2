"""The stage on posts: tuned and untuned models, dev beside test, the prompt's examples, cost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.errors import BadParams
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from tests.evaluate.posts_runs import TASK, Sets, gold_of, write_gold, write_run
from tests.refusals import refused

REPO = Path(__file__).resolve().parents[2]
PARAMS = load_params(REPO)
FEW = Sampling(resamples=50, seed=1)
ACTIVE = "suicideideation_active_ongoing"
NO = frozenset({"no_crisis"})
SPENT = {"records": 48, "seconds": 12.0, "input_tokens": 4800, "output_tokens": 480, "cost": 0.6}


def params_of(**finetune: Any) -> Params:
    values = PARAMS.model_dump()
    models = {
        "tiny": {**values["models"]["qwen3-14b"], "base": "tiny:qwen3", "optimizer": "adamw8bit"},
        "tiny-zero": {**values["models"]["qwen3-14b-zero"], "base": "tiny:qwen3"},
    }
    tuned = {**values["finetune"], "recall_floors": {}, **finetune}
    return PARAMS.model_validate({**values, "models": {**values["models"], **models}, "finetune": tuned})


@pytest.fixture
def gold(tmp_path: Path) -> dict[str, Sets]:
    """Write 30 posts of test and 32 of dev, of which the first two stand in the prompt; train has silver alone."""
    written = {"test": gold_of("test", n=30), "dev": gold_of("dev", n=32)}
    write_gold(tmp_path, written, examples=frozenset({"dev000", "dev001"}))
    return written


def none_of(sets: dict[str, Sets]) -> dict[str, Sets]:
    return {split: dict.fromkeys(records, NO) for split, records in sets.items()}


def scored(root: Path, **finetune: Any) -> dict[str, Any]:
    metrics = evaluate.run("posts", params=params_of(**finetune), root=root, sampling=FEW)
    text = (root / "metrics" / "posts" / "evaluate.json").read_text()
    assert json.loads(text) == metrics
    assert "test0" not in text and "dev0" not in text
    assert list(metrics["tasks"]) == ["labels"]
    return metrics


def test_tuned_and_untuned_models_stand_beside_one_another(tmp_path: Path, gold: dict[str, Sets]) -> None:
    write_run(tmp_path, "finetuned/consensus/tiny", gold, spent=SPENT)
    write_run(tmp_path, "finetuned/unanimous/gone", none_of(gold))
    write_run(tmp_path, "untuned/tiny-zero", none_of(gold), lost={"test002": "malformed"})
    metrics = scored(tmp_path)
    assert (metrics["scheme"], metrics["decoding"]) == ("cradle", {})
    assert metrics["settings"]["category"] == "labels"
    task = metrics["tasks"]["labels"]
    assert (task["n"], task["left_out"], task["best"]) == (30, 0, "tiny-consensus")
    tuned, gone, zero = (task["models"][name] for name in ("tiny-consensus", "gone-unanimous", "tiny-zero"))
    keys = ("kind", "source", "name", "subset", "base", "untuned")
    assert [tuned[k] for k in keys] == ["sft", "finetuned", "tiny", "consensus", "tiny:qwen3", "tiny-zero"]
    assert [gone[k] for k in keys] == [None, "finetuned", "gone", "unanimous", None, None]
    assert [zero[k] for k in keys] == ["local", "untuned", "tiny-zero", None, "tiny:qwen3", None]
    assert (tuned["deviations"], zero["deviations"]) == (["AdamW in 8 bits"], [])
    figures = tuned["valid"]["figures"]
    for name in ("exact", "jaccard", "micro_f1", "micro_recall", "micro_precision", "severity_recall"):
        assert figures[name]["mean"] == 1
    # seven labels of fifteen occur
    assert figures["macro_recall"]["mean"] == figures["macro_f1"]["mean"] == pytest.approx(7 / 15)
    assert zero["all"]["figures"]["exact"]["mean"] == pytest.approx(10 / 30)
    assert zero["valid"]["figures"]["exact"]["mean"] == pytest.approx(10 / 29)
    assert zero["crises"]["refusals"][ACTIVE]["outcomes"] == {"malformed": 1}
    assert zero["crises"]["severity"]["missed"]["rate"] == 1
    assert [pair["a"] for pair in task["pairs"]] == ["gone-unanimous", "gone-unanimous", "tiny-consensus"]
    assert (zero["spent"], zero["calibration"], zero["floors"]) == (None, None, {})
    assert tuned["spent"] == {**SPENT, "cost_per_1000": 12.5, "seconds_per_record": 0.25}


def test_severity_weighs_what_is_lost(tmp_path: Path, gold: dict[str, Sets]) -> None:
    without = {r: labels - {ACTIVE} or labels for r, labels in gold["test"].items()}
    write_run(tmp_path, "untuned/without", {"test": without})
    found = scored(tmp_path)["tasks"]["labels"]["models"]["without"]["all"]["figures"]
    # five times each: active ongoing 3, self-harm past 1 and ongoing 2, rape and child abuse past 1 and 1, passive 2
    assert found["severity_recall"]["mean"] == pytest.approx(7 / 10)
    assert found["micro_recall"]["mean"] == pytest.approx(35 / 40)


def test_dev_is_shown_beside_test_without_the_prompts_examples(tmp_path: Path, gold: dict[str, Sets]) -> None:
    wrong = {**gold, "dev": {**gold["dev"], "dev000": frozenset({"rape_ongoing"}), "dev002": NO}}
    write_run(tmp_path, "untuned/tiny-zero", wrong)
    write_run(tmp_path, "untuned/other", {"test": gold["test"]})
    metrics = scored(tmp_path)
    models = metrics["tasks"]["labels"]["models"]
    dev = models["tiny-zero"]["dev"]
    assert dev["n"] == 30
    assert dev["by_seed"]["7"]["all"]["figures"]["exact"] == pytest.approx(29 / 30)
    assert models["other"]["dev"] is None
    assert models["tiny-zero"]["valid"]["figures"]["exact"]["mean"] == 1
    # they are gold all the same (CRADLE T11)
    assert metrics["items"] == {"dev": 32, "test": 30}
    assert metrics["composition"]["dev"]["labels"]["selfharm_ongoing"] == 6


def test_baselines_know_dev_where_train_has_no_gold(tmp_path: Path, gold: dict[str, Sets]) -> None:
    task = scored(tmp_path)["tasks"]["labels"]
    assert task["baselines_from"] == "dev"
    assert task["baselines"]["majority_set"]["figures"]["exact"] == pytest.approx(10 / 30)
    assert task["baselines"]["majority"]["figures"]["exact"] == 0
    write_gold(tmp_path, {**gold, "train": dict.fromkeys(["a", "b"], frozenset({"selfharm_ongoing"}))})
    task = scored(tmp_path)["tasks"]["labels"]
    assert task["baselines_from"] == "train"
    assert task["baselines"]["majority_set"]["labels"]["selfharm_ongoing"]["recall"] == 1


def test_probabilities_are_checked_for_what_they_mean(tmp_path: Path, gold: dict[str, Sets]) -> None:
    sure = {
        r: [0.9 if label in labels else 0.1 for label in TASK.labels]
        for sets in gold.values()
        for r, labels in sets.items()
    }
    write_run(tmp_path, "untuned/sure", gold, scores=sure)
    found = scored(tmp_path, recall_floors={ACTIVE: 0.9})["tasks"]["labels"]["models"]["sure"]
    assert found["calibration"]["n"] == 30
    assert found["calibration"]["ece"] == pytest.approx(0.1, abs=1e-6)
    assert found["calibration"]["brier"] == pytest.approx(0.01, abs=1e-6)
    floor = found["floors"][ACTIVE]
    alert = floor["alert"]
    assert (floor["recall"]["count"], alert["dev"]["positives"], alert["dev"]["guarantee"]) == (5, 5, False)
    assert alert["dev"]["threshold"] == pytest.approx(0.9)
    assert alert["recall"]["rate"] == alert["precision"]["rate"] == 1
    assert alert["alert_rate"]["rate"] == pytest.approx(5 / 30)


def test_a_floor_of_no_label_is_refused(tmp_path: Path, gold: dict[str, Sets]) -> None:
    with pytest.raises(BadParams, match="suicide"):
        scored(tmp_path, recall_floors={"suicide": 0.9})
    assert scored(tmp_path, recall_floors={"suicide": 0.0})["tasks"]["labels"]["n"] == 30
    assert scored(tmp_path, recall_floors={"suicide": 0.9}, category="other")["tasks"]["labels"]["n"] == 30


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([0.5], "one probability for each"),
        ([1.5] * 15, "one probability"),
        ([float("nan")] * 15, "one"),
        (None, "rows name split dev"),
    ],
)
def test_scores_that_are_no_probabilities_and_another_split_are_refused(
    tmp_path: Path, gold: dict[str, Sets], scores: list[float] | None, why: str
) -> None:
    said = gold if scores else {"dev": gold["test"]}
    write_run(tmp_path, "untuned/odd", said, scores={"test003": scores} if scores else None)
    with refused("BadPredictions", match=why):
        scored(tmp_path)


UNTIMED = {name: value for name, value in SPENT.items() if name != "seconds"}
ODD = ({"cost": None}, {"records": -1}, {"cost": True}, {"seconds": float("inf")})


@pytest.mark.parametrize("spent", ["{", [], UNTIMED, *(SPENT | odd for odd in ODD)])
def test_amounts_that_are_none_are_refused(tmp_path: Path, gold: dict[str, Sets], spent: Any) -> None:
    write_run(tmp_path, "untuned/votes", gold, spent=spent)
    with refused("BadSpent", match=r"spent\.json"):
        scored(tmp_path)


def test_an_own_scheme_is_scored_on_what_it_has(tmp_path: Path) -> None:
    classes = ["Supportive", "Indicator", "Ideation", "Behavior", "Attempt"]
    people = {f"person{i:02d}": frozenset({classes[i % 5]}) for i in range(20)}
    write_gold(tmp_path, {"test": people}, category="severity")
    said = {"test": dict.fromkeys(people, frozenset({"Ideation"}))}
    write_run(tmp_path, "finetuned/gold/m", said, task="severity")
    values = params_of(category="severity").model_dump()
    values["corpora"]["posts"]["scheme"] = "cssrs"
    metrics = evaluate.run("posts", params=PARAMS.model_validate(values), root=tmp_path, sampling=FEW)
    task = metrics["tasks"]["severity"]
    assert (task["kind"], task["ordinal"], task["n"]) == ("single", True, 20)
    model = task["models"]["m-gold"]
    assert model["crises"] is None
    assert model["valid"]["figures"]["macro_recall"]["mean"] == pytest.approx(1 / 5)
    assert model["valid"]["figures"]["severity_recall"]["mean"] == pytest.approx(2 / 10)
    assert "micro_f1" not in model["valid"]["figures"] and model["valid"]["figures"]["mae"]["mean"] == 1.2
