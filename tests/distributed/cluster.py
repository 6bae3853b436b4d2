"""The containers of ``docker/compose.yaml`` as processes of this host: two Celery workers with homes of their own.

Environment, secrets, databases and queues come from the files in ``docker/``; only addresses and folders are replaced.
Differences: PostgreSQL, Redis and lighttpd are Debian's, the store is moto, MLflow and Airflow have the logins of the
embedded deployment, and one worker has the queues ``default`` and ``internet``, the other ``default`` and ``gpu``. Root
gives each worker a host name and process ids of its own.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from crisis_corpus.home import TRACKING
from pipelines.core.components import answers
from pipelines.core.config.settings import ADMIN, APPROVER, Settings, create_passwords
from pipelines.operate.services import mlflow_app
from pipelines.operate.services.airflow_api import Login
from pipelines.operate.services.postgres import AS_NOBODY, UNPRIVILEGED
from pipelines.workspace.git import git
from tests.airflow_client import AirflowClient
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
DOCKER = HERE.parents[1] / "docker"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
# The services of compose whose queues each worker serves.
WORKERS = {"fetch": "default,internet", "gpu": "default,gpu"}
# What all homes share, as docs/howto/containers.md says.
SHARED = ("annotation", "answer_bundles", "graph", "releases", "requests", "takedowns")
# A busy machine takes long to import Airflow.
READY_SECONDS = 300.0
SERVERS = ("postgres", "redis", "store", "git", "mlflow", "api", "sandbox")
SIMPLE = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
PYTHON = [sys.executable, "-m"]
# Airflow's own defaults make a test wait for minutes; the embedded deployment sets the same.
# The image of Airflow has asyncpg.
FASTER = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": "",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__CELERY__SYNC_PARALLELISM": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
}


def missing() -> list[str]:
    """Return the programs and libraries that this host lacks."""
    found = [name for name in ("redis-server", "lighttpd") if shutil.which(name) is None]
    found += [] if _postgres_programs() else ["postgresql"]
    try:
        import airflow.providers.celery  # noqa: F401
    except ImportError:
        found.append("apache-airflow-providers-celery")
    return found


def _postgres_programs() -> Path | None:
    """Return the folder of the newest PostgreSQL server of this host."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


