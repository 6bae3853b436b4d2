"""A vault's address on each database, and a real PostgreSQL of our own for the slow tier."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

SECRET = bytes(range(32))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """Start PostgreSQL in a folder of its own, on a unix socket only; give that folder."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("PostgreSQL is missing, and this tier tests the vault on it: run apt-get install -y postgresql")
    binaries = found[-1].parent
    # unix socket paths end at 107 characters, and the server's own user must reach the folder
    home = Path(tempfile.mkdtemp(prefix="pg"))
    # it refuses to run as root; Debian's package brings a user for it
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    os.chown(home, user.pw_uid, user.pw_gid)

    def call(*command: str) -> None:
        extra = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}
        subprocess.run(command, check=True, cwd=home, stdout=subprocess.DEVNULL, **extra)

    options = f"-c listen_addresses= -c unix_socket_directories={home} -c fsync=off"
    try:
        call(f"{binaries}/initdb", "-D", f"{home}/data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
        call(f"{binaries}/pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")
        yield home
    finally:
        if (home / "data" / "postmaster.pid").exists():
            call(f"{binaries}/pg_ctl", "-D", f"{home}/data", "-w", "-m", "fast", "stop")
        shutil.rmtree(home)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.faults)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a vault that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/vault.sqlite"
    home = request.getfixturevalue("postgres")
    name = f"vault_{abs(hash(request.node.nodeid)):x}"
    connection = psycopg2.connect(host=str(home), user="postgres", dbname="postgres")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    connection.close()
    return f"postgresql+psycopg2://postgres@/{name}?host={home}"
