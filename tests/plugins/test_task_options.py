"""A setting of the deployment that is wrong is refused while Dags are parsed, in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

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


@pytest.mark.parametrize("key", ["gaet", "promote.gaet", "promot.gate"])
def test_a_task_that_no_dag_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str) -> None:
    monkeypatch.setattr(settings, "TASKS", f"{{{key}: {{queue: gpu}}}}")
    monkeypatch.setattr(task_options, "graph", dict)
    with pytest.raises(task_options.BadTaskOptions, match=f"no Dag has a task '{key}'"):
        task_options.place({}, dag="promote")


def test_the_options_of_the_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of these tasks have the name of their Dag."""
    monkeypatch.setattr(settings, "TASKS", str(ROOT / "docker" / "tasks.yaml"))
    monkeypatch.setattr(task_options, "graph", dict)
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
