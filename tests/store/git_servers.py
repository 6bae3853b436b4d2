"""Serve bare repositories at git addresses: ``file://``, ``git daemon``, and ``host:path`` with a stand-in for SSH."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.workspace.git import git
from tests.ports import free_port


def bare(folder: Path) -> Path:
    """Return a new, empty bare repository, as a git server creates it."""
    git("init", "--quiet", "--bare", str(folder))
    return folder


@contextmanager
def daemon(root: Path) -> Iterator[str]:
    """Serve the repositories below ``root`` with git's own server; yield the address of ``root``."""
    port = free_port()
    argv = [
        "git",
        "daemon",
        "--export-all",
        "--enable=receive-pack",
        "--reuseaddr",
        "--listen=127.0.0.1",
        f"--port={port}",
    ]
    # `git` would start the server as its own child, which outlives it
    argv[:2] = [f"{git('--exec-path')}/git-daemon"]
    with subprocess.Popen([*argv, f"--base-path={root}", str(root)], stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < deadline, "git daemon does not answer"
                    time.sleep(0.05)
            yield f"git://127.0.0.1:{port}"
        finally:
            server.terminate()


def fake_ssh(folder: Path) -> str:
    """Return a command for ``GIT_SSH_COMMAND`` that runs the remote command on this host."""
    script = folder / "ssh"
    script.write_text(
        '#!/bin/sh\n[ "$1" = -G ] && exit 1\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\nshift\neval "$*"\n'
    )
    script.chmod(0o755)
    return str(script)
