"""Run commands of `corpus` in this process, as a person who expects them to succeed."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from pipelines.cli.main import app


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
