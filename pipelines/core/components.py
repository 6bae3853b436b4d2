"""Wait for, detect and stop the processes of the embedded deployment's components (such as Airflow and MLflow).

Each component runs in its own session, with a log and a pid file under ``var``: ``airflow standalone`` leaves orphans,
and an open port does not show which process listens on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.process import write_private

# Time between SIGTERM and SIGKILL.
STOP_SECONDS = 15.0


class ServiceFailed(ConfigError):
    """A component of the embedded deployment (such as Airflow or MLflow) did not start."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Let one deployment of this host at a time choose free ports and begin to listen on them."""
    folder = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def free_port(port: int, *, besides: Collection[int] = ()) -> int:
    """Return ``port``, or the first higher one, that nothing listens on at the loopback interface."""
    return next(each for each in range(port, 1 << 16) if each not in besides and is_free(each))


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of the loopback interface."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@dataclass(frozen=True)
class Ports:
    """The ports of the embedded deployment's components, which ``var/ports.json`` stores for all commands."""

    airflow: int
    mlflow: int
    postgres: int

    @classmethod
    def choose(cls, home: Path, *, besides: Collection[int] = ()) -> Ports:
        """Return the ports of the components of a home, all different, and store them.

        While components run, which know each other's addresses, the stored ports are kept; else another one takes the
        place of a port on which something listens. ``besides``: ports of components that are no part of this project.
        """
        path, usual = home / "ports.json", {"airflow": "8080", "mlflow": "5000", "postgres": "5432"}
        known = _chosen(path)
        ports = known if any(map(running, (home / "run").glob("*.pid"))) else {}
        for name in [name for name in usual if name not in ports]:
            wanted = known.get(name) or int(os.environ.get(f"{name.upper()}_PORT", usual[name]))
            ports = {**ports, name: free_port(wanted, besides={*besides, *ports.values()})}
        chosen = cls(**ports)
        write_private(path, json.dumps(asdict(chosen)) + "\n")
        return chosen


def _chosen(path: Path) -> dict[str, int]:
    try:
        ports = json.loads(path.read_text())
        return {field.name: int(ports[field.name]) for field in fields(Ports) if field.name in ports}
    except (OSError, ValueError, TypeError):
        return {}


def answers(address: str, *, host: str | None = None) -> bool:
    """Return whether the component at ``address`` accepts a request; ``host`` replaces the request's Host header."""
    request = urllib.request.Request(address, headers={"Host": host} if host else {})  # noqa: S310 - loopback
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10):  # noqa: S310
        return True
    return False


def wait(name: str, ready: Callable[[], bool], *, note: Path, log: Path, seconds: float) -> None:
    """Wait until a component of the embedded deployment is ready; ``note`` is its pid file."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not running(note):
            raise ServiceFailed(name=name, detail="its process ended", log=log)
        if ready():
            return
        time.sleep(0.3)
    raise ServiceFailed(name=name, detail=f"no answer in {seconds:.0f} s", log=log)


def running(path: Path) -> psutil.Process | None:
    """Return the process in a pid file if it still runs, else ``None``; its start time detects a reused process id."""
    try:
        noted = json.loads(path.read_text())
        process = psutil.Process(noted["pid"])
        # a pid file written by the component itself has no start time: it was written while the component started
        started = noted.get("started") or min(process.create_time(), path.stat().st_mtime)
        if abs(process.create_time() - started) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        pass
    return None


def end_left(path: Path) -> None:
    """End the processes that the component of a pid file left in its session when it was killed.

    The workers of a killed scheduler hold its connection to the database open, and with it the locks of the Dag runs
    that it was looking at: the next scheduler would skip these runs for as long as the workers live.
    """
    try:
        noted = json.loads(path.read_text())
        session, started = int(noted["pid"]), float(noted.get("started") or path.stat().st_mtime)
    except (OSError, ValueError, KeyError, TypeError):
        return
    # a leader that runs is the component or a stranger; before the last boot, the number was another session's
    if session < 1 or running(path) or _leads(session) or started < psutil.boot_time():
        return
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session:
                left.append(process)
    _stop(left, signal.SIGKILL)


def _leads(session: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(session).status() != psutil.STATUS_ZOMBIE
    return False


def exported(home: Path) -> dict[str, str]:
    """Return the variables of the services that were started, as ``services.env`` has them; none if none were."""
    try:
        texts = shlex.split((home / "services.env").read_text())
    except (OSError, ValueError):
        return {}
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def down(settings: Settings) -> list[str]:
    """Stop every component that has a pid file, and its child processes; return the names of the stopped components."""
    notes = sorted((settings.home / "run").glob("*.pid"))
    for path in notes:
        end_left(path)
    processes = {path.stem: process for path in notes if (process := running(path))}
    database = processes.get("postgres")
    clients = [process for process in processes.values() if process is not database]
    _stop([member for process in clients for member in [process, *process.children(recursive=True)]], signal.SIGTERM)
    # PostgreSQL waits for its last connection after SIGTERM, and its connection processes must not be signalled
    _stop([database] if database else [], signal.SIGINT)
    for path in [*notes, settings.home / "ports.json", settings.home / "services.env"]:
        path.unlink(missing_ok=True)
    return list(processes)


def _stop(family: list[psutil.Process], number: int) -> None:
    for member in family:
        _signal(member, number)
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for member in alive:
        _signal(member, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
