"""The demo goes on from any state: it starts only what is missing and clears a failed task once."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from crisis_corpus_sandbox import demo
from crisis_corpus_sandbox.demo_runs import SECONDS, TASKS, DemoPlan, Failures, Look, Progress, tail
from pipelines.operate.services.airflow_api import Airflow
from tests.refusals import refused
from tests.sandbox.small_airflow import SmallAirflow, serving

MONTHS = ("2022-11", "2022-12")


class Decided:
    """An act in which every decision is on record."""

    def advance(self, look: Look) -> bool:
        return True


class Killed(BaseException):
    """Ends a demo between two looks, as SIGKILL would."""


@pytest.fixture
def small() -> Iterator[SmallAirflow]:
    with serving(SmallAirflow()) as state:
        yield state


def follow(small: SmallAirflow, logs: Path, *, out: io.StringIO | None = None, verbose: bool = False) -> Failures:
    airflow = Airflow(small.base)
    failures = Failures(airflow, logs=logs)
    progress = Progress(Console(file=out or io.StringIO(), width=200), verbose=verbose)
    demo.follow(
        airflow, plan=DemoPlan(airflow, MONTHS, small.newest), act=Decided(), failures=failures,  # type: ignore[arg-type]
        progress=progress, pause=0,
    )  # fmt: skip
    return failures


def started(small: SmallAirflow) -> Counter[str]:
    return Counter(run["dag_id"] for run in small.runs)


EVERY = Counter(
    memes_collect=2, posts_collect=2, memes_dataset=1, posts_dataset=1, posts_label=1, memes_benchmark=1,
    posts_benchmark=1,
)  # fmt: skip


def test_an_undisturbed_demo_starts_everything_once_and_snapshots_the_last_month_alone(small, tmp_path) -> None:
    failures = follow(small, tmp_path)
    assert started(small) == EVERY
    assert all(run["state"] == "success" for run in small.runs)
    assert failures.cleared.total() == 0


@pytest.mark.parametrize("looks", [1, 2, 3, 5, 7, 9, 11])
def test_a_demo_that_is_killed_between_any_two_looks_goes_on(small, tmp_path, monkeypatch, looks) -> None:
    """Nothing is started twice, whether the services went on meanwhile or not."""
    count, whole = 0, Look.at

    def at(airflow: Airflow) -> Look:
        nonlocal count
        count += 1
        if count == looks:
            raise Killed
        return whole(airflow)

    monkeypatch.setattr(Look, "at", at)
    with pytest.raises(Killed):
        follow(small, tmp_path)
    for _ in range(looks % 3 * 3):
        small.step()
    follow(small, tmp_path)
    assert started(small) == EVERY


def test_a_lost_asset_event_is_made_up_for(small, tmp_path) -> None:
    small.awake |= {"memes_collect", "posts_collect"}
    for corpus in ("memes", "posts"):
        for month in MONTHS:
            small.add(f"{corpus}_collect", key=month, run_id=month)
    for _ in range(8):
        small.step()
    follow(small, tmp_path)
    assert started(small) == EVERY


def test_a_failed_task_is_cleared_and_counted(small, tmp_path) -> None:
    small.fails["posts_label", "publish"] = 1
    small.fails["memes_benchmark", "train"] = 1
    out = io.StringIO()
    failures = follow(small, tmp_path, out=out)
    assert failures.cleared.total() == 2
    assert {key[:1] + key[2:3] for key in failures.cleared} == {
        ("posts_label", "publish"),
        ("memes_benchmark", "train"),
    }
    assert "cleared 2 failed tasks" in out.getvalue()
    assert started(small) == EVERY


def test_a_second_failure_shows_the_end_of_the_log_and_a_later_demo_goes_on(small, tmp_path) -> None:
    small.fails["posts_label", "publish"] = 2
    with refused("FailedAgain") as raised:
        follow(small, tmp_path)
    run_id = next(run["dag_run_id"] for run in small.runs if run["state"] == "failed")
    assert "there is no log" in str(raised.value) and "make demo" in str(raised.value)

    folder = tmp_path / "dag_id=posts_label" / f"run_id={run_id}" / "task_id=publish"
    folder.mkdir(parents=True)
    lines = [json.dumps({"event": f"line {n}", "level": "error"}) for n in range(40)]
    (folder / "attempt=1.log").write_text("old\n")
    (folder / "attempt=2.log").write_text("\n".join([*lines, "no JSON"]))
    # this failure is cleared by the next demo, and the one after it is the second
    small.fails["posts_label", "publish"] = 1
    with refused("FailedAgain") as raised:
        follow(small, tmp_path)
    assert "error: line 39\n  no JSON" in str(raised.value)
    assert "line 20" not in str(raised.value) and "old" not in str(raised.value)
    assert "publish of posts_label snapshot" in str(raised.value)

    assert follow(small, tmp_path).cleared.total() == 1
    assert started(small) == EVERY


def test_a_run_that_fails_without_a_failed_task_stops_the_demo(small, tmp_path) -> None:
    small.add("memes_collect", key=MONTHS[0], run_id="broken")
    small.runs[-1]["state"] = "failed"
    with refused("NothingToClear"):
        follow(small, tmp_path)


def test_the_log_of_a_mapped_task_is_found(tmp_path) -> None:
    folder = tmp_path / "dag_id=d" / "run_id=r" / "task_id=t" / "map_index=3"
    folder.mkdir(parents=True)
    (folder / "attempt=1.log").write_text('{"event": "the end", "level": "info"}\n')
    task = {"dag_id": "d", "dag_run_id": "r", "task_id": "t", "map_index": 3}
    assert tail(tmp_path, task) == "  info: the end"


def test_each_finished_run_is_one_line(small, tmp_path) -> None:
    out = io.StringIO()
    follow(small, tmp_path, out=out)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(small.runs) == EVERY.total()
    assert all(re.fullmatch(r"✓ \w+ (2022-1[12]|snapshot)? +[23] tasks +[234] s", line) for line in lines), lines


@pytest.mark.parametrize(
    ("done", "seconds", "left"),
    [
        (0, 0, "about 6 min left"),
        # as fast as measured, half as fast, and at the end nothing but this machine counts
        (TASKS // 2, SECONDS / 2, "about 3 min left"),
        (TASKS // 2, SECONDS, "about 5 min left"),
        (TASKS - 1, SECONDS * 3, "less than a minute left"),
        (TASKS + 9, SECONDS, "less than a minute left"),
    ],
)
def test_the_live_line_says_what_runs_and_how_long_the_rest_takes(done: int, seconds: float, left: str) -> None:
    now = [0.0]
    progress = Progress(Console(file=io.StringIO()), clock=lambda: now[0])
    names = {"posts_label": "running", "memes_collect": "running", "memes_dataset": "success"}
    runs = [{"dag_id": dag, "dag_run_id": "1", "state": state, "duration": 1.0} for dag, state in names.items()]
    skipped = {"dag_id": "posts_label", "dag_run_id": "1", "state": "skipped"}
    progress.show(Look([], []))
    now[0] = seconds
    line = progress.line(Look(runs, [skipped] * 9 + [skipped | {"state": "success"}] * done))
    assert line == f"[{done}/{max(TASKS, done)}] posts: labelling, memes: collecting, {left}"
    assert len(line) < 79


def test_a_demo_that_goes_on_does_not_take_what_was_done_for_its_own_pace() -> None:
    now = [0.0]
    progress = Progress(Console(file=io.StringIO()), clock=lambda: now[0])
    half = Look([], [{"dag_id": "posts_label", "dag_run_id": "1", "state": "success"}] * (TASKS // 2))
    progress.show(half)
    now[0] = 10.0
    assert progress.line(half).endswith("about 3 min left")


# From a demo of 2026-11-27.
RECORDED = """
{"memes": {"collect": {"submissions": 308, "items": 247, "kept": 230, "dropped": {"gone": 2}},
  "dedupe": {"pairs": 35, "dropped": 24}, "split": {"sizes": {"test": 42, "train": 126, "validation": 42}},
  "benchmark": {"severity": {"majority": 0.09, "gpt-5-mini-zero": {"mean": 0.6}, "tiny-fusion": {"mean": 0.4}},
                "related": {"majority": 0.0, "tiny-fusion": {"mean": 0.3}, "tiny-text": {"mean": 0.1}}}},
 "posts": {"collect": {"submissions": 320, "items": 286, "kept": 286, "dropped": {"removed": 5}},
  "dedupe": {"pairs": 20, "dropped": 15}, "split": {"sizes": {"dev": 60, "test": 60, "train": 120}, "leakage": 0},
  "benchmark": {"labels": {"majority": 0.0, "cradle": {"mean": 0.8}, "tiny-encoder-consensus": {"mean": 0.5}}}}}
