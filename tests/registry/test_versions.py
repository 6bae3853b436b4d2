"""Versions, files and aliases of a real MLflow server, asked over loopback."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST

from crisis_corpus.integrity import digest, listing
from crisis_corpus.versions import CHAMPION, DIGEST, RegistryUnavailable, UnknownVersion, Version
from crisis_corpus.versions import NAME as NAME_PATTERN
from pipelines.core.config.params import load as load_params
from pipelines.core.config.params import validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.registry.versions import CHALLENGER, Registry, entry
from tests.refusals import refused
from tests.registry.small_registry import NAME, REPO


@pytest.fixture(scope="module")
def logged(address: str, tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Log a model as a package is logged, and register it as its first version."""
    import mlflow

    pack = tmp_path_factory.mktemp("logged") / "pack"
    pack.mkdir()
    (pack / "files.json").write_text(json.dumps({}))
    mlflow.set_tracking_uri(address)
    script = str(Path(__file__).with_name("rule_model.py"))
    # its files go through the server; those of the default experiment lie where the database was made
    experiment = mlflow.create_experiment("posts")
    with mlflow.start_run(experiment_id=experiment) as run:
        info = mlflow.pyfunc.log_model(
            name="model", python_model=script, artifacts={"pack": str(pack)}, pip_requirements=[]
        )
    tags = {DIGEST: "d" * 64, "data_commit": "abc"}
    return Registry(address).add(NAME, source=info.model_uri, run_id=run.info.run_id, tags=tags)


def test_a_logged_model_is_registered_listed_and_fetched_whole(address: str, logged: Version, tmp_path: Path) -> None:
    registry = Registry(address)
    assert NAME in registry.names() and registry.versions(NAME) == [logged] and registry.versions("none") == []
    found = registry.version(NAME, 1)
    assert found == logged and found.tags["data_commit"] == "abc" and found.digest == "d" * 64 and found.run_id
    names = registry.files(logged)
    assert "artifacts/pack/files.json" in names and "MLmodel" in names and "rule_model.py" in names
    whole = registry.fetch(logged, to=tmp_path / "whole")
    assert sorted(listing(whole)) == names
    one = registry.fetch(logged, to=tmp_path / "one", path="artifacts/pack/files.json")
    assert one.read_text() == "{}"
    before = digest(whole)
    (whole / "registered_model_meta").write_text("written by MLflow itself")
    assert digest(whole) == before
    for change in ("MLmodel", "artifacts/pack/files.json", "new"):
        with (whole / change).open("a") as file:
            file.write(" ")
        assert digest(whole) != before
        before = digest(whole)


def test_an_alias_is_put_read_back_and_taken_away(address: str, logged: Version) -> None:
    registry = Registry(address)
    for wanted in (None, 1, 1, None, None):
        registry.point(NAME, CHAMPION, wanted)
        assert registry.alias(NAME) == wanted
    for name, version in ((NAME, 7), ("none", 1)):
        with pytest.raises(UnknownVersion):
            registry.point(name, CHAMPION, version)
        with pytest.raises(UnknownVersion):
            registry.version(name, version)
    assert registry.alias("none") is None
    registry.tag(logged, {"journal": "x"})
    assert registry.version(NAME, 1).tags["journal"] == "x"


def test_two_put_an_alias_for_the_first_time_at_once(
    address: str, logged: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's insert of the slower one breaks on the row of the faster one."""
    registry = Registry(address)
    put, failed = MlflowClient.set_registered_model_alias, []

    def slower(client: MlflowClient, *told: str) -> None:
        put(client, *told)
        if not failed:
            failed.append(told)
            raise MlflowException("UNIQUE constraint failed", error_code=BAD_REQUEST)

    monkeypatch.setattr(MlflowClient, "set_registered_model_alias", slower)
    registry.point(NAME, CHALLENGER, logged.version)
    assert failed
    assert registry.alias(NAME, CHALLENGER) == logged.version
    registry.point(NAME, CHALLENGER, None)


def test_what_is_not_there_is_said_without_mlflows_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with refused("NoRegistry"):
        Registry.open(Settings.from_env())
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RegistryUnavailable) as caught:
        Registry("http://127.0.0.1:9").versions(NAME)
    assert caught.value.exit_code == 75


def test_each_name_stands_for_a_corpus_and_a_task_of_the_parameters() -> None:
    params = load_params(REPO)
    assert [(of.corpus, of.task) for of in map(partial(entry, params=params), ("crisis-posts", NAME))] == [
        ("posts", "labels"),
        ("memes", "severity"),
    ]
    with refused("UnknownModel", match="meme-related"):
        entry("other", params=params)


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b", "it's", "a" * 65, "name\n", "nämé"])
def test_a_name_that_is_no_part_of_an_address_is_refused(name: str) -> None:
    assert not NAME_PATTERN.fullmatch(name)
    params = load_params(REPO).model_dump()
    params["registry"][name] = params["registry"]["crisis-posts"]
    with pytest.raises(BadParams, match="cannot be a model's name"):
        validate(params, where="params.yaml")
