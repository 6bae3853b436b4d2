"""Run commands of `corpus`: in this process as a person who expects them to succeed, or in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.cli.main import app

ROOT = Path(__file__).resolve().parents[1]


def process(*argv: str, cwd: Path, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with further variables and nothing on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *argv], cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, text=True, capture_output=True, check=False,
    )  # fmt: skip


def output(*argv: str) -> str:
    """Run a command and return what it printed, on stderr too."""
    done = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def answered(*argv: str) -> dict[str, Any]:
    """Run a command and return the JSON object on the last line of its output."""
    done = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.strip().rpartition("\n")[2]))
