"""The Dags show the graph of the corpus, resolved again if a source changes; tasks import no pipelines."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dvc_airflow import settings as plugin
from dvc_airflow.graph import closure, graph, period, refreshes
from dvc_airflow.tasks import month_of, revised
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.operate.services.airflow_setup import parse_again
from pipelines.workspace import dag_graph, repository
from pipelines.workspace.clone import workspace
from tests.commands import output
from tests.doctor.small_airflow import small_airflow
from tests.plugins.handed import Handed
from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plugin, "HOME", tmp_path / "var")
    for name in ("dvc.yaml", "params.yaml", "catalogue.yaml", "rows.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    return tmp_path


def test_a_changed_dvc_yaml_is_seen(root: Path) -> None:
    assert graph(root, profile="sandbox")["sample@memes"].upstream == ("dedupe@memes",)
    (root / "dvc.yaml").write_text((root / "dvc.yaml").read_text().replace("Draw the items", "Draw a sample"))
    assert graph(root, profile="sandbox")["sample@memes"].desc.startswith("Draw a sample")
    assert len(list((root / "var" / "graph").iterdir())) == 2


def test_a_run_waits_for_what_it_reads_and_for_no_more(root: Path) -> None:
    stages = graph(root, profile="sandbox")
    assert stages["rationales@memes"].upstream == ("split@memes",)
    runs = [stage for stage in stages.values() if stage.step == "train"]
    assert runs
    for run in runs:
        corpus = "posts" if run.name.startswith("train@posts") else "memes"
        assert {f"{name}@{corpus}" for name in ("few_shot", "gold", "split")} <= {*run.upstream}
        assert not any(name.startswith(("rationales@", "predict@")) for name in run.upstream), "no tiny model reads any"


def test_models_are_scored_after_all_seeds_of_params_yaml(root: Path) -> None:
    stages = graph(root, profile=None)
    fitted = {
        f"posts-labels-{model}-{subset}-{seed}"
        for subset in ("unanimous", "consensus")
        for model in ("modernbert", "knn")
        for seed in (20251001, 20251002, 20251003)
    }
    assert {name for name in stages if name.startswith("train@posts")} == {f"train@{key}" for key in fitted}
    assert {f"predict@{key}" for key in fitted} <= set(stages["evaluate@posts"].upstream)
    assert f"train@{min(fitted)}" in stages[f"predict@{min(fitted)}"].upstream
    assert "silver@posts-offline" in stages["train@posts-labels-knn-consensus-20251002"].upstream


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
    assert month_of(Run(logical_date=datetime(2022, 12, 1, 1, tzinfo=timezone(timedelta(hours=2))))) == "2022-11"


def test_a_run_without_a_month_says_what_to_pass() -> None:
    with pytest.raises(AirflowFailException, match="memes_collect --partition-key"):
        month_of(Run())


def test_a_refresh_revises_the_month_that_it_names_or_skips() -> None:
    assert revised(Run(), Handed(revised="2022-11")) == "2022-11"
    with pytest.raises(AirflowSkipException):
        revised(Run(), Handed(revised=None))


def test_only_a_corpus_with_listings_is_refreshed_on_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    params = load(ROOT)
    sources = {"a": "dump", "b": "reddit", "c": ("dump", "reddit")}
    corpora = {name: params.corpora["posts"].model_copy(update={"source": source}) for name, source in sources.items()}
    params = params.model_copy(update={"corpora": corpora})
    schedules = {name: dag_graph._schedule(name, params) for name in corpora}
    monkeypatch.setattr("dvc_airflow.graph.resolved", lambda: {"refresh": schedules})
    assert [refreshes(name) for name in corpora] == [None, "17 * * * *", "17 * * * *"]


def test_no_task_imports_what_only_the_environment_of_commands_has() -> None:
    for path in (*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                assert not {"pipelines", "dvc"} & {name.split(".")[0] for name in names}, path.name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a new corpus with the sandbox's profile."""
    folder = tmp_path_factory.mktemp("corpus")
    code = checkout(folder / "code")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(folder / "home"))
        repository.init(Settings.from_env(), checkout=code, profile="sandbox")
    return folder / "home"


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setattr(plugin, "HOME", home)
    return Settings.from_env()


