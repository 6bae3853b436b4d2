"""Run a ``corpus task`` command as a child process, log its messages, and map its failure to Airflow's retries.

Addresses and secrets come from Airflow connections where environment variables are not set.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowSkipException

from dvc_airflow import settings

if TYPE_CHECKING:
    from airflow.sdk import Context

# sysexits.h, as pipelines/core/errors.py uses them: bad arguments, bad data, refused, bad configuration
HOPELESS = frozenset({64, 65, 77, 78})
# Ours: a stage waits for labels.
WAITS = 79
# Seconds between SIGTERM and SIGKILL, in which a child can remove its scratch clone.
GRACE = 10.0
# In a log, each state of a progress bar would be a line.
QUIET = {"TQDM_DISABLE": "1"}
TRACEBACK = "Traceback (most recent call last):"
# Maximum lines per log record: longer than a traceback, so that output after a library's traceback is logged in time.
LONGEST = 200

log = logging.getLogger(__name__)
# The commands of this process: that of a task starts one or a few.
started: list[tuple[str, ...]] = []


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
    started.append(argv)
    secrets, message = environment(), list[str]()
    source, sink = os.pipe()
    reader = threading.Thread(target=_follow, args=(source, message), daemon=True)
    with subprocess.Popen(
        [settings.PYTHON, "-m", "pipelines", *argv],
        cwd=settings.ROOT,
        env={**os.environ, **secrets, **QUIET, "CORPUS_HOME": str(settings.HOME), "CORPUS_DIES_WITH_PARENT": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=sink,
        encoding="utf-8",
        start_new_session=True,
    ) as child:
        os.close(sink)
        reader.start()
        try:
            output, _ = child.communicate(given or "")
        finally:
            _end(child)
            # a process that left the child's session may hold the pipe open forever
            reader.join(GRACE)
            _log(logging.INFO if child.returncode == 0 else logging.ERROR, message)
    last = output.strip().rpartition("\n")[2]
    result: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    if child.returncode == WAITS:
        raise AirflowSkipException("the corpus has no labels yet; see the message above in this log")
    if child.returncode:
        raise CommandFailed(" ".join(argv[:3]), returncode=child.returncode, retry_after=result.get("retry_after"))
    return result


def _follow(stderr: int, message: list[str]) -> None:
    """Log the stderr of a running child, one record for each message, until the last one, which ``message`` holds.

    A message is a line with the indented lines below it; a traceback is one message. Each is logged when the next one
    begins. Only the level of the last message depends on the child's exit status.
    """
    with open(stderr, "rb") as stream:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip().rpartition("\r")[2]  # the last state of a rewritten line
            inside = line[:1].isspace() or message[:1] == [TRACEBACK]
            if not inside or len(message) >= LONGEST:
                _log(logging.INFO, message)
                message.clear()
            if line:
                message.append(line)


def _log(level: int, message: list[str]) -> None:
    if message:
        log.log(level, "%s", "\n".join(message))


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
    connections = {name: _connection(connection_id(name)) for name in wanted}
    missing = [name for name, connection in connections.items() if connection is None]
    if missing and (task := _running_task()) is not None:
        task.get_dagrun_state(task.dag_id, task.run_id)
        connections |= {name: _connection(connection_id(name)) for name in missing}
    return {
        variable: str(value)
        for name, fields in wanted.items()
        for field, variable in fields.items()
        if (value := getattr(connections[name], field, None))
    }


def _running_task() -> Any:
    """Return the task instance in whose process this is, or ``None`` outside of a task."""
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
    fields = {}
    for name in settings.CONNECTIONS.replace(" ", "").split(","):
        variable = f"CORPUS_{name.upper().replace('-', '_')}"
        fields[name] = known.get(name) or {"host": f"{variable}_URL", "password": f"{variable}_KEY"}
    return fields


def _connection(conn_id: str) -> Any:
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException:
        return None
