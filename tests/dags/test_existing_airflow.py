"""The Dags in an Airflow that also runs other projects: a prefix, the deployment's own pools and queues, a notifier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dags.test_dags import EXPECTED, parse

PREFIX = "crisis_"
TASKS = """
"*": {queue: corpus}
gate: {queue: gpu-large, pool: shared-gpu, executor_config: {pod_template_file: /etc/gpu.yaml}}
label: {queue: internet}
memes_benchmark.train: {queue: a100, timeout_minutes: 90, pool_slots: 2}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def parsed(home: Path) -> dict[str, Any]:
    (home / "tasks.yaml").write_text(TASKS)
    notify = json.dumps({"path": "team_alerts.Notifier", "kwargs": {"to": "a-secret-address"}})
    more = {"PREFIX": PREFIX, "TASKS": str(home / "tasks.yaml"), "NOTIFY": notify, "SWEEP_HOURS": "6"}
    found = parse(home, **{f"CORPUS_AIRFLOW_{name}": value for name, value in more.items()})
    assert found["errors"] == {}
    return found


@pytest.fixture(scope="module")
def dags(parsed: dict[str, Any]) -> dict[str, Any]:
    return dict(parsed["dags"])


def names_of_assets(value: Any) -> Iterator[str]:
    """Yield the name of every asset and asset alias in a serialized Dag."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and "group" in value:
            yield value["name"]
        for inner in value.values():
            yield from names_of_assets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_of_assets(inner)


def test_every_name_has_the_prefix(dags: dict[str, Any]) -> None:
    assert set(dags) == {PREFIX + name for name in EXPECTED}
    assets: set[str] = set()
    for dag in dags.values():
        assets |= {*names_of_assets(dag["serialized"])}
        tasks = dag["tasks"].values()
        found = {*dag["tags"], *(task["pool"] for task in tasks), *(name for task in tasks for name in task["outlets"])}
        assert all(name.startswith(PREFIX) for name in found - {"default_pool", "shared-gpu"})
    assert {f"{PREFIX}memes/dataset", f"{PREFIX}gold/memes", f"{PREFIX}model"} <= assets
    assert all(name.startswith(PREFIX) for name in assets)


def test_commands_in_the_documentation_have_the_prefix(dags: dict[str, Any]) -> None:
    assert "airflow dags trigger crisis_promote --conf" in dags["crisis_promote"]["doc"]
    assert "--dag-id crisis_memes_collect" in dags["crisis_memes_collect"]["doc"]


def test_tasks_are_placed_by_the_deployment(dags: dict[str, Any]) -> None:
    gate = dags["crisis_promote"]["tasks"]["gate"]
    assert (gate["queue"], gate["pool"]) == ("gpu-large", "shared-gpu")
    assert gate["executor_config"] == {"pod_template_file": "/etc/gpu.yaml"}
    train = next(t for name, t in dags["crisis_memes_benchmark"]["tasks"].items() if name.startswith("train__"))
    assert (train["queue"], train["pool"], train["slots"], train["timeout"]) == ("a100", "crisis_gpu", 2, 5400)
    # mapped over labellers and shards
    label = [task for name, task in dags["crisis_posts_label"]["tasks"].items() if name.startswith("label__")]
    assert label and all(task["queue"] == "internet" for task in label)


def test_other_tasks_go_to_the_queue_of_all(dags: dict[str, Any]) -> None:
    tasks = dags["crisis_posts_finetune"]["tasks"]
    assert tasks["register"]["queue"] == tasks["pin"]["queue"] == "corpus"
    tuned = [task for name, task in tasks.items() if name.startswith("finetune__")]
    assert tuned and all(task["queue"] == "gpu" for task in tuned), "a queue of dvc.yaml is kept"


def test_every_dag_calls_the_notifier_and_stores_no_argument_of_it(dags: dict[str, Any]) -> None:
    assert all(dag["callback"] for dag in dags.values())
    assert "a-secret-address" not in json.dumps(dags)
    assert "team_alerts" not in json.dumps(dags)


def test_a_wrong_setting_is_an_import_error_of_one_sentence(home: Path) -> None:
    errors = parse(home, CORPUS_AIRFLOW_TASKS="{gaet: {queue: gpu}}")["errors"]
    assert len(errors) == len(EXPECTED)
    for text in errors.values():
        assert text.strip().splitlines()[-1].endswith("CORPUS_AIRFLOW_TASKS: no Dag has a task 'gaet'.")
