"""Run git with the author name of data commits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pipelines.errors import StepFailed

IDENTITY = {
    "GIT_AUTHOR_NAME": "Crisis Corpus",
    "GIT_AUTHOR_EMAIL": "corpus@localhost",
    "GIT_COMMITTER_NAME": "Crisis Corpus",
    "GIT_COMMITTER_EMAIL": "corpus@localhost",
}


def git(*argv: str, cwd: Path | None = None) -> str:
    """Run git and return its output, stripped.

    Raises:
        StepFailed: git's exit status was not 0; its message went to stderr.
    """
    done = subprocess.run(
        ["git", *argv], cwd=cwd, env={**os.environ, **IDENTITY}, text=True, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise StepFailed(command=f"git {argv[0]}", returncode=done.returncode)
    return done.stdout.strip()


def commit_of(root: Path) -> str:
    """Return the commit that is checked out in a folder, or ``none`` outside a repository."""
    try:
        return git("rev-parse", "HEAD", cwd=root)
    except StepFailed:
        return "none"
