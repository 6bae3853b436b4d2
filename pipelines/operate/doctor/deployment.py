"""Open what all checks of a deployment share, run them concurrently with time-outs, and describe what they found."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal

from pipelines.core.components import exported
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, CorpusError, name_of
from pipelines.workspace.clone import BRANCH
from pipelines.workspace.git import git
from pipelines.workspace.profile import texts_at
from pipelines.workspace.scratch import prefix

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

    def as_json(self, name: str) -> dict[str, Any]:
        """Return the finding of the check ``name`` as a JSON object."""
        return {"check": name, "status": self.status, "found": self.found, "fix": self.fix}


@dataclass(frozen=True)
class Check:
    """A named check of the deployment.

    ``times``: how many times the time-out it may take, more than 1 if it computes instead of waiting.
    """

    name: str
    run: Callable[[], Finding]
    times: int = 1


# What a check found: no problem, one that does not stop the deployment yet, or one that stops part of it or loses data.
ok = partial(Finding, "ok")
warning = partial(Finding, "warning")
failure = partial(Finding, "failure")


def of_error(error: CorpusError, *, status: Status = "failure") -> Finding:
    """Convert an error of this project to a finding, whose fix is the error's remedy."""
    text = error.message.format(**error.fields).rstrip(".")
    return Finding(status, text, error.remedy.format(**error.fields))


# Ours: more at once would share so little CPU that imports alone exceed the time-out.
AT_ONCE = 6


def run(checks: Sequence[Check], *, seconds: float) -> list[tuple[str, Finding]]:
    """Run checks of the deployment; return each check's name and finding, in the order of ``checks``.

    The time-out of a check begins when the check begins. The thread of a check that exceeds it is left behind; such
    findings are marked ``late``, because an interpreter with such a thread may not end by itself.
    """
    waiting, running, findings = deque(enumerate(checks)), dict[int, float](), dict[int, Finding]()
    finished: SimpleQueue[tuple[int, Finding]] = SimpleQueue()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, check = waiting.popleft()
            running[number] = time.monotonic() + seconds * check.times
            Thread(target=_work, args=(number, check, finished), name=check.name, daemon=True).start()
        try:
            number, finding = finished.get(timeout=max(0.0, min(running.values()) - time.monotonic()))
            if running.pop(number, None) is not None:
                findings[number] = finding
        except Empty:
            for number in [number for number, end in running.items() if end <= time.monotonic()]:
                del running[number]
                findings[number] = _late(checks[number], seconds=seconds)
    return [(check.name, findings[number]) for number, check in enumerate(checks)]


def _work(number: int, check: Check, finished: SimpleQueue[tuple[int, Finding]]) -> None:
    try:
        finding = check.run()
    except CorpusError as error:
        finding = of_error(error)
    except Exception as error:
        # the text of a foreign error may quote an address with credentials
        finding = failure(f"the check failed ({name_of(error)})", fix="Report this as a bug of `corpus doctor`.")
    finished.put((number, finding))


def _late(check: Check, *, seconds: float) -> Finding:
    """Return the finding on a late check: if it computes and this machine is busy, that is no evidence of a fault."""
    found = f"no answer within {seconds * check.times:g} s"
    if check.times > 1 and os.getloadavg()[0] > (os.cpu_count() or 1):
        found = f"not known: {found}, and this machine's load exceeds its processors"
        fix = "Repeat `corpus doctor` when it is less busy, or with `--timeout 60`."
        return Finding("warning", found, fix, late=True)
    fix = "Check that the service answers and is not overloaded; `corpus doctor --timeout 60` waits longer."
    return Finding("failure", found, fix, late=True)


# A prompt for a password would wait forever.
SILENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=5"}
CLONE = "clone"


@dataclass(frozen=True)
class Deployment:
    """The deployment that ``corpus doctor`` examines.

    ``params`` are those of the corpus branch, or of the checkout ``root`` if there is no repository; ``clone`` is a
    clone of the branch without files; ``seconds``: the limit of a request, so that its check names the server before it
    ends.
    """

    settings: Settings
    params: Params
    root: Path
    clone: Path | None
    now: datetime
    seconds: float


@contextmanager
def opened(
    settings: Settings, *, root: Path, now: datetime, seconds: float
) -> Iterator[tuple[Deployment | None, dict[str, Finding]]]:
    """Yield the deployment (``None`` if its parameters are invalid), and findings on its repository and parameters."""
    # with other clones, so that the next task removes it if this process is killed
    scratch = settings.home / "scratch"
    with tempfile.TemporaryDirectory(prefix=prefix(), dir=scratch if scratch.is_dir() else None) as folder:
        clone: Path | None = Path(folder) / CLONE
        findings = {"repository": _clone(settings, folder=Path(folder), seconds=seconds)}
        if findings["repository"].status == "failure":
            clone = None
        try:
            if clone is None:
                params = load(root, profile=os.environ.get("CORPUS_PROFILE") or None)
            else:
                for name, text in texts_at("HEAD", cwd=clone).items():
                    (clone / name).write_text(text)
                params = load(clone)
        except ConfigError as error:
            yield None, findings | {"parameters": of_error(error)}
            return
        findings["parameters"] = ok(f"profile {params.profile or 'none'}")
        with _of_services(settings) as known:
            yield Deployment(known, params, root, clone, now, 0.8 * seconds), findings


@contextmanager
def _of_services(settings: Settings) -> Iterator[Settings]:
    """Set the variables that only the embedded services have: a person's shell need not have them."""
    variables = exported(settings.home)
    added = {k: v for k, v in variables.items() if k.startswith("CORPUS_") and k not in os.environ}
    os.environ.update(added)
    try:
        yield Settings.from_env()
    finally:
        for name in added:
            del os.environ[name]


def _clone(settings: Settings, *, folder: Path, seconds: float) -> Finding:
    argv = ("clone", "--quiet", "--shared", "--no-checkout", "--single-branch", "--branch", BRANCH)
    if not succeeds(*argv, settings.repo, str(folder / CLONE), seconds=seconds):
        return failure(
            "CORPUS_REPO has no readable branch 'corpus'",
            fix='Create it with `corpus init`, or read the message of git: `git ls-remote "$CORPUS_REPO" corpus`.',
        )
    return ok(f"corpus at {git('rev-parse', 'HEAD', cwd=folder / CLONE)[:12]}")


def within(deployment: Deployment, limit: str, value: float, *, found: str, fix: str, fine: str) -> Finding:
    """Compare a value, usually an age in hours, with a limit of section ``doctor``; ``fine`` is found below it."""
    most = getattr(deployment.params.doctor, limit)
    return failure(f"{found}, more than doctor.{limit} ({most})", fix=fix) if value > most else ok(fine)


def succeeds(*argv: str, seconds: float, cwd: Path | None = None) -> bool:
    """Return whether a git command succeeds within ``seconds``; its output is hidden, as it may contain credentials."""
    try:
        done = subprocess.run(
            ["git", *argv], cwd=cwd, env={**SILENT, **os.environ}, timeout=seconds, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
