"""Attack as another user of this host."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Neither root nor the user as which PostgreSQL runs below root.
OTHER = 65533
needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can become another user"
)


def attack(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the system as another user, without capabilities."""
    become = [
        "setpriv",
        f"--reuid={OTHER}",
        f"--regid={OTHER}",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]
    return subprocess.run(
        [*become, *argv], cwd="/", env={"PATH": os.defpath}, capture_output=True, text=True, check=False
    )


def asked(url: str, *options: str) -> str:
    """Return the status of a request that another user sends."""
    done = attack(
        "curl", "--silent", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{http_code}", *options, url
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
