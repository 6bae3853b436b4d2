"""The Dags as Airflow sees them: parsed with its own DagBag, checked against this project's policy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.operate.backfill import CONSUMERS

ROOT = Path(__file__).resolve().parents[2]
OF_CORPUS = {
    "memes": "collect refresh dataset benchmark scoring",
    "posts": "collect refresh dataset label benchmark scoring",
}
EXPECTED = {path.stem for path in (ROOT / "dags").glob("*.py")} - {"corpora"}
EXPECTED |= {f"{corpus}_{kind}" for corpus, kinds in OF_CORPUS.items() for kind in kinds.split()}
HEAVY = "torch transformers mlflow dvc pipelines pandas numba praw rapidocr scipy pydantic_ai openai datasketch duckdb"
# What these tasks wait for: people between the tasks of a round, the gate before an approval, the edges of dvc.yaml.
UPSTREAM = """
annotation_round.pull: annotators
annotation_round.decide: agreement
annotation_round.close: adjudicate adjudicator decide review
annotation_round.pin: close
promote.approve: gate
promote.refused: gate
promote.promote: approve
promote.reject: approve
promote.deliver: promote reject
memes_benchmark.register: publish
posts_benchmark.register: publish
memes_dataset.sample: dedupe pin
memes_dataset.gold: dedupe pin sample
memes_dataset.split: dedupe gold pin sample
memes_dataset.quality: dedupe pin split
memes_dataset.publish: pin quality
deletion_sweep.takedown: sweep__memes sweep__posts
deletion_sweep.swept: sweep__memes sweep__posts
deletion_sweep.retrain__memes: takedown
deletion_sweep.retrain__posts: takedown
takedown.retrain__memes: takedown
takedown.retrain__posts: takedown
"""

# Collecting garbage takes a seventh of the time of the imports.
PARSE = """
import gc, json, sys
gc.disable()
from datetime import timedelta
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
before = set(sys.modules)
bag = DagBag(sys.argv[1])
dags = {
    dag_id: {
        "serialized": DagSerialization.to_dict(dag),
        "doc": dag.doc_md, "description": dag.description, "callback": bool(dag.on_failure_callback),
        "groups": sorted(group for group in dag.task_group.get_task_group_dict() if group),
        "tags": sorted(dag.tags),
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "tasks": {
            t.task_id: {
                "owner": t.owner, "retries": t.retries, "pool": t.pool, "doc": t.doc_md or t.python_callable.__doc__,
                "timeout": (t.execution_timeout or getattr(t, "response_timeout", None) or timedelta()).total_seconds(),
                "asks": getattr(t, "options", None), "defaults": getattr(t, "defaults", None),
                "policy": bool(t.retry_policy), "upstream": sorted(t.upstream_task_ids), "rule": t.trigger_rule.value,
                "queue": t.queue, "slots": t.pool_slots, "executor_config": t.executor_config,
                "outlets": [o.name for o in t.outlets],
            }
            for t in dag.tasks
        },
    }
    for dag_id, dag in bag.dags.items()
}
modules = sorted(set(sys.modules) - before)
print(json.dumps({"errors": bag.import_errors, "dags": dags, "modules": modules}, default=str))
"""


def parse(home: Path, **more: str) -> dict[str, Any]:
    """Parse ``dags/`` in a process of its own, as the Dag processor does."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "CORPUS_HOME": str(home / "var"),
        "CORPUS_PROFILE": "sandbox",
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(ROOT / "dags")], env=environment, capture_output=True, text=True, check=True
    )
    parsed: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return parsed


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def first(home: Path) -> dict[str, Any]:
    return parse(home)  # resolves the graph; every later parse only reads it


@pytest.fixture(scope="module")
def parsed(home: Path, first: dict[str, Any]) -> dict[str, Any]:
    return parse(home)


@pytest.fixture(scope="module")
def dags(parsed: dict[str, Any]) -> dict[str, Any]:
    return dict(parsed["dags"])


def tasks(dags: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(dag_id, task_id, task) for dag_id, dag in dags.items() for task_id, task in dag["tasks"].items()]


