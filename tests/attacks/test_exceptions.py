"""Exceptions that no code foresees: their messages may quote a post, and a log keeps what a command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = "I cannot go on"
# A command that fails, as the entry point runs it.
COMMAND = """
import gc, logging, threading
from pipelines.__main__ import run
from pipelines.cli import main

class Post:
    def __del__(self):
        raise ValueError({words!r})
    def __repr__(self):
        return {words!r}

def fail(**_):
    {body}

main.app = fail
run()
"""
CAUGHT = "\n    try:\n        int({words!r})\n    except ValueError as error:\n        "
BODIES = {
    "an error": "raise ValueError({words!r})",
    "its cause": CAUGHT + "raise KeyError({words!r}) from error",
    "its context": CAUGHT + "raise KeyError({words!r})",
    "a group": "raise ExceptionGroup({words!r}, [ValueError({words!r}), KeyError({words!r})])",
    "a note": "\n    error = ValueError()\n    error.add_note({words!r})\n    raise error",
    "an operating system's": "raise OSError(5, {words!r}, {words!r})",
    "a missing module": CAUGHT + "import pipelines.no_such_module",
}
QUIET = {
    "a thread": "t = threading.Thread(target=lambda: int({words!r})); t.start(); t.join()",
    "a finaliser": "Post(); gc.collect()",
    "a log record": "logging.basicConfig(); logging.error('%d', Post())",
}


def run(body: str) -> subprocess.CompletedProcess[str]:
    script = COMMAND.format(words=WORDS, body=body.format(words=WORDS))
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
def test_an_error_is_printed_without_its_message(kind: str) -> None:
    done = run(BODIES[kind])
    assert done.returncode == 1, done.stderr
    assert WORDS not in done.stdout + done.stderr
    assert "Traceback (most recent call last):" in done.stderr and "in fail" in done.stderr
    assert (
        "Error (its message may quote content and is not printed)" in done.stderr
        or "ExceptionGroup (its" in done.stderr
    )


@pytest.mark.parametrize("kind", QUIET)
def test_errors_outside_the_command_are_printed_without_their_message(kind: str) -> None:
    done = run(QUIET[kind])
    assert WORDS not in done.stdout + done.stderr


def test_each_cause_is_named_in_order() -> None:
    lines = [line for line in run(BODIES["its cause"]).stderr.splitlines() if "its message" in line]
    assert [line.split()[0] for line in lines] == ["ValueError", "KeyError"]


def test_a_full_disk_is_still_explained() -> None:
    done = run("raise OSError(28, 'No space left on device', 'a/file')")
    assert done.returncode == 74 and "a/file: No space left on device." in done.stderr
