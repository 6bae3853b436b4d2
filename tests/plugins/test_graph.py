"""The resolved graph equals DVC's own, is cached, and is resolved again when one of its sources changes."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dvc_airflow import settings
from dvc_airflow.graph import Stage, closure, graph, period

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "HOME", tmp_path / "var")
    for name in ("dvc.yaml", "params.yaml", "catalogue.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    return tmp_path


def test_a_changed_dvc_yaml_is_seen(root: Path) -> None:
    before = graph(root, profile="sandbox")
    assert before["sample@memes"].upstream == ("dedupe@memes",)
    text = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(text.replace("Draw a seeded sample", "Draw a sample"))
    assert graph(root, profile="sandbox")["sample@memes"].desc.startswith("Draw a sample")
    assert len(list((root / "var" / "graph").iterdir())) == 2


def test_every_run_waits_for_the_remarks_and_these_for_no_gold(root: Path) -> None:
    stages = graph(root, profile="sandbox")
    assert stages["rationales@memes"].upstream == ("split@memes",)
    runs = [stage for stage in stages.values() if stage.step == "train"]
    assert runs
    assert all(stage.upstream == ("gold@memes", "rationales@memes", "split@memes") for stage in runs)


def test_models_are_scored_after_their_repeats_with_the_seeds_of_params_yaml(root: Path) -> None:
    stages = graph(root, profile=None)
    repeats = {name for name in stages if name.startswith("repeats@")}
    assert repeats == {
        f"repeats@posts-{subset}-{model}-{seed}"
        for subset in ("unanimous", "consensus")
        for model in ("modernbert", "knn")
        for seed in (20251002, 20251003)
    }
    assert repeats <= set(stages["evaluate@posts"].upstream)
    assert "silver@posts-offline" in stages["repeats@posts-consensus-knn-20251002"].upstream


def test_a_graph_that_dvc_refuses_says_why(root: Path) -> None:
    (root / "dvc.yaml").write_text("stages: {broken: {cmd: x, deps: ['${nowhere}']}}\n")
    with pytest.raises(RuntimeError, match="nowhere"):
        graph(root, profile=None)


def test_task_ids_are_the_steps_names() -> None:
    def named(name: str) -> str:
        return Stage(name=name, desc="", upstream=()).task_id

    assert named("split@memes") == "split"
    assert named("train@memes-severity-bert-0") == "train__severity-bert-0"


def test_a_month_runs_on_the_first_day_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = {"memes": {"first_month": "2018-04", "last_month": "2022-12"}}
    monkeypatch.setattr("dvc_airflow.graph.resolved", lambda: {"corpora": corpora})
    assert period("memes") == (datetime(2018, 4, 1, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC))
    corpora["memes"]["last_month"] = ""
    assert period("memes")[1] is None


def test_closure_takes_what_is_upstream_first() -> None:
    stages = {n: Stage(n, "", up) for n, up in {"a": (), "b": ("a",), "c": ("b",), "d": ()}.items()}
    assert [s.name for s in closure(stages, targets=["c"])] == ["a", "b", "c"]
