"""Start the demo's Dag runs when they are due, and follow them: progress on the console, failed tasks cleared once.

What is due depends on the state of Airflow and of the git repository only.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from pipelines.core.errors import DataError
from pipelines.operate.services.airflow_api import ENDED, Airflow, named

Json = dict[str, Any]
# Identifies a task instance: Dag, run, task, map index.
Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Look:
    """A snapshot of all Dag runs and task instances of Airflow."""

    runs: list[Json]
    tasks: list[Json]

    @classmethod
    def at(cls, airflow: Airflow) -> Look:
        """Take a snapshot of Airflow's present Dag runs and task instances."""
        return cls(*airflow.runs_and_tasks())

    def runs_of(self, dag_id: str) -> list[Json]:
        """Return the Dag runs of a Dag in this snapshot, oldest first."""
        return [run for run in self.runs if run["dag_id"] == dag_id]

    def tasks_of(self, run: Json) -> Iterator[Json]:
        """Yield the task instances of a Dag run in this snapshot."""
        for task in self.tasks:
            if (task["dag_id"], task["dag_run_id"]) == (run["dag_id"], run["dag_run_id"]):
                yield task

    def active(self, *dag_ids: str) -> bool:
        """Return whether any run of these Dags (or of any Dag if none is named) is unfinished."""
        return any(run["state"] not in ENDED for run in self.runs if not dag_ids or run["dag_id"] in dag_ids)

    def states(self) -> dict[tuple[Key, int], str | None]:
        """Return the state of every task instance, by task instance and attempt."""
        return {(key_of(task), task["try_number"]): task["state"] for task in self.tasks}

    def collected(self, dag_id: str) -> set[str]:
        """Return the partition keys (months) for which a Dag has a successful run."""
        return {run["partition_key"] for run in self.runs_of(dag_id) if run["state"] == "success"}


def key_of(task: Json) -> Key:
    """Return the key of an Airflow task instance, which is the same for all its attempts."""
    return task["dag_id"], task["dag_run_id"], task["task_id"], int(task["map_index"])


def title_of(run: Json) -> str:
    """Return a readable name of a Dag run: its Dag, and its month or the values of its configuration."""
    asked = " ".join(str(value) for value in (run.get("conf") or {}).values())
    return f"{run['dag_id']} {run.get('partition_key') or asked}".strip()


def task_of(task: Json) -> str:
    """Return a readable name of an Airflow task instance: its task id, and its map index if it is mapped."""
    return str(task["task_id"]) + (f"[{task['map_index']}]" if int(task["map_index"]) >= 0 else "")


SHOWN = ("success", "failed", "up_for_retry")


# Measured for a whole demo on two quiet cores (docs/log/performance.md).
TASKS, SECONDS = 125, 360.0
DOING = {"collect": "collecting", "dataset": "curating", "label": "labelling", "benchmark": "training"}


