"""Running a ``corpus task`` command as a child process, and saying how it failed in terms that a retry understands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from dvc_airflow import settings

if TYPE_CHECKING:
    from airflow.sdk import Context

# sysexits.h, as pipelines/errors.py uses them: bad arguments, bad data, refused, bad configuration
HOPELESS = frozenset({64, 65, 77, 78})
# What a child gets between SIGTERM and SIGKILL: time to remove its scratch clone.
GRACE = 10.0


class CommandFailed(RuntimeError):
    """A command exited with ``returncode``; ``retry_after`` (seconds) is what a server asked for, if it did."""

    def __init__(self, command: str, *, returncode: int, retry_after: float | None = None) -> None:
        super().__init__(f"corpus {command} exited with {returncode}; its message stands above in this log")
        self.returncode = returncode
        self.retry_after = retry_after


class ByFailure(RetryPolicy):
    """Retries that follow what failed: bad input fails at once, a throttled source waits."""

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
    """Run ``python -m pipelines <argv>`` from the project's root and return the JSON object it printed last.

    The child's stderr goes to the task's log as it comes. The child leads a session of its own, and whatever
    ends this task ends all of it.

    Raises:
        CommandFailed: the exit status was not 0.
    """
    with subprocess.Popen(
        [settings.PYTHON, "-m", "pipelines", *argv],
        cwd=settings.ROOT,
        env={**os.environ, "CORPUS_HOME": str(settings.HOME), "CORPUS_DIES_WITH_PARENT": "1"},
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            output, _ = child.communicate(given)
        finally:
            _end(child)
    last = output.strip().rpartition("\n")[2]
    result: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    if child.returncode:
        raise CommandFailed(" ".join(argv[:3]), returncode=child.returncode, retry_after=result.get("retry_after"))
    return result


def _end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
