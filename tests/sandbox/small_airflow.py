"""A small HTTP server that speaks the few endpoints of Airflow's REST API that the demo needs.

A run goes one task further at each listing. Publishing tasks put a commit's subject on record, as git would have it.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.json_server import Request, json_server

TASKS = {
    "collect": ("collect", "images", "publish"),
    "dataset": ("pin", "quality", "publish"),
    "label": ("pin", "publish"),
    "benchmark": ("train", "publish", "track"),
    "finetune": ("finetune", "publish", "track"),
}
SUBJECTS = {
    "collect": "data({corpus}): {key}",
    "dataset": "snapshot({corpus}): quality@{corpus}",
    "label": "snapshot({corpus}): injection_test@{corpus}-cradle",
    "benchmark": "snapshot({corpus}): report@{corpus}",
    "finetune": "snapshot({corpus}): report@{corpus}",
}
# Dag -> the Dag that its publish wakes
WAKES = {"memes_collect": "memes_dataset", "posts_collect": "posts_dataset", "posts_dataset": "posts_label"}


@dataclass
class SmallAirflow:
    """The state behind the server; ``fails`` says how often a task fails, by Dag and task."""

    fails: Counter[tuple[str, str]] = field(default_factory=Counter)
    awake: set[str] = field(default_factory=set)
    runs: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, str] = field(default_factory=lambda: {"memes": "", "posts": ""})
    requests: Counter[str] = field(default_factory=Counter)
    base: str = ""

    def newest(self) -> dict[str, str]:
        return dict(self.subjects)

    def add(self, dag_id: str, *, key: str | None, run_id: str, conf: dict[str, Any] | None = None) -> None:
        kind = dag_id.partition("_")[2]
        self.runs.append(
            {"dag_id": dag_id, "dag_run_id": run_id, "partition_key": key, "conf": conf or {}, "state": "queued"}
            | {"duration": None}
        )
        for name in TASKS[kind]:
            task = {"dag_id": dag_id, "dag_run_id": run_id, "task_id": name, "map_index": -1, "try_number": 0}
            self.tasks.append(task | {"state": None, "duration": None, "end_date": None})

    def step(self) -> None:
        """Let every run of an awake Dag go one task further; of a Dag's runs the oldest alone."""
        for dag_id in sorted(self.awake):
            run = next((r for r in self.runs if r["dag_id"] == dag_id and r["state"] in ("queued", "running")), None)
            if run:
                self._step(run)

    def _step(self, run: dict[str, Any]) -> None:
        mine = [t for t in self.tasks if (t["dag_id"], t["dag_run_id"]) == (run["dag_id"], run["dag_run_id"])]
        task = next(t for t in mine if t["state"] != "success")
        task |= {"try_number": task["try_number"] + 1, "duration": 1.25, "end_date": f"{self.requests.total():09d}"}
        place = (run["dag_id"], task["task_id"])
        if self.fails[place]:
            self.fails[place] -= 1
            task["state"] = run["state"] = "failed"
            return
        task["state"], run["state"] = "success", "running"
        corpus, _, kind = run["dag_id"].partition("_")
        if task["task_id"] == "publish":
            self.subjects[corpus] = SUBJECTS[kind].format(corpus=corpus, key=run["partition_key"])
            woken = WAKES.get(run["dag_id"])
            if woken in self.awake:
                self.add(woken, key="snapshot", run_id=f"woken__{len(self.runs)}")
        if task is mine[-1]:
            run |= {"state": "success", "duration": sum(task["duration"] for task in mine)}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/auth/token":
            return 200, {"access_token": "token"}
        path = unquote(path.removeprefix("/api/v2"))
        self.requests[f"{method} {path}"] += 1
        if path.startswith("/dags/~/dagRuns/~/taskInstances"):
            return 200, page("task_instances", self.tasks, body)
        if path.startswith("/dags/~/dagRuns"):
            self.step()
            return 200, page("dag_runs", self.runs, body)
        if path == "/backfills":
            return self._backfill(body)
        dag_id, call = re.fullmatch(r"/dags/([^/]+)/?(.*)", path).groups()  # type: ignore[union-attr]
        if method == "PATCH":
            self.awake.add(dag_id)
            return 200, {}
        if call == "dagRuns":
            if any((r["dag_id"], r["dag_run_id"]) == (dag_id, body["dag_run_id"]) for r in self.runs):
                return 409, {}
            self.add(dag_id, key=body.get("partition_key"), run_id=body["dag_run_id"], conf=body.get("conf"))
            return 200, {"dag_run_id": body["dag_run_id"]}
        if call == "clearTaskInstances":
            return self._clear(dag_id, body)
        return 404, {}

    def _backfill(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if any(run["dag_id"] == body["dag_id"] for run in self.runs):
            return 409, {}
        for key in (body["from_date"][:7], body["to_date"][:7]):
            self.add(body["dag_id"], key=key, run_id=f"backfill__{key}")
        return 200, {}

    def _clear(self, dag_id: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["only_failed"] and not body["dry_run"] and body["reset_dag_runs"]
        for run in self.runs:
            if (run["dag_id"], run["dag_run_id"]) == (dag_id, body["dag_run_id"]):
                run["state"] = "queued"
        for task in self.tasks:
            if (task["dag_id"], task["dag_run_id"], task["state"]) == (dag_id, body["dag_run_id"], "failed"):
                task["state"] = None
        return 200, {"task_instances": []}


def page(key: str, rows: list[dict[str, Any]], body: dict[str, Any], *, most: int = 1000) -> dict[str, Any]:
    """Return a page of a listing that is read by cursor."""
    size, start = min(int(body["limit"]), most), int(body.get("cursor") or 0)
    after = start + size
    return {key: rows[start:after], "next_cursor": str(after) if after < len(rows) else None}


@contextmanager
def serving(state: SmallAirflow) -> Iterator[SmallAirflow]:
    """Serve the state on a free port of loopback; one request at a time."""
    lock = threading.Lock()

    def answer(request: Request) -> tuple[int, dict[str, Any]]:
        with lock:
            status, body = state.answer(request.method, request.path, request.body or request.query)
            return status, json.loads(json.dumps(body))

    with json_server(answer) as state.base:
        yield state