class Progress:
    """Show how far the demo is: a line for each Dag run that ends, or each task, and on a terminal a live line below.

    ``clock`` returns seconds. What ended before the first snapshot is not printed.
    """

    def __init__(self, console: Console, *, verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.verbose, self.clock = console, verbose, clock
        # moves by itself, whatever Airflow does
        self.live = console.status("", refresh_per_second=4)
        self._known: set[object] | None = None
        self._began, self._before = clock(), 0.0

    def show(self, look: Look) -> None:
        """Print what has ended since the last snapshot, and update the live line."""
        lines = dict(_tasks(look) if self.verbose else _runs(look))
        if self._known is None:
            done, total = _counts(look)
            self._known, self._before = {*lines}, done / total
        for key in [key for key in lines if key not in self._known]:
            self._known.add(key)
            self.console.print(lines[key], highlight=False, soft_wrap=True, markup=False)
        self.live.update(Text(self.line(look), no_wrap=True, overflow="ellipsis"))

    def line(self, look: Look) -> str:
        """Return the live line: tasks that are done, what runs, and about how long the rest takes."""
        done, total = _counts(look)
        share = done / total
        # the measured duration counts less, the more of the demo this process has seen
        pace = SECONDS * (1 - share + self._before) + self.clock() - self._began
        minutes = round((1 - share) * pace / 60)
        left = f"about {minutes} min left" if minutes > 0 else "less than a minute left"
        running = dict.fromkeys(map(_doing, (run for run in look.runs if run["state"] == "running")))
        return f"[{done}/{total}] {', '.join([*running, left])}"


def _counts(look: Look) -> tuple[int, int]:
    """Return how many tasks are done, and how many there will be."""
    states = Counter(task["state"] for task in look.tasks)
    return states["success"], max(TASKS, states.total() - states["skipped"] - states["removed"])


def _doing(run: Json) -> str:
    corpus, _, kind = run["dag_id"].removeprefix(named("")).rpartition("_")
    return f"{corpus}: {DOING[kind]}" if corpus else kind


def _runs(look: Look) -> Iterator[tuple[object, str]]:
    """Yield the key of each run that succeeded, and its line."""
    for run in look.runs:
        if run["state"] == "success":
            tasks = sum(task["state"] == "success" for task in look.tasks_of(run))
            line = f"✓ {title_of(run):<30} {tasks:3} tasks  {run['duration']:4.0f} s"
            yield (run["dag_id"], run["dag_run_id"]), line


def _tasks(look: Look) -> Iterator[tuple[object, str]]:
    """Yield the key of each task attempt that ended, and its line: seconds, Dag, month, task."""
    titles = {(run["dag_id"], run["dag_run_id"]): title_of(run) for run in look.runs}
    ended = [task for task in look.tasks if task["state"] in SHOWN and task["duration"] is not None]
    for task in sorted(ended, key=lambda task: task["end_date"] or ""):
        title = titles.get((task["dag_id"], task["dag_run_id"]), task["dag_id"])
        state = "" if task["state"] == "success" else f"  {task['state']}"
        line = f"{task['duration']:7.1f} s  {title:<24} {task_of(task)}{state}"
        yield (key_of(task), task["try_number"]), line


# Number of log lines shown: a command's error is among the last ones, after Airflow's own traceback.
LINES = 15


class Failures:
    """The failed tasks of the demo's runs; ``cleared`` counts how often this process has cleared each of them."""

    def __init__(self, airflow: Airflow, *, logs: Path) -> None:
        self.airflow = airflow
        self.logs = logs
        self.cleared: Counter[Key] = Counter()

    def clear(self, look: Look) -> int:
        """Clear the failed tasks of failed runs and the tasks that they blocked; return the number of failed tasks."""
        count = 0
        for run in look.runs:
            if run["state"] == "failed":
                count += self._clear(run, [task for task in look.tasks_of(run) if task["state"] == "failed"])
        return count

    def _clear(self, run: Json, failed: list[Json]) -> int:
        if not failed:
            raise DataError("NothingToClear", run=title_of(run), address=self.airflow.base)
        for task in failed:
            if self.cleared[key_of(task)]:
                where = {"task": task_of(task), "run": title_of(run), "address": self.airflow.base}
                raise DataError("FailedAgain", log=tail(self.logs, task), **where)
        body = {"dry_run": False, "dag_run_id": run["dag_run_id"], "only_failed": True, "reset_dag_runs": True}
        self.airflow.post(f"/dags/{run['dag_id']}/clearTaskInstances", body)
        self.cleared.update(key_of(task) for task in failed)
        return len(failed)


def tail(logs: Path, task: Json) -> str:
    """Return the last lines of the newest log of an Airflow task instance."""
    dag_id, run_id, task_id, index = key_of(task)
    folder = logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
    folder = folder / f"map_index={index}" if index >= 0 else folder
    attempts = sorted(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime)
    if not attempts:
        return "  (there is no log)"
    lines = attempts[-1].read_text(errors="replace").splitlines()[-LINES:]
    return "\n".join(f"  {_event(line)}" for line in lines)


def _event(line: str) -> str:
    try:
        event = json.loads(line)
        return f"{event.get('level', '')}: {event['event']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line


CORPORA = ("memes", "posts")
# Polls without progress before a consumer is started without its asset event.
PATIENCE = 4


@dataclass(frozen=True)
class Models:
    """The Dag that trains the models of a corpus, which is triggered once after all months are collected.

    Annotation rounds and the labels of each month would also trigger the Dag; the demo has neither. ``ready`` and
    ``done`` are the starts of the newest commit's subject when there is training data, which ``after`` publishes, and
    when the models are published; ``key`` is the partition key.
    """

    dag_id: str
    after: str
    ready: str
    done: str
    key: str | None = None


MODELS = {
    "memes": Models(
        named("memes_benchmark"), named("memes_dataset"), "snapshot(memes): quality@", "snapshot(memes): report@"
    ),
    "posts": Models(
        named("posts_benchmark"),
        named("posts_label"),
        "snapshot(posts): injection_test@",
        "snapshot(posts): report@",
        "snapshot",
    ),
}


@dataclass
class DemoPlan:
    """The demo's plan from uncollected months to published models; ``newest`` returns each corpus's newest subject."""

    airflow: Airflow
    months: tuple[str, ...]
    newest: Callable[[], dict[str, str]]
    _awake: set[str] = field(default_factory=set)
    _waited: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Unpause the Dags that collect months and the Dag that labels posts."""
        for dag_id in (*(named(f"{corpus}_collect") for corpus in CORPORA), named("posts_label")):
            self._wake(dag_id)

    def advance(self, look: Look) -> bool:
        """Start the Dag runs that are due; return whether both corpora have published models."""
        newest = self.newest()
        done = [self._advance(corpus, look, newest=newest[corpus]) for corpus in CORPORA]
        return all(done)

    def _advance(self, corpus: str, look: Look, *, newest: str) -> bool:
        models, dataset, collect = MODELS[corpus], named(f"{corpus}_dataset"), named(f"{corpus}_collect")
        collected = look.collected(collect) & {*self.months}
        # The Dag stays paused until the last month, so earlier months do not trigger a snapshot of their own.
        if len(collected) >= len(self.months) - 1:
            self._wake(dataset)
        if len(collected) < len(self.months):
            if not look.active(collect):
                self._backfill(corpus, look)
            return False
        if look.active(dataset, models.after, models.dag_id):
            self._waited.pop(corpus, None)
            return False
        if newest.startswith(models.done):
            return True
        if newest.startswith(models.ready):
            self._trigger(models.dag_id, look, key=models.key)
        elif self._waited.get(corpus, 0) < PATIENCE:
            self._waited[corpus] = self._waited.get(corpus, 0) + 1
        else:
            # the event was emitted before the Dag was unpaused, or during an earlier call that was killed
            self._waited.pop(corpus)
            self._trigger(models.after if newest.startswith("snapshot") else dataset, look, key="snapshot")
        return False

    def _wake(self, dag_id: str) -> None:
        if dag_id not in self._awake:
            self.airflow.unpause(dag_id)
            self._awake.add(dag_id)

    def _backfill(self, corpus: str, look: Look) -> None:
        """Create the backfill unless every month has a run; an existing backfill is not an error."""
        dag_id = named(f"{corpus}_collect")
        if {*self.months} <= {run["partition_key"] for run in look.runs_of(dag_id)}:
            return
        body = {
            "dag_id": dag_id,
            "from_date": f"{min(self.months)}-01T00:00:00Z",
            "to_date": f"{max(self.months)}-01T00:00:00Z",
            # one month at a time: see `_advance`
            "max_active_runs": 1,
        }
        self.airflow.post("/backfills", body)

    def _trigger(self, dag_id: str, look: Look, *, key: str | None) -> None:
        self._wake(dag_id)
        # the id is derived from the existing runs, so a repeated request does not start a second run
        self.airflow.trigger(dag_id, dag_run_id=f"demo__{len(look.runs_of(dag_id)) + 1}", partition_key=key)