class Cluster:
    """Servers, Airflow and two workers below ``folder``; ``root`` is a checkout."""

    def __init__(self, folder: Path, *, root: Path, reddit: Path, secret: str, sandbox_port: int) -> None:
        self.folder, self.root, self.reddit = folder, root, reddit
        self.ports = {name: free_port() for name in SERVERS} | {"sandbox": sandbox_port}
        self.logs = folder / "output"
        self.secrets = folder / "secrets"
        self.down_for_now = folder / "store.down"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._began: dict[str, int] = {}
        self._stopped: set[str] = set()
        self.logs.mkdir(parents=True)
        self._write_secrets(secret)
        for name, module in (("corpus", "pipelines"), ("airflow", "airflow")):
            program = self.home("bin") / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
            program.chmod(0o755)

    def up(self) -> None:
        """Start everything, in the order of compose's ``depends_on``."""
        self.start("postgres")
        self._databases()
        for name in ("redis", "store", "git", "sandbox", "mlflow"):
            self.start(name)
        for home in (*WORKERS, "control"):
            self._share(home)
        self._once("corpus-init", home="fetch", argv=self._with_secrets(*SERVICES["corpus-init"]["command"]))
        self._once("airflow-init", home="control", argv=[*PYTHON, "airflow", "db", "migrate"])
        for name in ("api", "dag-processor", "scheduler"):
            self.start(name)
        self._once("corpus-setup", home="control", argv=self._with_secrets(*SERVICES["corpus-setup"]["command"]))
        for name in WORKERS:
            self.start(name)

    def _share(self, home: str) -> None:
        self.home(home).mkdir(mode=0o700)
        for name in SHARED:
            (self.folder / "shared" / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.home(home) / name).symlink_to(self.folder / "shared" / name)

    def revive(self) -> None:
        """Start parts again that have ended by themselves, as ``restart: unless-stopped`` does."""
        for name, process in list(self._processes.items()):
            if name not in self._stopped and process.poll() is not None:
                say(f"{name} ended with {process.returncode}")
                self.start(name)

    def down(self) -> None:
        """Stop everything that was started, the servers last."""
        for name in reversed(self._processes):
            self.stop(name)

    def start(self, name: str) -> None:
        """Start a part and wait until it answers."""
        say(f"starting {name}")
        self._stopped.discard(name)
        log = self.logs / f"{name}.log"
        self._began[name] = log.stat().st_size if log.exists() else 0
        self._processes[name] = self._launch(name)
        self._wait(name)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Send a signal to a part and wait for its end; what it leaves behind is killed."""
        process = self._processes[name]
        self._stopped.add(name)
        # PostgreSQL waits for its last connection after SIGTERM
        number = signal.SIGINT if (name, number) == ("postgres", signal.SIGTERM) else number
        family = [process.pid, *(child.pid for child in _family(process.pid))]
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill(self, name: str) -> None:
        """Kill a part and all its processes at once, as a failure of its host would."""
        self._stopped.add(name)
        for child in reversed(_family(self._processes[name].pid)):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self._processes[name].kill()
        self._processes[name].wait()

    def restart(self, name: str) -> None:
        """Stop a part as its init system would, and start it again."""
        self.stop(name)
        self.start(name)

    @contextmanager
    def without_store(self) -> Iterator[None]:
        """Let the store answer every request with 503."""
        self.down_for_now.touch()
        try:
            yield
        finally:
            self.down_for_now.unlink()

    def home(self, name: str) -> Path:
        return self.folder / name

    @contextmanager
    def as_worker(self, name: str) -> Iterator[Settings]:
        """Give this process the environment of a worker's tasks, and yield its settings."""
        before = dict(os.environ)
        files = [path for path in self.secrets.iterdir() if path.name[0].isupper()]
        secrets = {path.name: path.read_text() for path in files if path.stat().st_size}
        os.environ.update(self.environment("worker", home=name) | secrets)
        try:
            yield Settings.from_env()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def client(self) -> AirflowClient:
        """Return a client of Airflow's API that may do everything."""
        return AirflowClient(self.address("api"), login=self._login())

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def environment(self, service: str, *, home: str) -> dict[str, str]:
        """Return the environment of a service of compose, with the places of this host."""
        places = {
            "/run/secrets": str(self.secrets), "/var/lib/corpus": str(self.home(home)), "/opt/corpus": str(self.root),
            "http://api-server:8080": self.address("api"), "http://localhost:8080": self.address("api"),
            "http://store:8333": self.address("store"), "http://git:3000": self.address("git"),
            "http://mlflow:5000": self.address("mlflow"), "$$": "$", "${CORPUS_PROFILE:-}": "sandbox",
        }  # fmt: skip
        given = dict(SERVICES[service]["environment"])
        # of the images
        given |= dict(re.findall(r"\b([A-Z][A-Z0-9_]+)=(\S+)", _image_environment()))
        for old, new in places.items():
            given = {name: value.replace(old, new) for name, value in given.items()}
        given.pop("CORPUS_LABEL_STUDIO_URL", None)
        paths = (str(self.home("bin")), str(Path(sys.executable).parent), os.environ["PATH"])
        # the kernels of BLAS, whose last bits differ, as of the single host
        blas = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
        return {
            **blas, **given, **FASTER,
            "AIRFLOW__CORE__AUTH_MANAGER": SIMPLE,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{APPROVER}:user",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords()),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder / "logs"),
            "AIRFLOW_HOME": str(self.home(home) / "airflow"),
            "CORPUS_PYTHON": sys.executable,
            "CORPUS_SANDBOX": str(self.reddit),
            "HOME": str(self.home(home)),
            "LANG": "C.UTF-8",
            "MLFLOW_TRACKING_USERNAME": TRACKING,
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": str(self.root),
            "SECRETS": str(self.secrets),
        }  # fmt: skip

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        port = str(self.ports.get(name, ""))
        if name == "postgres":
            options = ("listen_addresses=127.0.0.1", f"unix_socket_directories={self.home('pg')}", "fsync=off")
            argv = [_postgres("postgres"), "-D", str(self.home("pg") / "data"), "-p", port]
            argv += [part for option in options for part in ("-c", option)]
            return self._popen(name, [*_as_nobody(), *argv], env=os.environ)
        if name == "redis":
            self.home("redis").mkdir(exist_ok=True)
            password = (self.secrets / "redis").read_text()
            text = f"port {port}\nbind 127.0.0.1\nrequirepass {password}\ndir {self.home('redis')}\n"
            return self._popen(name, ["redis-server", "-"], env=os.environ, given=text)
        if name == "store":
            program = HERE.parent / "store" / "s3_server.py"
            return self._popen(name, [sys.executable, str(program), port, "--down-while", str(self.down_for_now)],
                               env=os.environ)  # fmt: skip
        if name == "git":
            return self._popen(name, ["lighttpd", "-D", "-f", str(self._git_settings())], env=os.environ)
        if name == "sandbox":
            environment = self.environment("worker", home="reddit") | {"CORPUS_SANDBOX_PORT": port}
            return self._popen(name, [*PYTHON, "pipelines", "sandbox", "serve"], env=environment)
        if name == "mlflow":
            argv = [*PYTHON, "uvicorn", "--factory", f"{mlflow_app.__name__}:app", "--port", port, "--no-access-log"]
            return self._popen(name, argv, env=self._of_mlflow())
        if name in WORKERS:
            return self._worker(name)
        service = {"api": "api-server"}.get(name, name)
        more = {"AIRFLOW__API__PORT": port, "AIRFLOW__API__HOST": "127.0.0.1"} if name == "api" else {}
        argv = [*PYTHON, "airflow", *SERVICES[service]["command"]]
        argv += ["--workers", "1"] if name == "api" else ["--skip-serve-logs"] if name == "scheduler" else []
        return self._popen(name, argv, env=self.environment(service, home="control") | more)

    def _worker(self, name: str) -> subprocess.Popen[bytes]:
        environment = self.environment("worker-fetch" if name == "fetch" else "worker-gpu", home=name)
        lines = (DOCKER / "sandbox.env").read_text().replace("8790", str(self.ports["sandbox"])).splitlines()
        environment |= dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        environment["CORPUS_DUMPS"] = str(self.reddit / "dumps")
        argv = [*PYTHON, "airflow", "celery", "worker", "--queues", WORKERS[name], "--concurrency", "1",
                "--celery-hostname", f"{name}@here", "--skip-serve-logs"]  # fmt: skip
        if os.geteuid() == 0:
            apart = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
            argv = [*apart, "sh", "-c", f'hostname {name}; exec "$@"', "sh", *argv]
        return self._popen(name, argv, env=environment)

    def _of_mlflow(self) -> dict[str, str]:
        home = self.home("mlflow")
        home.mkdir(exist_ok=True)
        return {
            **self.environment("worker", home="mlflow"),
            mlflow_app.STORE: (self.secrets / "MLFLOW_BACKEND_STORE_URI").read_text(),
            mlflow_app.ARTIFACTS: str(home / "artifacts"),
            "MLFLOW_TRACKING_PASSWORD": (self.secrets / "MLFLOW_TRACKING_PASSWORD").read_text(),
        }

    def _popen(
        self, name: str, argv: list[str], *, env: Mapping[str, str], given: str | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as out:
            child = subprocess.Popen(
                argv, cwd=self.root, env=dict(env), stdin=subprocess.PIPE if given else subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        if given and child.stdin:
            child.stdin.write(given.encode())
            child.stdin.close()
        return child

    def _git_settings(self) -> Path:
        home, settings = self.home("git"), self.folder / "git.conf"
        if not home.exists():
            git("init", "--quiet", "--bare", str(home / "corpus.git"))
        places = {
            "3000": str(self.ports["git"]), "/run/secrets": str(self.secrets), "/srv/git": str(home),
            "server.document-root": 'server.bind = "127.0.0.1"\nserver.document-root',
        }  # fmt: skip
        text = (DOCKER / "git.conf").read_text()
        for old, new in places.items():
            text = text.replace(old, new)
        settings.write_text(text)
        return settings

    def _once(self, service: str, *, home: str, argv: list[str]) -> None:
        say(f"{service} in the home {home}")
        child = self._popen(service, argv, env=self.environment(service, home=home) | {
            "CORPUS_SANDBOX_PORT": str(self.ports["sandbox"])})  # fmt: skip
        assert child.wait(READY_SECONDS) == 0, f"{service} failed: {self._tail(service)}"

    def run(self, *argv: str, home: str = "fetch") -> str:
        """Run a command of ``corpus`` or ``airflow`` with the addresses and keys of all parts; return its output."""
        service = "api-server" if argv[0] == "airflow" else "corpus-setup"
        done = subprocess.run(
            self._with_secrets(*argv), cwd=self.root, text=True, capture_output=True, check=False,
            env=self.environment(service, home=home) | {"CORPUS_SANDBOX_PORT": str(self.ports["sandbox"])},
        )  # fmt: skip
        assert done.returncode == 0, f"{argv[:3]} exited with {done.returncode}: {done.stderr[-2000:]}"
        return done.stdout

    def _with_secrets(self, *argv: str) -> list[str]:
        return ["sh", str(DOCKER / "with_secrets.sh"), *(part.replace("$$", "$") for part in argv)]

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready(name):
            code = self._processes[name].poll()
            assert code is None, f"{name} ended with {code}: {self._tail(name)}"
            assert time.monotonic() < deadline, f"{name} did not answer: {self._tail(name)}"
            time.sleep(0.5)

    def _ready(self, name: str) -> bool:
        if name == "postgres":
            done = subprocess.run(
                [_postgres("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.ports[name])], check=False
            )
            return done.returncode == 0
        if name in WORKERS:
            # the log of an earlier process is before it
            return b" ready." in (self.logs / f"{name}.log").read_bytes()[self._began[name] :]
        if name in {"scheduler", "dag-processor"}:
            return True
        place = {"api": "/api/v2/monitor/health", "mlflow": "/health", "sandbox": "/_sandbox/requests"}.get(name)
        return answers(self.address(name) + place) if place else _listens(self.ports[name])

    def _tail(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]

    def _databases(self) -> None:
        """Create databases and their owners with the script of the containers, and MLflow's tables."""
        server = {"PGHOST": str(self.home("pg")), "PGPORT": str(self.ports["postgres"]), "POSTGRES_USER": "postgres"}
        environment = {**os.environ, **server, "SECRETS": str(self.secrets)}
        subprocess.run(["sh", str(DOCKER / "databases.sh")], env=environment, check=True)
        address = (self.secrets / "MLFLOW_BACKEND_STORE_URI").read_text()
        subprocess.run([*PYTHON, "mlflow", "db", "upgrade", address], cwd=self.root, check=True, capture_output=True)

    def _write_secrets(self, secret: str) -> None:
        runpy.run_path(str(DOCKER / "make_secrets.py"))["write"](self.secrets, sandbox=True)
        for path in self.secrets.iterdir():
            text = path.read_text()
            for name, port in (("postgres", 5432), ("redis", 6379)):
                text = text.replace(f"@{name}:{port}", f"@127.0.0.1:{self.ports[name]}")
            path.unlink()
            path.write_text(secret if path.name == "corpus" else text)
            path.chmod(0o600)
        # the login of this Airflow, and of its server of models
        password = json.loads(self._passwords().read_text())[ADMIN]
        (self.secrets / "CORPUS_AIRFLOW_PASSWORD").write_text(password)
        data = self.home("pg") / "data"
        data.parent.mkdir()
        if os.geteuid() == 0:
            os.chown(data.parent, UNPRIVILEGED, UNPRIVILEGED)
        argv = [*_as_nobody(), _postgres("initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256",
                "--auth-local=trust", "--pwfile=/dev/stdin", "-E", "UTF8", "--locale=C"]  # fmt: skip
        given = (self.secrets / "postgres_admin").read_bytes()
        subprocess.run(argv, input=given, check=True, stdout=subprocess.DEVNULL)

    def _passwords(self) -> Path:
        return create_passwords(self.folder / "logins")

    def _login(self) -> Login:
        return Login(user=ADMIN, password=(self.secrets / "CORPUS_AIRFLOW_PASSWORD").read_text())


def say(text: str) -> None:
    """Print what the harness waits for."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def _image_environment() -> str:
    """Return the ``ENV`` instructions of the images ``airflow`` and ``pipelines``."""
    text = (DOCKER / "Dockerfile").read_text().partition("AS gpu")[0]
    return "\n".join(re.findall(r"^ENV .*?(?<!\\)$", text, re.MULTILINE | re.DOTALL))


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _as_nobody() -> tuple[str, ...]:
    return AS_NOBODY if os.geteuid() == 0 else ()


def _postgres(name: str) -> str:
    folder = _postgres_programs()
    assert folder is not None
    return str(folder / name)


def _listens(port: int) -> bool:
    return any(c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in psutil.net_connections("tcp"))
