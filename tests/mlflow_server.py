"""Start MLflow servers, and share one among the tests of a session that do not mind each other's rows.

The program ``mlflow server`` imports MLflow twice, in itself and in its worker: 7 seconds of a processor. Here the
application of the worker runs alone.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TextIO
from urllib.request import urlopen

from tests import mlflow_database
from tests.built_once import built_once, one_at_a_time
from tests.ports import free_port

# Arguments: the port, the database, the folder of the files, and the lock of the users. It sets what `mlflow server`
# hands to its workers. Collecting garbage takes a fifth of the imports' time.
PROGRAM = """
import gc
gc.disable()
import fcntl, os, sys, threading, time
from mlflow.server import constants
port, store, files, used = sys.argv[1:]
os.environ |= {
    constants.BACKEND_STORE_URI_ENV_VAR: store, constants.REGISTRY_STORE_URI_ENV_VAR: store,
    constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/", constants.ARTIFACTS_DESTINATION_ENV_VAR: files,
    constants.SERVE_ARTIFACTS_ENV_VAR: "true",
}
import uvicorn
from mlflow.server.fastapi_app import app
gc.freeze()
gc.enable()
def end_with_the_last_user():
    with open(used) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os._exit(0)
            except BlockingIOError:
                time.sleep(0.5)
threading.Thread(target=end_with_the_last_user, daemon=True).start()
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
"""
PATIENCE = 180  # seconds for a server to begin on a busy machine
_used: list[TextIO] = []
_started: list[subprocess.Popen[bytes]] = []


@contextmanager
def serving(home: Path, *, files: Path) -> Iterator[str]:
    """Serve the database of a folder to one test, give the address, and end the server.

    Args:
        home: has the database ``mlflow.sqlite``.
        files: where the server stores the files of runs and models.
    """
    with tempfile.NamedTemporaryFile("w", prefix="used-by-") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        server, address = _start(home, files=files, used=Path(used.name))
        with server:
            try:
                yield address
            finally:
                server.kill()


@cache
def shared() -> str:
    """Return the address of the server of all workers of the session, whose database was empty at first.

    The worker that started it may end before the others, so the server ends by itself: when no worker has its lock.
    """
    folder = built_once("mlflow-server", mlflow_database.place)
    with one_at_a_time("mlflow-server"):
        _used.append(used := (folder / "used").open("a"))
        # waits for a server that is about to end
        fcntl.flock(used, fcntl.LOCK_SH)
        known = folder / "address"
        if not known.exists() or not _answers(known.read_text()):
            server, address = _start(folder, files=folder / "artifacts", used=folder / "used")
            _started.append(server)
            known.write_text(address)
    return known.read_text()


def _start(home: Path, *, files: Path, used: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "_MLFLOW_"))}
    environment = {**kept, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    argv = [sys.executable, "-P", "-c", PROGRAM, str(port), f"sqlite:///{home}/mlflow.sqlite", str(files), str(used)]
    with (home / f"server-{port}.log").open("wb") as log:
        server = subprocess.Popen(argv, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while not _answers(address := f"http://127.0.0.1:{port}"):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise RuntimeError(f"MLflow did not start: {Path(log.name).read_text()[-2000:]}")
        time.sleep(0.1)
    return server, address


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/health", timeout=10):
            return True
    except OSError:
        return False
