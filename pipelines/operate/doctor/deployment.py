"""Open what all checks of a deployment share: settings, parameters, and a bare clone of the corpus branch."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.operate.doctor.finding import Finding, failure, of_error, ok
from pipelines.operate.services.airflow_setup import embedded_port
from pipelines.operate.services.services import sandbox_variables
from pipelines.workspace.clone import BRANCH
from pipelines.workspace.git import git
from pipelines.workspace.profile import texts_at
from pipelines.workspace.scratch import prefix

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
        with _sandbox(settings, params=params) as known:
            yield Deployment(known, params, root, clone, now, 0.8 * seconds), findings


@contextmanager
def _sandbox(settings: Settings, *, params: Params) -> Iterator[Settings]:
    """Set the variables of the embedded sandbox that are not set: its services have them, a person's shell does not."""
    port = embedded_port(settings.home, "sandbox") if params.sandbox else None
    if port is None:
        yield settings
        return
    contact = {"CORPUS_CONTACT": "sandbox@localhost"}
    added = {k: v for k, v in (sandbox_variables(port) | contact).items() if k not in os.environ}
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
