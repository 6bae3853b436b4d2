"""Training runs in a real MLflow: one for a key, ended whatever happens, with nothing but numbers and weights."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.datasets.example import Example
from pipelines.models.fitting import tracking
from tests import mlflow_database

ROOT = Path(__file__).resolve().parents[2]
PARAMS = {"epochs": 2, "learning_rate": 0.01}
# Two training processes, as far as MLflow sees them: each logs an epoch, says so, and waits to be killed.
CHILDREN = """
import os, time
from mlflow import MlflowClient
from pipelines.core.config.settings import Settings
from pipelines.datasets.example import Example
from pipelines.models.fitting import tracking
key = "b" if os.fork() else "a"
with tracking.run(Settings.from_env(), experiment="memes", key=key, params={"a": 1}, tags={}) as log:
    log.metrics({"loss": 0.5}, step=1)
    os.write(1, f"{key} {os.getpid()} {log.run_id}\\n".encode())  # at once: both write to one pipe
    time.sleep(60)
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mlflow import MlflowClient

    address = mlflow_database.place(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    client = MlflowClient(tracking_uri=address)
    client.create_experiment("memes", artifact_location=str(tmp_path / "artifacts"))
    return client


def opened(key: str = "figurative-bert-1", **params: Any) -> Any:
    return tracking.run(
        Settings.from_env(), experiment="memes", key=key, params=params or PARAMS, tags={"data_commit": "abc"}
    )


def gone(pid: int) -> None:
    """Wait until a process that was killed is no longer: the kernel ends it some time after the signal was sent."""
    until = time.monotonic() + 30
    while not tracking._process(pid).endswith("-"):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.01)


def runs(client: Any) -> list[Any]:
    return list(client.search_runs([client.get_experiment_by_name("memes").experiment_id]))


def test_a_run_has_a_name_that_people_read_and_the_digests_of_its_data(client: Any) -> None:
    meme = Example(("a", 0), "train", "", None, frozenset(), "")
    splits = {"training": [meme, replace(meme, item=("b", 0))], "validation": [meme], "test": []}
    data = tracking.LoggedData("memes/severity", "c" * 40, splits)
    given: dict[str, Any] = {"experiment": "memes", "key": "severity-bert-1-ccc", "params": PARAMS, "tags": {}}
    for _ in range(2):
        # as by a retry of a run that was killed
        opening = tracking.run(Settings.from_env(), **given, name="bert on severity, seed 1", data=data)
        with pytest.raises(KeyboardInterrupt), opening:
            raise KeyboardInterrupt
    (run,) = runs(client)
    assert (run.info.run_name, run.data.tags["key"]) == ("bert on severity, seed 1", "severity-bert-1-ccc")
    shown = {one.tags[0].value: one.dataset for one in run.inputs.dataset_inputs}
    assert {context: (one.name, one.digest) for context, one in shown.items()} == {
        "training": ("memes/severity", hashlib.sha256(b"a\nb\n").hexdigest()[:32]),
        "validation": ("memes/severity", hashlib.sha256(b"a\n").hexdigest()[:32]),
    }
    assert json.loads(shown["training"].profile) == {"num_rows": 2}
    assert json.loads(shown["training"].source)["corpus_commit"] == "c" * 40


def test_a_run_has_its_numbers_and_no_file_and_is_finished(client: Any) -> None:
    with opened() as log:
        log.metrics({"loss": 0.7, "validation_macro_f1": 0.4}, step=1)
        log.metrics({"loss": 0.5, "validation_macro_f1": 0.6}, step=2)
    (run,) = runs(client)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"epochs": "2", "learning_rate": "0.01"}
    assert run.data.tags["data_commit"] == "abc"
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")] == [(1, 0.7), (2, 0.5)]
    assert client.list_artifacts(run.info.run_id) == []


def test_a_run_says_neither_who_nor_where(client: Any) -> None:
    with opened():
        pass
    (run,) = runs(client)
    told = " ".join([*run.data.tags, *run.data.tags.values(), *run.data.params.values()])
    assert os.uname().nodename not in told
    assert str(ROOT) not in told
    assert "mlflow.user" not in run.data.tags


@pytest.mark.parametrize(
    ("raised", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")]
)
def test_what_ends_the_block_ends_the_run(client: Any, raised: type[BaseException], status: str) -> None:
    with pytest.raises(raised), opened():
        raise raised
    assert [run.info.status for run in runs(client)] == [status]


def test_a_retry_goes_on_with_the_run_and_does_not_repeat_what_was_said(client: Any) -> None:
    with pytest.raises(ValueError, match="died"), opened() as first:
        first.metrics({"loss": 0.7, "other": 0.7}, step=1)
        raise ValueError("died")
    with opened() as second:
        second.metrics({"loss": 0.7}, step=1)
        second.metrics({"loss": 0.5}, step=2)
        second.metrics({"other": 0.6}, step=1)
    (run,) = runs(client)
    assert run.info.status == "FINISHED" and run.data.metrics["other"] == 0.6, "what a retry computes is believed"
    assert [m.step for m in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]


def test_another_key_or_other_parameters_or_what_has_finished_is_another_run(client: Any) -> None:
    asked = [("a", 1), ("a", 1), ("a", 2), ("b", 1)]
    for key, epochs in asked:
        with opened(key, epochs=epochs):
            pass
    assert sorted((r.data.tags["key"], int(r.data.params["epochs"])) for r in runs(client)) == asked
    assert {run.info.status for run in runs(client)} == {"FINISHED"}


def test_neither_sigterm_nor_sigkill_leaves_a_run_running(client: Any) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILDREN]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        told = {key: (int(pid), run) for key, pid, run in (process.stdout.readline().split() for _ in range(2))}
        (pid, killed), (_, terminated) = told["a"], told["b"]
        os.kill(pid, signal.SIGKILL)
        gone(pid)
        with opened("c"):
            assert client.get_run(killed).info.status == "KILLED"
            assert client.get_run(terminated).info.status == "RUNNING"
        process.terminate()
    assert process.returncode == tracking.TERMINATED
    assert client.get_run(terminated).info.status == "KILLED"
    with opened("a", a=1) as retry:
        assert retry.run_id == killed
    assert client.get_run(killed).info.status == "FINISHED"


def test_without_a_server_a_run_says_that_it_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    with opened() as log:
        log.metrics({"loss": 1.0}, step=1)
    assert log.run_id is None and not list(tmp_path.iterdir())


def test_a_server_that_is_gone_is_an_error_that_a_retry_may_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(tracking.TrackingUnavailable) as caught, opened():
        pass
    assert caught.value.exit_code == 75
