"""Describe what a check of the deployment found, and how to fix it, with counts and names only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.errors import CorpusError

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """The result of one check of the deployment.

    ``fix`` is a sentence or command, empty if nothing needs to be done; ``late``: the check exceeded its time-out.
    """

    status: Status
    found: str
    fix: str = ""
    late: bool = False

    def told(self, name: str) -> dict[str, Any]:
        """Return the finding of the check ``name`` as a JSON object."""
        return {"check": name, "status": self.status, "found": self.found, "fix": self.fix}


@dataclass(frozen=True)
class Check:
    """A named check of the deployment.

    Args:
        name: the name that a person sees.
        run: the function that makes the check and returns its finding.
        times: how many times the time-out the check may take: more than 1 if it computes instead of waiting.
        patient: whether the check has no time-out.
    """

    name: str
    run: Callable[[], Finding]
    times: int = 1
    patient: bool = False


def ok(found: str) -> Finding:
    """Return the finding of a check that found no problem."""
    return Finding("ok", found)


def warning(found: str, *, fix: str) -> Finding:
    """Return a finding on a problem that does not stop the deployment yet."""
    return Finding("warning", found, fix)


def failure(found: str, *, fix: str) -> Finding:
    """Return a finding on a problem that stops part of the deployment or loses data."""
    return Finding("failure", found, fix)


def of_error(error: CorpusError, *, status: Status = "failure") -> Finding:
    """Convert an error of this project to a finding, whose fix is the error's remedy."""
    found = error.message.format(**error.fields).rstrip(".")
    return Finding(status, found, error.remedy.format(**error.fields))
