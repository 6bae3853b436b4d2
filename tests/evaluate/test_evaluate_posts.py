"""The stage on posts: tuned and untuned models, dev beside test, the prompt's examples, cost, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core import rows
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.evaluate import evaluate, inputs
from pipelines.evaluate.model_scores import Sampling
from pipelines.models.prediction import Spent
from pipelines.store.table_files import Contract
from tests.contexts import context_of
from tests.evaluate.posts_runs import Sets, gold_of, write_gold, write_run
from tests.refusals import refused

REPO = Path(__file__).resolve().parents[2]
PARAMS = load_params(REPO)
FEW = Sampling(resamples=50, seed=1)
ACTIVE = "suicideideation_active_ongoing"
NO = frozenset({"no_crisis"})
SPENT = {"records": 48, "seconds": 12.0, "input_tokens": 4800, "output_tokens": 480, "cost": 0.6}


def params_of() -> Params:
    values = PARAMS.model_dump()
    models = {
        "tiny": {**values["models"]["qwen3-14b"], "base": "tiny:qwen3", "optimizer": "adamw8bit"},
        "tiny-zero": {**values["models"]["qwen3-14b-zero"], "base": "tiny:qwen3"},
    }
    return PARAMS.model_validate({**values, "models": {**values["models"], **models}})


@pytest.fixture
def gold(tmp_path: Path) -> dict[str, Sets]:
    """Write 30 posts of test and 32 of dev, of which the first two stand in the prompt; train has silver alone."""
    written = {"test": gold_of("test", n=30), "dev": gold_of("dev", n=32)}
    write_gold(tmp_path, written, examples=frozenset({"dev000", "dev001"}))
    return written


def none_of(sets: dict[str, Sets]) -> dict[str, Sets]:
    return {split: dict.fromkeys(records, NO) for split, records in sets.items()}


def scored(root: Path) -> dict[str, Any]:
    metrics = evaluate.run(context_of("posts", params=params_of(), root=root), sampling=FEW)
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
    own = metrics["settings"]
    assert (own["mode"], own["epochs"], own["accumulation"]) == (["improved"], [3], [128])
    task = metrics["tasks"]["labels"]
    assert (task["n"], task["left_out"], task["best"]) == (30, 0, "tiny-consensus")
    tuned, gone, zero = (task["models"][name] for name in ("tiny-consensus", "gone-unanimous", "tiny-zero"))
    keys = ("kind", "source", "name", "subset", "base", "untuned")
    assert [tuned[k] for k in keys] == ["sft", "fitted", "tiny", "consensus", "tiny:qwen3", "tiny-zero"]
    assert [gone[k] for k in keys] == [None, "fitted", "gone", "unanimous", None, None]
    assert [zero[k] for k in keys] == ["local", "asked", "tiny-zero", None, "tiny:qwen3", None]
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
    assert (zero["spent"], zero["calibration"]) == (None, None)
    assert {label: floor["alert"] for label, floor in zero["floors"].items()} == {
        ACTIVE: None,
        "selfharm_ongoing": None,
    }
    assert tuned["spent"] == {**SPENT, "cost_per_1000": 12.5, "seconds_per_record": 0.25}


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
    tmp_path: Path, gold: dict[str, Sets], scores: list[float] | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a file that nothing here wrote
    monkeypatch.setattr(Contract, "require", lambda *_, **__: None)
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
    values = params_of().model_dump()
    values["corpora"]["posts"]["scheme"] = "cssrs"
    metrics = evaluate.run(context_of("posts", params=PARAMS.model_validate(values), root=tmp_path), sampling=FEW)
    task = metrics["tasks"]["severity"]
    assert (task["kind"], task["ordinal"], task["n"]) == ("single", True, 20)
    model = task["models"]["m"]
    assert model["crises"] is None
    assert model["valid"]["figures"]["macro_recall"]["mean"] == pytest.approx(1 / 5)
    assert model["valid"]["figures"]["severity_recall"]["mean"] == pytest.approx(2 / 10)
    assert "micro_f1" not in model["valid"]["figures"] and model["valid"]["figures"]["mae"]["mean"] == 1.2


def test_of_untuned_models_of_one_base_the_first_by_name_counts_and_an_encoder_has_none(tmp_path: Path) -> None:
    values = PARAMS.model_dump()
    models = {**values["models"], "also-zero": values["models"]["qwen3-14b-zero"]}
    params = PARAMS.model_validate({**values, "models": models})
    tuned = [f"finetuned/consensus/{model}" for model in ("qwen3-14b", "modernbert")]
    for place in (*tuned, "untuned/qwen3-14b-zero", "untuned/also-zero"):
        write_run(tmp_path, place, {"test": gold_of("test", n=2)})
    answers = rows.read(tmp_path).answers.values()
    folder = tmp_path / "snapshot" / "posts" / "predictions"
    origins = inputs.read_predictions(folder, answers=answers, params=params).origins
    names = ("qwen3-14b-consensus", "also-zero", "modernbert-consensus")
    assert [origins[name].untuned for name in names] == ["also-zero", None, None]


def test_runs_of_one_model_add_up(tmp_path: Path) -> None:
    for task in ("labels", "other"):
        folder = write_run(tmp_path, "untuned/gpt", {"test": gold_of("test", n=2)}, spent=SPENT, task=task).parent
    found = inputs.read_predictions(folder, answers=rows.read(tmp_path).answers.values(), params=PARAMS).spent["gpt"]
    assert (found["records"], found["seconds"], found["cost"], found["output_tokens"]) == (96, 24, 1.2, 960)
    assert found["seconds_per_record"] == 0.25


@pytest.mark.parametrize(
    ("parts", "costs", "seconds"),
    [
        ([{}, {"seconds": None}], 12.5, None),  # time is unknown where a part of it is
        ([{"records": 0, "seconds": 0.0, "cost": 0.0}], None, None),
    ],
)
def test_unknown_time_and_nothing_asked_have_no_rates(parts: list[Any], costs: Any, seconds: Any) -> None:
    found = inputs.total([Spent(**(SPENT | part)) for part in parts])
    assert (found["cost_per_1000"], found["seconds_per_record"]) == (costs, seconds)
