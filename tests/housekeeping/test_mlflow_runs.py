"""Old MLflow runs go, with their files, unless a version, a decision, a release or published metrics name them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.registry import mlflow_pages
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.takedown import expiry
from pipelines.train.classifiers.train import EXPERIMENT
from pipelines.workspace.clone import workspace
from tests import mlflow_database, mlflow_server
from tests.commands import answered
from tests.privacy import used_corpus as used

NAME = "crisis-memes-severity"
OLD = datetime.now(UTC) - timedelta(days=400)
DAYS = timedelta(days=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus that was used, with an empty MLflow database that its commands open as a file."""
    settings = used.copy_with_params(tmp_path / "home")
    address = mlflow_database.place(settings.home)
    monkeypatch.setenv("CORPUS_HOME", str(settings.home))
    monkeypatch.setenv("CORPUS_SECRET", used.SECRET)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "CORPUS_AIRFLOW_DATABASE_URL", "AIRFLOW_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return settings.home


@pytest.fixture
def served(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same behind an MLflow server that stores the files of runs for its clients."""
    with mlflow_server.serving(home, files=home / "mlflow") as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        yield address


def registry() -> Registry:
    return Registry.open(Settings.from_env())


def run_of(experiment: str, *, at: datetime = OLD, status: str = "FINISHED", **tags: str) -> str:
    """Make a run of that time, with a file of weights; return its id."""
    client = registry().client
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    moment = int(at.timestamp() * 1000)
    run_id = str(client.create_run(place, start_time=moment, tags=tags).info.run_id)
    client.log_text(run_id, "weights " * 100, "model/weights.safetensors")
    if status != "RUNNING":
        client.set_terminated(run_id, status, end_time=moment)
    return run_id


def stage(run_id: str) -> str:
    """Return ``active``, ``deleted`` or ``gone``."""
    with closing(sqlite3.connect(Settings.from_env().home / "mlflow.sqlite")) as connection:
        found = connection.execute("SELECT lifecycle_stage FROM runs WHERE run_uuid = ?", [run_id]).fetchone()
    return found[0] if found else "gone"


def trashed_for(days: int) -> None:
    """Let all deleted runs be in the trash for so long."""
    then = int((datetime.now(UTC) - days * DAYS).timestamp() * 1000)
    with closing(sqlite3.connect(Settings.from_env().home / "mlflow.sqlite")) as connection, connection:
        connection.execute("UPDATE runs SET deleted_time = ? WHERE lifecycle_stage = 'deleted'", [then])


def housekeeping(*options: str) -> dict[str, Any]:
    return dict(answered("housekeeping", *options)["mlflow"])


def champion() -> str:
    """Register a version of an old run, and make it champion, with both decisions on record; return the run's id."""
    run_id = run_of("memes-registry", name=NAME)
    opened = registry()
    source = f"{opened.client.get_run(run_id).info.artifact_uri}/model"
    version = opened.add(NAME, source=source, run_id=run_id, tags={})
    given: dict[str, Any] = {"who": "ada", "why": "better on the frozen test"}
    with Journal.of(Settings.from_env()) as journal:
        journal.append(NAME, event="registered", to_version=version.version, metrics={"run": run_id}, **given)
        journal.append(NAME, event="promoted", to_version=version.version, **given)
    opened.point(NAME, "champion", version.version)
    return run_id


def named_by_a_promotion() -> str:
    """Return a training run that only the record of a promotion names, not the registry."""
    run_id = run_of(EXPERIMENT.format(corpus="memes"))
    with Journal.of(Settings.from_env()) as journal:
        given: dict[str, Any] = {"metrics": {"trained": {"run": run_id}}, "who": "ada", "why": "better"}
        journal.append(NAME, event="promoted", to_version=1, **given)
    return run_id


def test_a_run_goes_unless_something_on_record_names_it(home: Path) -> None:
    kept = {"champion": champion(), "promotion record": named_by_a_promotion()}
    kept["metrics"] = run_of(EXPERIMENT.format(corpus="memes"))
    settings = Settings.from_env()
    with workspace(settings) as clone:
        (clone.path / "metrics" / "memes").mkdir(parents=True, exist_ok=True)
        (clone.path / "metrics" / "memes" / "train.json").write_text(json.dumps({"weights": {"run": kept["metrics"]}}))
        clone.commit("trained", paths=["metrics"])
        released = git_head = clone.head
    (home / "releases" / "first").mkdir(parents=True)
    (home / "releases" / "first" / "release.json").write_text(json.dumps({"commit": git_head}))
    numbers = mlflow_pages.experiment("memes")
    kept["release"] = run_of(numbers, data_commit=released)
    for number in range(mlflow_pages.SEARCHED):
        kept[f"newest numbers {number}"] = run_of(numbers, at=OLD + (number + 1) * DAYS)
    kept["young"] = run_of(EXPERIMENT.format(corpus="memes"), at=OLD + 100 * DAYS)
    kept["unfinished"] = run_of(EXPERIMENT.format(corpus="memes"), status="RUNNING")
    kept["of another project"] = run_of("elsewhere")
    gone = {
        "failed": run_of(EXPERIMENT.format(corpus="memes"), status="FAILED"),
        "numbers": run_of(numbers, at=OLD - DAYS),
    }
    found = housekeeping("--dry-run")
    assert found["deleted"] == len(gone) and found["collected"] == 0 and found["kept_on_record"] == 4
    assert {stage(run) for run in {**kept, **gone}.values()} == {"active"}, "a dry run changes nothing"

    assert housekeeping("--yes")["deleted"] == len(gone)
    assert {name: stage(run) for name, run in kept.items()} == dict.fromkeys(kept, "active")
    assert {name: stage(run) for name, run in gone.items()} == dict.fromkeys(gone, "deleted")
    assert housekeeping("--yes")["deleted"] == 0, "a second time changes nothing"

    # a person may have deleted runs on record, too
    for name in ("champion", "promotion record"):
        registry().client.delete_run(kept[name])
    trashed_for(29)
    assert housekeeping("--yes")["collected"] == 0
    trashed_for(31)
    done = housekeeping("--yes")
    assert done["collected"] == len(gone) and done["bytes"] == len(gone) * len("weights " * 100)
    assert {name: stage(run) for name, run in gone.items()} == dict.fromkeys(gone, "gone")
    assert stage(kept["champion"]) == stage(kept["promotion record"]) == "deleted"
    assert registry().alias(NAME, "champion") == 1
    registry().client.restore_run(kept["champion"])
    assert registry().client.download_artifacts(kept["champion"], "model/weights.safetensors")


def test_files_of_runs_in_the_trash_are_found_by_a_takedown(home: Path) -> None:
    run_id = run_of(EXPERIMENT.format(corpus="memes"))
    registry().client.delete_run(run_id)
    found = [run.info.run_id for run in registry().runs(EXPERIMENT.format(corpus="memes"))]
    assert found == [run_id]
    registry().run_files(run_id).delete_artifacts(expiry.WEIGHTS)
    assert not list(registry().client.list_artifacts(run_id, expiry.WEIGHTS))


@pytest.mark.faults
def test_old_traces_of_labelling_go(home: Path) -> None:
    import mlflow
    from mlflow.entities import SpanType

    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    place = mlflow.set_experiment("labelling").experiment_id
    for at in (OLD, datetime.now(UTC)):
        moment = int(at.timestamp() * 1_000_000_000)
        span = mlflow.start_span_no_context("votes", SpanType.CHAIN, experiment_id=place, start_time_ns=moment)
        span.end(end_time_ns=moment + 1)
    mlflow.flush_trace_async_logging()
    assert housekeeping("--dry-run")["traces"] == 1
    assert housekeeping("--yes")["traces"] == 1
    assert len(registry().client.search_traces(locations=[place])) == 1
    assert housekeeping("--yes")["traces"] == 0


@pytest.mark.faults
def test_behind_a_server_files_go_and_the_champion_stays(served: str, home: Path) -> None:
    kept, gone = champion(), run_of(EXPERIMENT.format(corpus="memes"))
    assert any((home / "mlflow").rglob(f"{gone}/**/weights.safetensors"))
    assert housekeeping("--yes")["deleted"] == 1
    trashed_for(31)
    assert housekeeping("--yes") | {"kept_on_record": 1} == {
        "deleted": 0, "collected": 1, "bytes": len("weights " * 100), "traces": 0, "kept_on_record": 1,
    }  # fmt: skip
    assert (stage(gone), stage(kept)) == ("gone", "active")
    assert not any((home / "mlflow").rglob(f"{gone}/**/weights.safetensors"))
    assert any((home / "mlflow").rglob(f"{kept}/**/weights.safetensors"))
