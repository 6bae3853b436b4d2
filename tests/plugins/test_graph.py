"""The resolved graph is cached, and resolved again when a source changes; tasks import nothing of the pipelines."""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dvc_airflow import settings
from dvc_airflow.graph import graph, period, refreshes
from dvc_airflow.tasks import month_of, revised
from tests.plugins.handed import Handed

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


def test_a_month_runs_on_the_first_day_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = {"memes": {"first_month": "2018-04", "last_month": "2022-12"}}
    monkeypatch.setattr("dvc_airflow.graph.resolved", lambda: {"corpora": corpora})
    assert period("memes") == (datetime(2018, 4, 1, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC))
    corpora["memes"]["last_month"] = ""
    assert period("memes")[1] is None


@dataclass
class Run:
    partition_key: str | None = None
    logical_date: datetime | None = None
    dag_id: str = "memes_collect"


def test_a_run_of_either_kind_gives_its_month() -> None:
    assert month_of(Run(partition_key="2022-11")) == "2022-11"
    late = Run(logical_date=datetime(2022, 12, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert month_of(late) == "2022-11"


def test_a_run_without_a_month_says_what_to_pass() -> None:
    with pytest.raises(AirflowFailException, match="memes_collect --partition-key"):
        month_of(Run())


def test_a_refresh_revises_the_month_that_it_names_or_skips() -> None:
    assert revised(Run(), Handed(revised="2022-11")) == "2022-11"
    with pytest.raises(AirflowSkipException):
        revised(Run(), Handed(revised=None))


def test_only_a_corpus_with_listings_is_refreshed_on_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = {"a": {"source": "dump"}, "b": {"source": "reddit"}, "c": {"source": ["dump", "reddit"]}}
    monkeypatch.setattr("dvc_airflow.graph.resolved", lambda: {"corpora": corpora, "refresh": "17 * * * *"})
    assert [refreshes(name) for name in corpora] == [None, "17 * * * *", "17 * * * *"]
    # written by code of before
    monkeypatch.setattr("dvc_airflow.graph.resolved", lambda: {"corpora": corpora})
    assert refreshes("b") is None


def test_no_task_imports_what_only_the_environment_of_commands_has() -> None:
    for path in (*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                assert not {"pipelines", "dvc"} & {name.split(".")[0] for name in names}, path.name
