"""Where models come from, by the place of their tables; and what several runs of one took together."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.config.params import load
from pipelines.evaluate import inputs
from tests.evaluate.posts_runs import gold_of, write_run

PARAMS = load(Path(__file__).resolve().parents[2])
SPENT = {"records": 20, "seconds": 10.0, "input_tokens": 400, "output_tokens": 40, "cost": 0.5}


def test_the_place_of_a_table_says_whose_it_is(tmp_path: Path) -> None:
    said = {"test": gold_of("test", n=2)}
    for place in ("finetuned/consensus/modernbert", "finetuned/unanimous/modernbert", "untuned/gpt"):
        folder = write_run(tmp_path, place, said, spent=SPENT).parents[place.count("/")]
    found = inputs.read_predictions(folder, params=PARAMS)
    assert len(found.rows) == 6
    assert [(name, o.source, o.name, o.subset, o.kind) for name, o in found.origins.items()] == [
        ("modernbert-consensus", "finetuned", "modernbert", "consensus", "encoder"),
        ("modernbert-unanimous", "finetuned", "modernbert", "unanimous", "encoder"),
        ("gpt", "untuned", "gpt", None, "votes"),
    ]
    # an encoder has no untuned model to stand beside, whatever shares its lack of a base
    assert {o.untuned for o in found.origins.values()} == {None}
    assert found.spent["gpt"]["cost_per_1000"] == 25


def test_of_untuned_models_of_one_base_the_first_by_name_counts(tmp_path: Path) -> None:
    values = PARAMS.model_dump()
    models = {**values["models"], "also-zero": values["models"]["qwen3-14b-zero"]}
    params = PARAMS.model_validate({**values, "models": models})
    for place in ("finetuned/consensus/qwen3-14b", "untuned/qwen3-14b-zero", "untuned/also-zero"):
        write_run(tmp_path, place, {"test": gold_of("test", n=2)})
    origins = inputs.read_predictions(tmp_path / "snapshot" / "posts" / "predictions", params=params).origins
    assert origins["qwen3-14b-consensus"].untuned == "also-zero"
    assert origins["also-zero"].untuned is None


def test_without_any_table_there_is_nothing(tmp_path: Path) -> None:
    assert inputs.read_predictions(tmp_path, params=PARAMS) == inputs.Predictions([])


def test_runs_of_one_model_add_up(tmp_path: Path) -> None:
    said = {"test": gold_of("test", n=2)}
    first = write_run(tmp_path, "untuned/gpt", said, spent=SPENT)
    again = first / "again"
    again.mkdir()
    for name in ("predictions.parquet", "spent.json"):
        (again / name).write_bytes((first / name).read_bytes())
    found = inputs.read_predictions(first.parents[1], params=PARAMS).spent["gpt"]
    assert (found["records"], found["seconds"], found["cost"], found["output_tokens"]) == (40, 20, 1, 80)
    assert found["seconds_per_record"] == 0.5


def test_time_is_unknown_where_a_part_of_it_is() -> None:
    found = inputs.total([SPENT, {**SPENT, "seconds": None}])
    assert (found["seconds"], found["seconds_per_record"], found["cost_per_1000"]) == (None, None, 25)


def test_nothing_asked_costs_nothing_a_thousand() -> None:
    found = inputs.total([{**SPENT, "records": 0, "seconds": 0.0, "cost": 0.0}])
    assert (found["cost_per_1000"], found["seconds_per_record"]) == (None, None)