def test_every_dag_parses(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == EXPECTED, "a Dag has the name of its file, or of a corpus and a kind"


def test_parsing_loads_nothing_heavy(parsed: dict[str, Any]) -> None:
    loaded = {module.partition(".")[0] for module in parsed["modules"]}
    assert not loaded & set(HEAVY.split()), "move the import into the task; it costs seconds in every task otherwise"


def test_two_parses_are_alike(first: dict[str, Any], parsed: dict[str, Any]) -> None:
    for dag_id, dag in parsed["dags"].items():
        assert first["dags"][dag_id]["serialized"] == dag["serialized"], f"{dag_id} changes from parse to parse"


def test_every_dag_has_a_description(dags: dict[str, Any]) -> None:
    for dag_id, dag in dags.items():
        assert dag["doc"] and dag_id in dag["doc"], f"{dag_id}: set doc_md=__doc__ and name the Dag in it"
        assert 0 < len(dag["description"] or "") <= 120, f"{dag_id}: begin the docstring with a short sentence"
        assert dag["tags"], f"{dag_id}: give it tags"
        assert dag["catchup"] is False, f"{dag_id}: catchup=False; years come by airflow backfill create"
        assert dag["max_active_runs"] <= 2, f"{dag_id}: bound max_active_runs"


def test_every_task_has_an_owner_retries_and_a_timeout(dags: dict[str, Any]) -> None:
    for dag_id, task_id, task in tasks(dags):
        where = f"{dag_id}.{task_id}"
        assert task["owner"] == "corpus", f"{where}: use DEFAULT_ARGS"
        assert task["retries"] >= 1, f"{where}: a network or a worker may fail; give it a retry"
        assert task["timeout"], f"{where}: set execution_timeout (timeout_minutes in profiles/tasks.json for a stage)"
        assert task["policy"], f"{where}: use DEFAULT_ARGS, which carries the retry policy"
        assert task["doc"], f"{where}: say what it does in its docstring"


def test_every_pool_exists(dags: dict[str, Any]) -> None:
    pools = set(json.loads((ROOT / "profiles" / "pools.json").read_text())) | {"default_pool"}
    for dag_id, task_id, task in tasks(dags):
        assert task["pool"] in pools, f"{dag_id}.{task_id}: add pool {task['pool']} to profiles/pools.json"


def test_only_publishes_emit_assets_and_one_at_a_time(dags: dict[str, Any]) -> None:
    for dag_id, task_id, task in tasks(dags):
        if (dag_id, task_id) == ("promote", "promote"):
            # its asset follows an alias, which the journal guards, not a commit
            assert task["outlets"] == ["model"]
        elif task_id.startswith("retrain__"):
            # the labels changed with the commit of the takedown
            assert task["outlets"] == [{"memes": "gold/memes", "posts": "silver/posts"}[task_id[9:]]]
        elif task["outlets"] or task_id == "publish":
            assert (task_id, task["pool"]) == ("publish", "publish"), f"{dag_id}.{task_id}: an asset follows its commit"
            assert task["outlets"], f"{dag_id}.{task_id}: a publish without an asset wakes no Dag"


def test_the_plan_of_a_backfill_knows_who_wakes_whom(dags: dict[str, Any]) -> None:
    emitted = {dag_id: {o for task in dag["tasks"].values() for o in task["outlets"]} for dag_id, dag in dags.items()}
    wakes: dict[str, dict[str, Any]] = {}
    for dag_id, dag in dags.items():
        for asset in sorted({*re.findall(r'"name": "([^"]+)"', json.dumps(dag["serialized"]["dag"]["timetable"]))}):
            wakes.setdefault(asset, {})[dag_id] = emitted[dag_id]
    told: dict[str, dict[str, str | None]] = {
        asset.format(corpus): {f"{corpus}_{kind}": out and out.format(corpus) for kind, out in consumers.items()}
        for corpus, labelled in {"memes": False, "posts": True}.items()
        for asset, consumers in CONSUMERS[labelled].items()
    }
    for asset, consumers in told.items():
        assert wakes[asset].keys() == consumers.keys(), "correct CONSUMERS in pipelines/operate/backfill.py"
        for dag_id, out in consumers.items():
            assert out is None or out in emitted[dag_id]
    known = {out for consumers in told.values() for out in consumers.values()}
    outs = {out for consumers in told.values() for dag_id in consumers for out in emitted[dag_id] if out in wakes}
    assert outs <= known, "CONSUMERS in pipelines/operate/backfill.py lacks an asset that wakes a Dag"


def test_nothing_is_decided_by_silence(dags: dict[str, Any]) -> None:
    asking = [(dag_id, task_id, task) for dag_id, task_id, task in tasks(dags) if task["asks"]]
    assert asking
    for dag_id, task_id, task in asking:
        assert task["defaults"] in (None, ["Reject"]), f"{dag_id}.{task_id}: a person answers, or nothing changes"


def test_tasks_wait_for_each_other(dags: dict[str, Any]) -> None:
    wanted = dict(line.split(": ") for line in UPSTREAM.split("\n") if line)
    found = {f"{dag_id}.{task_id}": task["upstream"] for dag_id, task_id, task in tasks(dags)}
    for task, names in wanted.items():
        # a Dag publishes what a team's own stages give, too
        own = {*found.get(task, ())} - {*names.split()} if task.endswith("_dataset.publish") else set()
        assert " ".join(name for name in found.get(task, ()) if name not in own) == names, task
    assert dags["promote"]["tasks"]["approve"]["defaults"] == ["Reject"]


def test_a_takedown_runs_after_a_sweep_that_failed_and_the_run_fails(dags: dict[str, Any]) -> None:
    found = dags["deletion_sweep"]["tasks"]
    assert (found["takedown"]["rule"], found["swept"]["rule"]) == ("all_done", "all_success")


def test_a_dataset_is_published_as_far_as_it_got_without_labels(dags: dict[str, Any]) -> None:
    rules = {dag_id: task["rule"] for dag_id, task_id, task in tasks(dags) if task_id == "publish"}
    assert {dag_id for dag_id, rule in rules.items() if rule == "none_failed"} == {"memes_dataset", "posts_dataset"}


def test_the_cost_is_estimated_before_every_step_that_spends(dags: dict[str, Any]) -> None:
    """With the sandbox's parameters, whose memes are prompted and moderated, and whose posts are labelled."""
    upstream = {task_id: task["upstream"] for task_id, task in dags["memes_benchmark"]["tasks"].items()}
    assert upstream["estimate"] == ["few_shot", "gold", "pin", "split"]
    spending = {task_id for task_id, names in upstream.items() if "estimate" in names}
    assert {task.partition("__")[0] for task in spending} == {"moderation", "predict"}
    assert "predict__severity-gpt-5-mini-zero" in spending
    assert dags["posts_label"]["tasks"]["jobs__openai"]["upstream"] == ["estimate"]
    assert "estimate" not in dags["posts_benchmark"]["tasks"], "nothing is asked, so nothing is estimated"


def test_stages_are_grouped_by_package_and_step_and_keep_their_ids(dags: dict[str, Any]) -> None:
    groups = {dag_id: set(dag["groups"]) for dag_id, dag in dags.items()}
    assert {"annotate", "train", "train__severity", "predict"} <= groups["memes_benchmark"]
    # predict waits for estimate, which may wait for train: a group of the package of both would depend on itself
    assert "models" not in groups["memes_benchmark"]
    assert {"votes", "label"} <= groups["posts_label"]
    assert {"models", "train", "predict"} <= groups["posts_benchmark"]
    # sample → gold → split: a group of the package of sample and split would depend on itself
    assert not groups["memes_dataset"]
    assert groups["deletion_sweep"] == {"sweep", "retrain"}
    assert groups["annotation_round"] == {"annotation", "adjudication", "publication"}
    for dag_id, dag in dags.items():
        assert not groups[dag_id] & dag["tasks"].keys(), f"{dag_id}: a group has the id of a task"
        assert not any("." in task_id for task_id in dag["tasks"]), f"{dag_id}: use prefix_group_id=False"


def test_a_sweep_and_a_month_have_a_deadline(dags: dict[str, Any]) -> None:
    late = {dag_id for dag_id, dag in dags.items() if dag["serialized"]["dag"].get("deadline")}
    assert late == {"deletion_sweep", "memes_collect", "posts_collect"}
    # of another form, clearing a task of a run answers 500 (apache/airflow#70368)
    sweep = dags["deletion_sweep"]["serialized"]["dag"]["deadline"]
    assert re.search(r'"interval": 72000\b', json.dumps(sweep)), sweep
    assert not any(dag["callback"] for dag in dags.values()), "no notifier is configured"


def test_the_file_of_tasks_names_every_task_that_is_no_stage_and_none_that_no_dag_has(dags: dict[str, Any]) -> None:
    listed = json.loads((ROOT / "profiles" / "tasks.json").read_text())
    resolved = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for dag_id, task_id, _ in tasks(dags):
        step = task_id.partition("__")[0]
        known = {step, f"{dag_id}.{step}"} & {*listed} or step in resolved
        assert known, f"{dag_id}.{task_id}: add {step} to profiles/tasks.json"
    steps = {(dag_id, task_id.partition("__")[0]) for dag_id, task_id, _ in tasks(dags)}
    # some options of the step predict are for the tasks that compute answers
    bare = {key.removesuffix("__computed") for key in listed}
    unused = bare - {*resolved} - {step for _, step in steps} - {f"{dag_id}.{step}" for dag_id, step in steps}
    assert not unused, f"profiles/tasks.json has options of tasks that no Dag has: {sorted(unused)}"


def test_dag_files_are_wiring_only() -> None:
    for path in (ROOT / "dags").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 130, f"{path.name}: move logic into plugins/ or pipelines/"


def test_the_form_of_a_partitioned_dag_explains_the_key(dags: dict[str, Any]) -> None:
    for dag_id, dag in dags.items():
        params = dict(dag["serialized"]["dag"]["params"])
        partitioned = "Partition" in json.dumps(dag["serialized"]["dag"]["timetable"]["__type"])
        assert ("partition_key" in params) == partitioned, f"{dag_id}: pass params=explained(…)"
    told = dict(dags["memes_collect"]["serialized"]["dag"]["params"])["partition_key"]["description"]
    assert "such as 2022-12" in told and "--dag-id memes_collect" in told


def test_a_reason_is_optional_in_the_forms_that_start_a_decision(dags: dict[str, Any]) -> None:
    # Airflow's form starts no run while a field is empty that may not be null
    for name in ("promote", "release"):
        [reason] = [one for key, one in dags[name]["serialized"]["dag"]["params"] if key == "reason"]
        assert reason["default"] is None and "'null'" in str(reason["schema"])
