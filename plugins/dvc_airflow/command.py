"""Run a ``corpus task`` command as a child process, log its messages, and map its failure to Airflow's retries.

Addresses and secrets come from Airflow connections where environment variables are not set.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from dvc_airflow import settings

if TYPE_CHECKING:
    from airflow.sdk import Context

# sysexits.h, as pipelines/core/errors.py uses them: bad arguments, bad data, refused, bad configuration
HOPELESS = frozenset({64, 65, 77, 78})
# Seconds between SIGTERM and SIGKILL, in which a child can remove its scratch clone.
GRACE = 10.0
# In a log, each state of a progress bar would be a line.
QUIET = {"TQDM_DISABLE": "1"}
TRACEBACK = "Traceback (most recent call last):"
# Maximum lines per log record: longer than a traceback, so that output after a library's traceback is logged in time.
LONGEST = 200

log = logging.getLogger(__name__)


class CommandFailed(RuntimeError):
    """A `corpus` command failed with the exit status ``returncode``.

    ``retry_after`` is the delay in seconds that a server requested, or ``None``.
    """

    def __init__(self, command: str, *, returncode: int, retry_after: float | None = None) -> None:
        super().__init__(f"corpus {command} exited with {returncode}; see its message above in this log")
        self.returncode = returncode
        self.retry_after = retry_after


class ByFailure(RetryPolicy):
    """An Airflow retry policy: bad input fails at once, and a throttled source is retried when it allows that."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        if isinstance(exception, CommandFailed):
            if exception.returncode in HOPELESS:
                return RetryDecision.fail("the same input would fail again")
            if exception.retry_after is not None:
                return RetryDecision.retry(timedelta(seconds=exception.retry_after), reason="the source asks to wait")
        return RetryDecision.default()


def run(*argv: str, given: str | None = None) -> dict[str, Any]:
    """Run ``python -m pipelines <argv>`` from the project's root; return the JSON object that it printed last.

    The child's environment also has the variables that :func:`environment` reads from Airflow. Its stderr
    goes to the task's log while it runs: at INFO, and its last message at ERROR if it fails. The child leads its own
    session, which ends together with this task.
    """
    messages, secrets = Messages(), environment()
    with (
        _stdin(given) as stdin,
        subprocess.Popen(
            [settings.PYTHON, "-m", "pipelines", *argv],
            cwd=settings.ROOT,
            env={**os.environ, **secrets, **QUIET, "CORPUS_HOME": str(settings.HOME), "CORPUS_DIES_WITH_PARENT": "1"},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=messages.sink,
            text=True,
            start_new_session=True,
        ) as child,
    ):
        try:
            messages.follow()
            output, _ = child.communicate()
        finally:
            _end(child)
            messages.close(failed=child.returncode != 0)
    last = output.strip().rpartition("\n")[2]
    result: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    if child.returncode:
        raise CommandFailed(" ".join(argv[:3]), returncode=child.returncode, retry_after=result.get("retry_after"))
    return result


class Messages:
    """A logger of a running child process's stderr, with one log record per message.

    A message is a line with the indented lines below it; a traceback is one message. Each is logged when the next one
    begins. Only the level of the last message depends on the child's exit status.
    """

    def __init__(self) -> None:
        self._source, self.sink = os.pipe()
        self._message: list[str] = []
        self._reader = threading.Thread(target=self._read, name="stderr", daemon=True)

    def follow(self) -> None:
        """Start reading the child's stderr; call this after the child has inherited the other end of the pipe."""
        os.close(self.sink)
        self._reader.start()

    def close(self, *, failed: bool) -> None:
        """Wait for the end of the child's stderr, and log its last message: at ERROR if the child failed."""
        if self._reader.ident is not None:
            # a process that left the child's session may hold the pipe open forever
            self._reader.join(GRACE)
        self._log(logging.ERROR if failed else logging.INFO)

    def _read(self) -> None:
        with open(self._source, "rb") as stream:  # noqa: PTH123 - a descriptor
            for raw in stream:
                self._take(raw.decode(errors="replace").rstrip())

    def _take(self, raw: str) -> None:
        line = raw.rpartition("\r")[2]  # the last state of a line that was rewritten
        if self._message and not self._continues(line):
            self._log(logging.INFO)
        if line:
            self._message.append(line)

    def _continues(self, line: str) -> bool:
        inside = line[:1].isspace() or self._message[0] == TRACEBACK
        return inside and len(self._message) < LONGEST

    def _log(self, level: int) -> None:
        message, self._message = self._message, []
        if message:
            log.log(level, "%s", "\n".join(message))


@contextmanager
def _stdin(given: str | None) -> Iterator[IO[str]]:
    """Yield a file with the input; unlike a pipe, a file cannot fill up and block."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(given or "")
        file.seek(0)
        yield file


def _end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """Return the environment variables that are not set and for which a connection of this Airflow has a value.

    The variables are only for the environment of a child process; Airflow masks the values in the task's log. Airflow
    also answers "not found" while its database does not answer, and a command without an address would use another
    database or skip a step. So connections that were not found are asked for again, after a request that fails then.
    """
    wanted = {
        name: unset
        for name, fields in _fields().items()
        if (unset := {field: variable for field, variable in fields.items() if not os.environ.get(variable)})
    }
    values, missing = _read(wanted)
    if missing and (task := _running_task()) is not None:
        task.get_dagrun_state(task.dag_id, task.run_id)
        values |= _read(missing)[0]
    return values


def _read(wanted: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    values: dict[str, str] = {}
    missing: dict[str, Mapping[str, str]] = {}
    for name, fields in wanted.items():
        connection = _connection(connection_id(name))
        if connection is None:
            missing[name] = fields
        values |= {variable: str(value) for f, variable in fields.items() if (value := getattr(connection, f, None))}
    return values, missing


def _running_task() -> Any:
    from airflow.sdk import get_current_context

    try:
        return get_current_context()["ti"]
    except RuntimeError:
        return None


def connection_id(name: str) -> str:
    """Return the id of an Airflow connection, such as ``corpus_reddit``; the prefix of Dags replaces ``corpus_``."""
    return (settings.PREFIX or "corpus_") + name


def _fields() -> dict[str, dict[str, str]]:
    """Return the variables by field by connection; a name that is not in the file is that of a provider."""
    if settings.CONNECTIONS == "":
        return {}
    known: dict[str, dict[str, str]] = json.loads((settings.ROOT / "profiles" / "connections.json").read_text())
    if settings.CONNECTIONS is None:
        return known
    return {name: known.get(name) or _provider(name) for name in settings.CONNECTIONS.replace(" ", "").split(",")}


def _provider(name: str) -> dict[str, str]:
    variable = f"CORPUS_{name.upper().replace('-', '_')}"
    return {"host": f"{variable}_URL", "password": f"{variable}_KEY"}


def _connection(conn_id: str) -> Any:
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException:
        return None
