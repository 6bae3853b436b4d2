"""A server with the few endpoints of Airflow's REST API that commands use; a test edits its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.json_server import Request, json_server

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = {"status": "healthy"}


@dataclass
class SmallAirflow:
    """What the server answers, in the shapes of Airflow 3.3's ``v2-rest-api-generated.yaml``."""

    address: str
    health: dict[str, Any]
    pools: dict[str, int]
    jobs: list[dict[str, Any]] = field(default_factory=lambda: [{"id": 1, "job_type": "SchedulerJob"}])
    queued: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = False
    paused: bool = True
    runs: list[dict[str, Any]] = field(default_factory=list)
    parsed: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path == "/api/v2/monitor/health":
            return 200, self.health
        if self.refuses:
            return 401, {}
        if path.endswith("/dagRuns"):
            return 200, {"dag_runs": self.runs}
        if path.startswith("/api/v2/dags/") and "~" not in path:
            return 200, {"file_token": path.rpartition("/")[2], "is_paused": self.paused}
        return 200, {
            "/auth/token": {"access_token": "token"},
            "/api/v2/pools": {"pools": [{"name": name, "slots": slots} for name, slots in self.pools.items()]},
            "/api/v2/jobs": {"jobs": self.jobs},
            "/api/v2/dags/~/dagRuns/~/taskInstances": {"task_instances": self.queued},
        }[path]


@contextmanager
def small_airflow() -> Iterator[SmallAirflow]:
    def answer(request: Request) -> tuple[int, dict[str, Any]]:
        if request.method != "PUT":
            return airflow.answer(request.path)
        airflow.parsed.append(request.path.removeprefix("/api/v2/parseDagFile/"))
        return 201, {}

    pools = {name: pool["slots"] for name, pool in json.loads((ROOT / "profiles" / "pools.json").read_text()).items()}
    health = {"metadatabase": HEALTHY, "scheduler": HEALTHY, "dag_processor": HEALTHY, "triggerer": HEALTHY}
    with json_server(answer) as address:
        airflow = SmallAirflow(address, health, pools)
        yield airflow
