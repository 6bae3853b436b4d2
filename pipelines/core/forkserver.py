"""Start ``corpus`` commands by forking a process that has imported the libraries already (Linux).

Importing torch, transformers and mlflow takes up to eight CPU seconds, and a run starts hundreds of commands. The
server imports the libraries once, but no code of this package: a command imports that from its own working directory,
which may be another commit.

``python -m pipelines`` passes its arguments, environment and open files to the server in ``CORPUS_FORKSERVER`` and
waits (:func:`delegate`); without a server, it runs the command itself. As for any process, signals are passed on, the
exit status is the command's, and the command ends when the waiting process is killed.

Run it as a script: ``python -P pipelines/core/forkserver.py SOCKET [LIBRARY ...]``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "CORPUS_FORKSERVER"
# The id of a process that the server forked: it runs its command, and delegates those that it starts.
FORKED = "CORPUS_FORKED"
LIBRARIES = (
    "accelerate",
    "cryptography.hazmat.primitives.ciphers.aead",
    "dvc.dependency",
    "dvc.repo",
    "httpx",
    "mlflow",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "pydantic_ai.models.anthropic",
    "pydantic_ai.models.google",
    "pydantic_ai.models.openai",
    "rich.console",
    "ruamel.yaml",
    "scipy.stats",
    "sklearn.metrics",
    "sqlalchemy.orm",
    "torch",
    "transformers.modeling_utils",
    "typer",
)
# torch and what imports it, by the first part of the name.
TORCH = frozenset({"accelerate", "torch", "transformers"})
# Libraries read variables with these prefixes when they are imported: a command that sets others starts by itself.
READ_AT_IMPORT = ("CUDA", "HF_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH", "TOKENIZERS_", "TORCH",
                  "TQDM_", "TRANSFORMERS_")  # fmt: skip
# Seconds between SIGTERM and SIGKILL for a command whose waiting process was killed.
GRACE = 10.0
# Seconds within which a client sends its request; it writes the request at once.
REQUEST_SECONDS = 10.0
LENGTH = struct.Struct("!I")
STATUS = struct.Struct("!i")
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Request:
    """A client's request to run a command: arguments, working directory, environment and umask."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    umask: int


@dataclass
class Command:
    """A running command of the server; ``deadline``: when it gets SIGKILL because its client has disconnected."""

    pid: int
    client: socket.socket | None
    deadline: float | None = None


class Server:
    """The fork server: accept requests to run a command on a Unix socket, and fork a process for each."""

    def __init__(self, path: Path, *, before: Mapping[str, str]) -> None:
        """Listen on ``path``; ``before`` is the environment before the libraries were imported."""
        self._environment = _read_at_import(before)
        self._added = {name: value for name, value in os.environ.items() if name not in before}
        self._selector = selectors.DefaultSelector()
        self._commands: dict[int, Command] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        # under its final name only when it listens
        folder = os.open(path.parent, os.O_PATH)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        self._listener.bind(f"/proc/self/fd/{folder}/{unfinished.name}")
        self._listener.listen(64)
        os.close(folder)
        unfinished.chmod(0o600)
        unfinished.rename(path)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve(self) -> Request:
        """Serve requests until the process ends; in a forked child, return the request that the child must run."""
        while True:
            for key, _ in self._selector.select(timeout=self._overdue()):
                if key.fileobj is self._listener:
                    if (request := self._accept()) is not None:
                        return request
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj, self._commands[key.data])
                else:
                    self._reap(key.fd, self._commands.pop(key.data))

    def _overdue(self) -> float | None:
        """Kill commands whose time after SIGTERM is up; return the seconds until the next one."""
        now, waits = time.monotonic(), []
        for command in self._commands.values():
            if command.deadline is None:
                continue
            if command.deadline <= now:
                _signal(command.pid, signal.SIGKILL)
                command.deadline = None
            else:
                waits.append(command.deadline - now)
        return min(waits, default=None)

    def _accept(self) -> Request | None:
        client, _ = self._listener.accept()
        client.settimeout(REQUEST_SECONDS)
        files: list[int] = []
        try:
            request, files = _received(client)
            # a command that another one starts inherits what the libraries added
            environment = dict(request.env.items() - self._added.items())
            if differing := self._environment.items() ^ _read_at_import(environment).items():
                names = ", ".join(sorted({name for name, _ in differing}))
                sys.stderr.write(f"declined a command with other values of {names}\n")
                client.sendall(b"-")
                client.close()
                return None
            client.sendall(b"+")
            client.settimeout(None)
            pid = os.fork()
            if pid == 0:
                self._become(request, client, files)
                return request
        except (OSError, ValueError, TypeError, KeyError) as error:
            sys.stderr.write(f"declined a damaged request: {type(error).__name__}\n")
            client.close()
            return None
        finally:
            for file in files:
                os.close(file)
        self._commands[pid] = Command(pid, client)
        self._selector.register(client, selectors.EVENT_READ, data=pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, data=pid)
        return None

    def _become(self, request: Request, client: socket.socket, files: list[int]) -> None:
        """Give a forked process the files, session and environment of its request."""
        self._selector.close()
        self._listener.close()
        for command in self._commands.values():
            if command.client is not None:
                command.client.close()
        client.close()
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.environ.clear()
        # variables that a library sets for itself when it is imported
        os.environ.update(self._added | request.env | {FORKED: str(os.getpid())})
        os.umask(request.umask)

    def _hear(self, client: socket.socket, command: Command) -> None:
        """Pass on a signal; a closed connection means that the waiting process was killed."""
        try:
            received = client.recv(16)
        except OSError:
            received = b""
        for number in received:
            if number in PASSED_ON:
                _signal(command.pid, number)
        if not received:
            self._drop(client)
            command.client = None
            command.deadline = time.monotonic() + GRACE
            _signal(command.pid, signal.SIGTERM)

    def _reap(self, file: int, command: Command) -> None:
        """Send a command's wait status to its client."""
        self._selector.unregister(file)
        os.close(file)
        _, status = os.waitpid(command.pid, 0)
        if command.client is not None:
            with contextlib.suppress(OSError):
                command.client.sendall(STATUS.pack(status))
            self._drop(command.client)
        else:
            # what the command started must not outlive it
            _signal(command.pid, signal.SIGKILL)

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()


