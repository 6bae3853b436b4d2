"""The Dags show the graph of the corpus: a parameter that a person sets there is enough to change their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dvc_airflow import settings as plugin
from dvc_airflow.graph import closure, graph
from pipelines.core.config.settings import Settings
from pipelines.operate.services.airflow_setup import parse_again
from pipelines.workspace import dag_graph, repository
from pipelines.workspace.clone import workspace
from tests.commands import output
from tests.doctor.small_airflow import small_airflow
from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[2]


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
    assert "train@memes-severity-tiny-text-1" in trained()
    assert (settings.home / "graph" / "corpus.json").read_bytes() == written


def test_a_changed_list_of_models_changes_the_tasks(settings: Settings) -> None:
    before = trained()
    told = output("params", "set", "train.models", "[tiny-text, tiny-image]", "--reason", "no fusion")
    assert "No Airflow was reached" in told
    assert trained() == {name for name in before if "tiny-fusion" not in name}
    assert {stage.name for stage in closure(graph(), targets=["report@memes"])} >= trained()


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
        path.write_text(path.read_text().replace("Draw a seeded sample", "Draw a sample"))
        clone.commit("another description")
    assert graph()["sample@memes"].desc.startswith("Draw a seeded sample")
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
