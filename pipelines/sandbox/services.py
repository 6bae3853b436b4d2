"""The embedded deployment: the sandbox's server, MLflow and Airflow's four components, all on loopback.

Each runs apart, in a session of its own, with a log and a pid file under ``var``: ``airflow standalone`` leaves
orphans, and a port that answers proves nothing until the process behind it is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipelines.errors import ConfigError
from pipelines.params import Settings

READY_SECONDS = 120.0
# Where the sandbox's three vendors answer.
VENDORS = {"openai": "/openai/v1", "anthropic": "/anthropic", "google": "/google"}
# What a component gets between SIGTERM and SIGKILL.
STOP_SECONDS = 15.0


class ServiceFailed(ConfigError):
    """A component did not come up."""

    message = "{name} did not come up: {detail}."
    remedy = "Its log is {log}."


@dataclass(frozen=True)
class Ports:
    """Where the components listen; kept in ``var/ports.json`` so that every command finds them."""

    sandbox: int
    airflow: int
    mlflow: int

    @classmethod
    def choose(cls, path: Path, *, sandbox: int) -> Ports:
        """Read the ports chosen before, or choose now: the usual one where it is free, else any free one.

        The sandbox's port is part of its content (image addresses), so it is never replaced.
        """
        if path.exists():
            return cls(**json.loads(path.read_text()))
        ports = cls(
            sandbox=sandbox,
            airflow=_free(int(os.environ.get("AIRFLOW_PORT", "8080"))),
            mlflow=_free(int(os.environ.get("MLFLOW_PORT", "5000"))),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(vars(ports)) + "\n")
        return ports


def _free(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """The components of one ``var``."""

    def __init__(self, settings: Settings, *, root: Path, profile: str, sandbox_port: int) -> None:
        self.home = settings.home
        self.root = root.resolve()
        self.profile = profile
        self.ports = Ports.choose(self.home / "ports.json", sandbox=sandbox_port)
        self.run = self.home / "run"
        self.logs = self.home / "logs"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every component; each Airflow setting has its reason beside it."""
        airflow, home = self.ports.airflow, self.home
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "CORPUS_HOME": str(home),
            "CORPUS_ROOT": str(self.root),
            "CORPUS_PROFILE": self.profile,
            "CORPUS_SANDBOX_PORT": str(self.ports.sandbox),
            "CORPUS_REDDIT_URL": f"http://127.0.0.1:{self.ports.sandbox}",
            "CORPUS_REDDIT_OAUTH_URL": f"http://127.0.0.1:{self.ports.sandbox}",
            "CORPUS_ARCTIC_SHIFT_URL": f"http://127.0.0.1:{self.ports.sandbox}",
            "CORPUS_REDDIT_CLIENT_ID": "sandbox",
            "CORPUS_REDDIT_CLIENT_SECRET": "sandbox",
            **{
                f"CORPUS_{vendor.upper()}_{what}": value
                for vendor, path in VENDORS.items()
                for what, value in (("URL", f"http://127.0.0.1:{self.ports.sandbox}{path}"), ("KEY", "sandbox"))
            },
            "CORPUS_CONTACT": os.environ.get("CORPUS_CONTACT", "sandbox@localhost"),
            "CORPUS_PHASES": str(self.logs / "phases.jsonl"),
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self.ports.mlflow}",
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.root / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.root / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",  # default 32 forks as many workers
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "5",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",  # default 5 keeps a slot busy 5 s after its task
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",  # default 1 costs a second a task
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",  # default 300: a killed worker is seen sooner
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",  # default 300
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__API__HOST": "127.0.0.1",  # default 0.0.0.0
            "AIRFLOW__API__PORT": str(airflow),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{airflow}",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{airflow}/execution/",
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secret("airflow-jwt"),
            "AIRFLOW__CORE__FERNET_KEY": "",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",  # loopback only: no login at all
            "AIRFLOW_CONN_FS_DEFAULT": '{"conn_type":"fs"}',
            "DVC_NO_ANALYTICS": "1",
            "DO_NOT_TRACK": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
            "OMP_NUM_THREADS": "1",
        }

    def _secret(self, name: str) -> str:
        path = self.home / "run" / f"{name}.secret"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(48))
        return path.read_text()

    def up(self, *, say: Callable[[str], None]) -> None:
        """Start what is not running, in order, and wait until each answers.

        Raises:
            ServiceFailed: naming the component and its log.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        python = [sys.executable, "-m"]
        say("sandbox server")
        self._start("sandbox", [*python, "pipelines", "sandbox", "serve", "--profile", self.profile])
        self._answer("sandbox", f"http://127.0.0.1:{self.ports.sandbox}/_sandbox/requests")
        say("MLflow")
        store = f"sqlite:///{self.home}/mlflow.sqlite"
        if not (self.home / "mlflow.sqlite").exists():
            self._once("mlflow-init", [*python, "mlflow", "db", "upgrade", store])
        self._start(
            "mlflow",
            [*python, "mlflow", "server", "--backend-store-uri", store, "--workers", "1", "--host", "127.0.0.1",
             "--artifacts-destination", str(self.home / "mlflow"), "--port", str(self.ports.mlflow)],
        )  # fmt: skip
        say("Airflow")
        self._once("airflow-migrate", [*python, "airflow", "db", "migrate"])
        self._once("airflow-pools", [*python, "airflow", "pools", "import", str(self.root / "profiles" / "pools.json")])
        self._start("airflow-api-server", [*python, "airflow", "api-server", "--workers", "1"])
        self._start("airflow-scheduler", [*python, "airflow", "scheduler", "--skip-serve-logs"])
        self._start("airflow-dag-processor", [*python, "airflow", "dag-processor"])
        self._start("airflow-triggerer", [*python, "airflow", "triggerer", "--skip-serve-logs"])
        self._answer("mlflow", f"http://127.0.0.1:{self.ports.mlflow}/health")
        self._answer("airflow-api-server", f"http://127.0.0.1:{self.ports.airflow}/api/v2/monitor/health")

    def _once(self, name: str, argv: list[str]) -> None:
        log = self.logs / f"{name}.log"
        with log.open("ab") as out:
            done = subprocess.run(
                argv, cwd=self.root, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False
            )
        if done.returncode:
            raise ServiceFailed(name=name, detail=f"exit status {done.returncode}", log=log)

    def _start(self, name: str, argv: list[str]) -> None:
        if running(self.run / f"{name}.pid"):
            return
        log = self.logs / f"{name}.log"
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv, cwd=self.root, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        started = psutil.Process(child.pid).create_time()
        (self.run / f"{name}.pid").write_text(json.dumps({"pid": child.pid, "started": started}))

    def _answer(self, name: str, address: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if not running(self.run / f"{name}.pid"):
                raise ServiceFailed(name=name, detail="it ended", log=self.logs / f"{name}.log")
            try:
                with urllib.request.urlopen(address, timeout=2):  # noqa: S310 - a loopback address made above
                    return
            except OSError:
                time.sleep(0.3)
        raise ServiceFailed(name=name, detail=f"no answer in {READY_SECONDS:.0f} s", log=self.logs / f"{name}.log")


def running(path: Path) -> psutil.Process | None:
    """Return the process of a pid file if it is still that process: a reused pid has another start time."""
    try:
        noted = json.loads(path.read_text())
        process = psutil.Process(noted["pid"])
        if abs(process.create_time() - noted["started"]) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, psutil.NoSuchProcess):
        pass
    return None


def down(settings: Settings) -> list[str]:
    """Stop everything that has a pid file, children included; returns the names of what was running."""
    notes = sorted((settings.home / "run").glob("*.pid"))
    found = {path.stem: process for path in notes if (process := running(path))}
    family = [member for process in found.values() for member in [process, *process.children(recursive=True)]]
    for member in family:
        _signal(member, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for member in alive:
        _signal(member, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)
    for path in [*notes, settings.home / "ports.json"]:
        path.unlink(missing_ok=True)
    return list(found)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
