"""Delegate a ``corpus`` command to the fork server, which has imported the libraries already.

``python -m pipelines`` passes its arguments, environment and open files to the server in ``CORPUS_FORKSERVER`` and
waits; without a server, it runs the command itself. As for any process, signals are passed on, the exit status is the
command's, and the command ends when the waiting process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

from pipelines.forkserver import ADDRESS, FORKED, LENGTH, PASSED_ON, PR_SET_PDEATHSIG, REQUEST_SECONDS, STATUS

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
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))