"""


def test_the_demo_ends_with_one_screen() -> None:
    run = f"http://127.0.0.1:5000/#/experiments/12/runs/{'a' * 32}/artifacts/report/report.html"
    places = {"report of memes": run, "report of posts": run, "Airflow": "http://127.0.0.1:8080/plugin/corpus",
              "passwords": "/home/person/crisis-corpus/var/run/passwords.json"}  # fmt: skip
    scores = [f"{name}, version 2: macro-F1 23.6 [12.5, 33.3]" for name in ("crisis-posts", "meme-severity")]
    page = demo.end_page(json.loads(RECORDED), scores, places)
    rows = sum(math.ceil(max(len(line), 1) / 80) for line in page.splitlines())
    # with an empty line, the duration and another empty one before it, and a prompt after it
    assert rows + 4 <= 24
    assert page.splitlines()[0].split() == ["memes", "posts"]
    for number in ("kept +230 +286", "removed +24 +15", "dev, test +210 +240", "compared +3 +2"):
        assert re.search(f"{number}\n", page)
    assert all(text in page for text in (*scores, *places.values(), "corpus new NAME"))


def test_without_a_terminal_each_finished_task_is_one_line_if_asked(small, tmp_path) -> None:
    out = io.StringIO()
    follow(small, tmp_path, out=out, verbose=True)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(small.tasks)
    assert all(re.fullmatch(r" +1\.2 s  \w+ (2022-1[12]|snapshot)? +[\w]+", line) for line in lines)
    assert sum("memes_collect 2022-11" in line for line in lines) == 3

    again = io.StringIO()
    follow(small, tmp_path, out=again)
    assert again.getvalue() == ""


def test_a_look_is_two_requests(small, tmp_path) -> None:
    follow(small, tmp_path)
    listings = [count for path, count in small.requests.items() if "~" in path]
    others = sum(small.requests.values()) - sum(listings)
    assert len(listings) == 2 and len(set(listings)) == 1
    assert others <= 12  # unpaused once each, two backfills, two triggers