def trained() -> set[str]:
    return {stage.name for stage in graph().values() if stage.step == "train"}


def test_a_new_corpus_gives_the_dags_its_own_graph(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    written = (settings.home / "graph" / "corpus.json").read_bytes()
    # neither the checkout in which Airflow parses nor its profile matters, and nothing is resolved
    monkeypatch.setattr(plugin, "ROOT", settings.home / "nowhere")
    monkeypatch.setattr(plugin, "PYTHON", "false")
    assert "train@memes-severity-tiny-text-gold-1" in trained()
    assert (settings.home / "graph" / "corpus.json").read_bytes() == written


def test_a_changed_list_of_models_changes_the_tasks(settings: Settings) -> None:
    before = trained()
    told = output("params", "set", "train.rows.memes.models", "[tiny-text, tiny-image]", "--reason", "no fusion")
    assert "No Airflow was reached" in told
    assert trained() == {name for name in before if "tiny-fusion" not in name}
    ours = {name for name in trained() if name.startswith("train@memes")}
    assert {stage.name for stage in closure(graph(), targets=["report@memes"])} >= ours


def test_airflow_is_asked_to_parse_our_dags_only(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_again(settings.home, root=ROOT, environment={}) is None
    with small_airflow() as airflow:
        monkeypatch.setenv("CORPUS_AIRFLOW_URL", airflow.address)
        monkeypatch.setenv("CORPUS_AIRFLOW_PREFIX", "crisis_")
        names = {f"crisis_{path.stem}" for path in (ROOT / "dags").glob("*.py")}
        assert parse_again(settings.home, root=ROOT, environment={}) == len(names)
        assert set(airflow.parsed) == names


def test_a_commit_made_without_a_command_is_shown_after_a_refresh(settings: Settings) -> None:
    with workspace(settings) as clone:
        path = clone.path / "dvc.yaml"
        path.write_text(path.read_text().replace("Draw the items", "Draw a sample"))
        clone.commit("another description")
    assert graph()["sample@memes"].desc.startswith("Draw the items")
    assert output("airflow", "refresh").startswith("The graph has changed.")
    assert graph()["sample@memes"].desc.startswith("Draw a sample")
    assert output("airflow", "refresh").startswith("The graph is unchanged.")


def test_a_dag_that_is_newer_than_the_corpus_names_the_upgrade(settings: Settings) -> None:
    path = settings.home / "graph" / "corpus.json"
    text = path.read_text()
    found: dict[str, Any] = json.loads(text)
    found["stages"] = [stage for stage in found["stages"] if stage["name"] != "report@memes"]
    path.write_text(json.dumps(found))
    try:
        with pytest.raises(RuntimeError, match="corpus upgrade"):
            closure(graph(), targets=["report@memes"])
    finally:
        path.write_text(text)


def test_words_that_are_booleans_in_older_yaml_stay_words(settings: Settings) -> None:
    output("params", "set", "corpora.posts.subreddits", '[lonely, "no", yes]', "--reason", "three of them")
    found = json.loads((settings.home / "graph" / "corpus.json").read_text())
    assert found["corpora"]["posts"]["subreddits"] == ["lonely", "no", "yes"]


def test_a_graph_overwritten_meanwhile_is_written_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path, writes = settings.home / "graph" / "corpus.json", []
    present, write = path.read_text(), dag_graph.write

    def overtaken(path: Path, texts: Any) -> None:
        writes.append(1)
        write(path, texts | ({"params.yaml": texts["params.yaml"] + "\n# earlier"} if len(writes) == 1 else {}))

    path.unlink()
    monkeypatch.setattr(dag_graph, "write", overtaken)
    assert dag_graph.refresh(settings)
    assert (len(writes), path.read_text()) == (2, present)


def test_a_commit_counts_although_no_graph_is_written(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    folder = settings.home / "graph"
    folder.rename(settings.home / "kept")
    folder.write_text("not a folder")
    try:
        told = output("params", "set", "sample.memes.seed", "7", "--reason", "another draw")
    finally:
        folder.unlink()
        (settings.home / "kept").rename(folder)
    assert "sample.memes.seed" in told
    assert "corpus airflow refresh" in caplog.text
