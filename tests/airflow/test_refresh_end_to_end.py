"""Posts of Reddit's listings under a real scheduler: read, published, revised. Each test builds on the one before.

The deployment is its own, since the shared one reads dumps. The sandbox's month is the last calendar month: Reddit's
listings show the newest posts only, and the tests do not change the clock.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from crisis_corpus_sandbox.reddit.generated_posts import SMALLEST
from crisis_corpus_sandbox.server import Catalogue
from pipelines.collect.refresh_store import RefreshStore
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests.airflow.conftest import World, deployed
from tests.airflow.kills import runner_of

pytestmark = [pytest.mark.airflow, pytest.mark.faults]  # a second deployment
NOW = datetime.now(UTC)
MONTH = f"{NOW.replace(day=1) - timedelta(days=1):%Y-%m}"
REFRESH, COLLECT, DATASET = "posts_refresh", "posts_collect", "posts_dataset"
# The tests trigger the runs.
NEVER = "0 0 29 2 *"
ENDED = {"success", "failed"}
# Of some thirty posts in each subreddit: the rest are a gap.
LISTING, PAGE = 20, 4
MONTH_TASKS = ("collect", "texts", "partition", "publish")


def live(profile: dict[str, Any]) -> None:
    """Let the posts come from listings that show two thirds of a month, which is open for the first refresh."""
    profile["sandbox"] |= {"months": [MONTH], "submissions": SMALLEST, "posts": 260}
    profile["corpora"]["posts"] = {"source": ["reddit"], "first_month": MONTH, "last_month": None}
    profile["sources"]["reddit"]["listing"] = {"schedule": NEVER, "limit": LISTING, "page_size": PAGE}
    # the other sources are asked in every run
    profile["refresh"] = {"overlap_hours": 0, "retry_hours": 0.0001}
    profile["refresh"]["grace_hours"] = 24 * NOW.day
    profile["sample"]["posts"]["size"] = 60
    profile["split"]["posts"] = {name: {"train": 30, "dev": 20, "test": 10} for name in ("ratios", "sizes")}


@pytest.fixture(scope="module")
def reddit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(tmp_path_factory.mktemp("refreshed"), smaller=live) as world:
        for dag_id in (REFRESH, DATASET):
            world.airflow.unpause(dag_id)
        yield world


def asked(world: World) -> dict[str, int]:
    address = f"http://127.0.0.1:{world.settings.sandbox_port}/_sandbox/requests"
    found: dict[str, int] = requests.get(address, timeout=30).json()
    return found


def finished(world: World, dag_id: str, run_id: str) -> dict[str, Any]:
    """Wait for the success of a run; return its task instances by task."""
    world.wait(lambda: world.state(dag_id, run_id) in ENDED, what=f"the end of a run of {dag_id}")
    assert world.state(dag_id, run_id) == "success", world.airflow.unfinished()
    return {t["task_id"]: t for t in world.instances(dag_id, run_id)}


def refreshed(world: World) -> dict[str, Any]:
    return finished(world, REFRESH, world.trigger(REFRESH, partition_key=None))


def told(world: World, dag_id: str, task: dict[str, Any]) -> dict[str, Any]:
    path = f"/dags/{dag_id}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/xcomEntries/return_value"
    value = world.airflow.get(path, deserialize=True)["value"]
    found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return found


def only_refreshed(tasks: dict[str, Any]) -> bool:
    return tasks["refresh"]["state"] == "success" and all(tasks[name]["state"] == "skipped" for name in MONTH_TASKS)


def stored(world: World) -> set[str]:
    with RefreshStore.open(world.settings.refresh_url) as store:
        return set(store.origins("posts", column="source"))


def published(world: World) -> tuple[list[str], set[str]]:
    """Return the record ids of the month, each of which has its text in one shard, and those that were dropped."""
    with workspace(world.settings) as clone:
        clone.checkout(f"data/posts/{MONTH}")
        folder = clone.path / "data" / "posts" / MONTH
        ids = tables.read(folder / "records.parquet", name="records")["record_id"].to_pylist()
        texts = tables.concat(sorted((folder / "texts").glob("*.parquet")), name="texts")["record_id"].to_pylist()
        drops = tables.read(folder / "drops.parquet", name="drops")["record_id"].to_pylist()
    assert sorted(texts) == sorted(set(ids)) == sorted(ids)
    assert not set(drops) & set(ids)
    return ids, set(drops)


def events(world: World, dag_id: str) -> list[dict[str, Any]]:
    found = world.airflow.get("/assets/events", source_dag_id=dag_id, limit=100)["asset_events"]
    return [event for event in found if event["name"] == "posts"]


def woken(world: World, *, runs: int) -> dict[str, Any]:
    world.wait(lambda: len(world.airflow.runs(DATASET)) == runs, what=f"{runs} runs of {DATASET}")
    run = world.airflow.runs(DATASET)[-1]
    finished(world, DATASET, run["dag_run_id"])
    return run


def kill_between_pages(world: World, *, pages: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if (runner := runner_of("refresh", root=world.root)) is None:
            time.sleep(0.2)
        elif asked(world)["listing"] >= pages:
            os.kill(runner.pid, signal.SIGKILL)
            return
    raise AssertionError("no refresh was running")


def test_a_killed_refresh_is_retried_and_stores_nothing_twice(reddit: World) -> None:
    run_id = reddit.trigger(REFRESH, partition_key=None)
    kill_between_pages(reddit, pages=7)
    tasks = finished(reddit, REFRESH, run_id)
    assert tasks["refresh"]["try_number"] == 2, "no refresh was killed"
    assert only_refreshed(tasks), "the month is not published yet"
    done = told(reddit, REFRESH, tasks["refresh"])
    assert (done["read"] + done["waiting"], done["closed"]) == (8, 0), "what the first try completed is not due"
    assert done["new"] < done["records"], "the second try saw posts that the first had stored"
    assert 60 < done["stored"] == len(stored(reddit)) <= 8 * LISTING
    assert not reddit.subjects("posts")


def test_a_run_in_which_nothing_is_due_sends_no_request(reddit: World) -> None:
    before = asked(reddit), stored(reddit)
    tasks = refreshed(reddit)
    assert only_refreshed(tasks)
    assert told(reddit, REFRESH, tasks["refresh"])["waiting"] == 8
    assert (asked(reddit), stored(reddit)) == before


def scheduled(world: World) -> dict[str, Any]:
    [run] = [run for run in world.airflow.runs(COLLECT) if run["run_type"] == "scheduled"]
    assert run["partition_key"] == MONTH
    [task] = [t for t in world.instances(COLLECT, run["dag_run_id"]) if t["task_id"] == "collect"]
    return task


def test_the_scheduled_run_of_a_month_waits_until_it_closes(reddit: World) -> None:
    reddit.airflow.unpause(COLLECT)
    reddit.wait(lambda: reddit.airflow.runs(COLLECT), what="the scheduled run")
    reddit.wait(lambda: scheduled(reddit)["state"] not in {None, "scheduled", "queued", "running"}, what="its task")
    assert scheduled(reddit)["state"] == "up_for_retry"
    assert not reddit.subjects("posts")


def test_the_month_is_committed_once_it_has_closed_and_wakes_the_dataset(reddit: World) -> None:
    waiting, before = stored(reddit), asked(reddit)
    reddit.run("pipelines", "params", "set", "refresh.grace_hours", "0", "--reason", "the month closes", "--by", "test")
    finished(reddit, COLLECT, reddit.trigger(COLLECT, partition_key=MONTH))
    assert asked(reddit)["arctic"] == before["arctic"] == 0
    ids, drops = published(reddit)
    assert set(ids) <= waiting <= {*ids, *drops}
    assert not stored(reddit)
    [event] = events(reddit, COLLECT)
    assert event["partition_key"] == MONTH
    assert event["extra"]["gaps"] == 8, "a gap of each subreddit"
    run = woken(reddit, runs=1)
    assert run["partition_key"] == "snapshot"
    assert reddit.subjects("posts")[0] == "snapshot(posts): quality@posts"
    assert coverage(reddit)["month_gap_hours"][MONTH] > 0


def test_a_gap_that_another_source_fills_is_one_revision_that_wakes_the_dataset_alike(reddit: World) -> None:
    first = set(published(reddit)[0])
    sources = "[reddit, arctic_shift]"
    reddit.run("pipelines", "params", "set", "corpora.posts.source", sources, "--reason", "a gap", "--by", "test")
    tasks = refreshed(reddit)
    assert {tasks[name]["state"] for name in ("refresh", *MONTH_TASKS)} == {"success"}
    done = told(reddit, REFRESH, tasks["refresh"])
    assert (done["revise"], done["gaps"]) == ([MONTH], 0)
    ids, _ = published(reddit)
    assert first < set(ids), "published posts stay"
    assert kept(reddit) <= set(ids)
    [event], [model] = events(reddit, REFRESH), events(reddit, COLLECT)
    assert {name: event[name] for name in ("name", "uri", "partition_key")} == {
        name: model[name] for name in ("name", "uri", "partition_key")
    }
    assert set(event["extra"]) == set(model["extra"])
    assert (event["extra"]["month"], event["extra"]["gaps"]) == (MONTH, 0)
    run, before = woken(reddit, runs=2), reddit.airflow.runs(DATASET)[0]
    assert {name: run[name] for name in ("run_type", "partition_key", "triggered_by")} == {
        name: before[name] for name in ("run_type", "partition_key", "triggered_by")
    }
    assert reddit.subjects("posts").count(f"data(posts): {MONTH}") == 2
    assert reddit.subjects("posts")[0] == "snapshot(posts): quality@posts"
    assert (coverage(reddit)["month_gap_hours"], coverage(reddit)["revise"]) == ({}, "none")


def test_after_the_revision_nothing_is_left_to_do(reddit: World) -> None:
    before, head = asked(reddit), reddit.head("posts")
    assert only_refreshed(refreshed(reddit))
    assert asked(reddit) == before
    assert reddit.head("posts") == head
    assert len(reddit.airflow.runs(DATASET)) == 2
    # the task asks again when the month closes, and not after the usual delay of a retry
    assert (scheduled(reddit)["state"], scheduled(reddit)["try_number"]) == ("up_for_retry", 1)


def test_the_schedule_is_that_of_the_parameters(reddit: World) -> None:
    assert reddit.airflow.get(f"/dags/{REFRESH}")["timetable_summary"] == NEVER


def coverage(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.run("pipelines", "status", "--json"))["corpora"]["posts"]["coverage"]
    return found


def kept(world: World) -> set[str]:
    """Return the record ids of the posts that the sandbox expects in the corpus and that Arctic Shift has archived."""
    truth = json.loads((world.settings.sandbox / "truth_texts.json").read_text())["submissions"]
    api = Catalogue(world.settings.sandbox)
    queries = ({"subreddit": name, "limit": "100"} for name in {post["subreddit"] for post in truth})
    archived = {str(item["name"]) for query in queries for item in api.search(query=query)}
    names = archived & {post["fullname"] for post in truth if post["expected"] == "kept"}
    assert len(names) > 100
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        return {vault.record_id(name) for name in names}
