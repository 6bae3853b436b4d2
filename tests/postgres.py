"""A real PostgreSQL of our own for the slow tier, from the wheel that the embedded deployment uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from pipelines.operate.services.postgres import AS_NOBODY, UNPRIVILEGED, program


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """Start PostgreSQL in a folder of its own, on a unix socket only; give that folder."""
    # unix socket paths end at 107 characters
    home = Path(tempfile.mkdtemp(prefix="pg"))
    root = os.geteuid() == 0
    if root:
        os.chown(home, UNPRIVILEGED, UNPRIVILEGED)

    def call(name: str, *argv: str) -> None:
        command = [*(AS_NOBODY if root else ()), program(name), *argv]
        subprocess.run(command, check=True, cwd=home, stdout=subprocess.DEVNULL)

    options = f"-c listen_addresses= -c unix_socket_directories={home} -c fsync=off"
    try:
        call("initdb", "-D", f"{home}/data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
        call("pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")
        yield home
    finally:
        if (home / "data" / "postmaster.pid").exists():
            call("pg_ctl", "-D", f"{home}/data", "-w", "-m", "fast", "stop")
        shutil.rmtree(home)


def database(home: Path, name: str) -> str:
    """Create an empty database on the server of the fixture ``postgres``; return its address."""
    with closing(psycopg2.connect(host=str(home), user="postgres", dbname="postgres")) as connection:
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg2://postgres@/{name}?host={home}"


def address(request: pytest.FixtureRequest, name: str, *, folder: Path) -> str:
    """Return the address of a new database of the kind in ``request.param``: ``sqlite`` or ``postgresql``."""
    if request.param == "sqlite":
        return f"sqlite:///{folder}/{name}.sqlite"
    return database(request.getfixturevalue("postgres"), f"{name}_{abs(hash(request.node.nodeid)):x}")


BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)]