def _received(client: socket.socket) -> tuple[Request, list[int]]:
    """Return a request and the client's three standard files."""
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    head, files, *_ = socket.recv_fds(client, LENGTH.size, 3)
    try:
        if uid != os.getuid() or len(head) != LENGTH.size or len(files) != 3:
            raise ValueError
        wanted, body = LENGTH.unpack(head)[0], b""
        while len(body) < wanted:
            if not (part := client.recv(wanted - len(body))):
                raise ValueError
            body += part
        return Request(**json.loads(body)), files
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if value and name.startswith(READ_AT_IMPORT)}


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def import_libraries(libraries: Sequence[str]) -> list[str]:
    """Import the libraries that are installed; return the names of those that are not."""
    # torch asks the driver for devices at import, and a forked process could not use them afterwards
    gpu = Path("/dev/nvidiactl").exists()
    missing = []
    for name in libraries:
        if gpu and name.split(".")[0] in TORCH:
            continue
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def run(path: Path, libraries: Sequence[str]) -> None:
    """Import the libraries, serve requests, and run the command in each forked process; exit 0 if forking is unsafe."""
    before = dict(os.environ)
    lacking = import_libraries(libraries)
    sys.stderr.write(f"imported {len(libraries) - len(lacking)} libraries; missing: {', '.join(lacking) or 'none'}\n")
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - no paths are needed
        sys.stderr.write("A library started a thread at import: commands import their libraries themselves.\n")
        return
    gc.collect()
    gc.freeze()
    request = Server(path, before=before).serve()
    os._exit(_main(request))


def _main(request: Request) -> int:
    """Run a request's command in this process and return its exit status; what it printed is flushed."""
    try:
        os.chdir(request.cwd)
        sys.argv = request.argv
        # as `python -m pipelines` does
        sys.path.insert(0, request.cwd)
        runpy.run_module("pipelines", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        # the hook of the command, which prints no messages
        sys.excepthook(*sys.exc_info())
        status = 1
    # as at the end of a process, but without half a second of freeing the libraries
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


# The connection ended without an exit status (sysexits.h: try again later).
LOST = 75


def delegate() -> None:
    """Run this process's command in the fork server and exit with its status; return if no server accepts it."""
    path = os.environ.get(ADDRESS)
    if not path or os.environ.get(FORKED) == str(os.getpid()):
        return
    with contextlib.suppress(OSError):
        server = _connect(Path(path))
        number = _wait(server)
        if number is not None:
            _end(number)


def _connect(path: Path) -> socket.socket:
    """Send this process's request."""
    server = socket.socket(socket.AF_UNIX)
    # the folder's descriptor keeps the address below the 108 bytes that a socket's address may have
    folder = os.open(path.parent, os.O_PATH)
    try:
        server.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    os.umask(umask := os.umask(0o077))
    body = json.dumps({"argv": sys.argv, "cwd": str(Path.cwd()), "env": dict(os.environ), "umask": umask}).encode()
    server.settimeout(REQUEST_SECONDS)
    socket.send_fds(server, [LENGTH.pack(len(body))], [0, 1, 2])
    server.sendall(body)
    if server.recv(1) != b"+":
        raise ConnectionRefusedError
    server.settimeout(None)
    return server


def _wait(server: socket.socket) -> int | None:
    """Pass signals on until the command ends; return its wait status, or ``None`` if the server ended first."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            server.sendall(bytes([number]))

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    if os.environ.get("CORPUS_DIES_WITH_PARENT"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    answer = b""
    with contextlib.suppress(ConnectionError):
        while len(answer) < STATUS.size and (received := server.recv(STATUS.size - len(answer))):
            answer += received
    if len(answer) < STATUS.size:
        sys.stderr.write("The fork server ended while it ran this command.\n")
        sys.exit(LOST)
    return int(STATUS.unpack(answer)[0])


def _end(status: int) -> None:
    """End this process as the command ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:] or LIBRARIES)
