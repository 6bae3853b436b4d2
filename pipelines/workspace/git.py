"""Run git with the author name that the project's data commits have."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from pipelines.errors import GitFailed

IDENTITY = {
    "GIT_AUTHOR_NAME": "Crisis Corpus",
    "GIT_AUTHOR_EMAIL": "corpus@localhost",
    "GIT_COMMITTER_NAME": "Crisis Corpus",
    "GIT_COMMITTER_EMAIL": "corpus@localhost",
}


# The name and password in an address.
CREDENTIALS = re.compile(r"//[^/@\s]+@")


def git(*argv: str, cwd: Path | None = None, given: str | None = None) -> str:
    """Run git in the folder ``cwd`` with ``given`` as its input; return its output without surrounding white space."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        env={**os.environ, **IDENTITY},
        input=given,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        command = next(arg for arg in argv if not arg.startswith("-") and "/" not in arg)
        lines = CREDENTIALS.sub("//", done.stderr).splitlines()
        said = next((line for line in lines if line.startswith("fatal: ")), lines[-1] if lines else "")
        detail = said.removeprefix("fatal: ").rstrip(".") or f"exit status {done.returncode}"
        raise GitFailed(command=f"git {command}", returncode=done.returncode, detail=detail)
    return done.stdout.strip()


def commit_of(root: Path) -> str:
    """Return the commit that is checked out in a folder, or ``none`` if the folder is not in a repository."""
    try:
        return git("rev-parse", "HEAD", cwd=root)
    except GitFailed:
        return "none"
