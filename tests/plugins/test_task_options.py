"""A wrong setting is refused while Dags are parsed; people are notified of failed or late runs, with ids only."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from dvc_airflow import notify, settings, task_options

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{gate: {que: gpu}}", "CORPUS_AIRFLOW_TASKS, gate: 'que' is not an option of a task; choose from"),
        ("{gate: {pool_slots: two}}", "CORPUS_AIRFLOW_TASKS, gate: pool_slots needs a value of type int."),
        ("{gate: {retries: true}}", "CORPUS_AIRFLOW_TASKS, gate: retries needs a value of type int."),
        ("{gate: gpu}", "CORPUS_AIRFLOW_TASKS, gate: a task needs a mapping of options"),
        ("{gate: {executor_config: {pod_override: {}}}}", "use pod_template_file in executor_config."),
        ("/nowhere/tasks.yaml", "CORPUS_AIRFLOW_TASKS: the file cannot be read (FileNotFoundError)."),
        ("{gate: ", "CORPUS_AIRFLOW_TASKS: the value is neither JSON nor the path of a YAML file."),
    ],
)
def test_wrong_options_of_tasks(monkeypatch: pytest.MonkeyPatch, given: str, sentence: str) -> None:
    monkeypatch.setattr(settings, "TASKS", given)
    monkeypatch.setattr(task_options, "_known", lambda *_, **__: None)
    with pytest.raises(task_options.BadTaskOptions) as caught:
        task_options.place({"gate": object()}, dag="promote")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("key", ["gaet", "promote.gaet", "promot.gate", "meems_benchmark.gate"])
def test_a_task_that_no_dag_has(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(settings, "TASKS", f"{{{key}: {{queue: gpu}}}}")
    monkeypatch.setattr(task_options, "graph", dict)
    monkeypatch.setattr(task_options, "listed", lambda _: ["memes"])
    with pytest.raises(task_options.BadTaskOptions, match=f"no Dag has a task '{key}'"):
        task_options.place({}, dag="promote")


def test_the_options_of_the_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of these tasks have the name of their Dag."""
    monkeypatch.setattr(settings, "TASKS", str(ROOT / "docker" / "tasks.yaml"))
    monkeypatch.setattr(task_options, "graph", dict)
    monkeypatch.setattr(task_options, "listed", lambda _: ["memes"])
    fetch = SimpleNamespace(partial_kwargs=None)
    task_options.place({"deliver": fetch}, dag="deliver")
    assert fetch.queue == "internet"


@pytest.mark.parametrize(
    "given", ["alerts", '{"path": "a.b", "url": "x"}', '{"path": "a.b"', '{"path": "a.b", "kwargs": 1}']
)
def test_a_wrong_notifier(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(settings, "NOTIFY", given)
    with pytest.raises(notify.BadNotifier, match=r"^CORPUS_AIRFLOW_NOTIFY: "):
        notify.target()


@pytest.mark.parametrize(("name", "value"), [("PREFIX", "my corpus"), ("SWEEP_HOURS", "soon"), ("MONTH_HOURS", "a")])
def test_a_wrong_variable(name: str, value: str) -> None:
    environment = {**os.environ, f"CORPUS_AIRFLOW_{name}": value, "PYTHONPATH": str(ROOT / "plugins")}
    argv = [sys.executable, "-c", "import dvc_airflow.settings"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1].startswith(f"ValueError: CORPUS_AIRFLOW_{name} ")


SENT: list[dict[str, Any]] = []


def keep(facts: dict[str, Any], *, channel: str) -> None:
    SENT.append({**facts, "channel": channel})


class Notifier(BaseNotifier):
    """A notifier as providers have them: its text is a template."""

    template_fields = ("text",)

    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        SENT.append({"text": self.text})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setitem(__import__("sys").modules, "team_alerts", SimpleNamespace(keep=keep, Notifier=Notifier))


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **kwargs: str) -> None:
    monkeypatch.setattr(settings, "NOTIFY", json.dumps({"path": f"team_alerts.{name}", "kwargs": kwargs}))


def failed_run() -> dict[str, Any]:
    """A context as the Dag processor hands over, with values that must not be sent."""
    return {
        "dag": SimpleNamespace(dag_id="deletion_sweep"),
        "run_id": "scheduled__1",
        "reason": "task_failure",
        "dag_run": SimpleNamespace(partition_key=None, conf={"request": "private"}),
        "ti": SimpleNamespace(task_id="swept"),
        "params": {"reason": "private"},
        "exception": ValueError("private"),
    }


def test_a_callable_gets_the_ids_of_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "keep", channel="alerts")
    notify.failed(failed_run())
    [facts] = SENT
    assert (facts["event"], facts["dag_id"], facts["run_id"]) == ("failed", "deletion_sweep", "scheduled__1")
    assert facts["text"] == "Run scheduled__1 of deletion_sweep failed at task swept."
    assert facts["channel"] == "alerts"
    assert "private" not in json.dumps(facts)


def test_a_notifiers_template_may_use_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "Notifier", text="{{ dag_id }}: {{ event }}")
    notify.failed(failed_run())
    assert SENT == [{"text": "deletion_sweep: failed"}]


def test_a_late_run_is_notified_of(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "keep", channel="alerts")
    run = {"dag_id": "memes_collect", "dag_run_id": "one", "partition_key": "2022-12", "conf": {"note": "private"}}
    asyncio.run(notify.late(context={"dag_run": run, "deadline": {}}))
    [facts] = SENT
    assert (facts["event"], facts["dag_id"], facts["partition_key"]) == ("late", "memes_collect", "2022-12")
    assert "private" not in json.dumps(facts)


def test_without_a_notifier_a_late_run_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(notify.late(context={"dag_run": {"dag_id": "memes_collect", "dag_run_id": "one"}}))
    assert SENT == []
    assert "Run one of memes_collect has not ended by its deadline." in caplog.text
