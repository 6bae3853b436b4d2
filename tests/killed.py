"""Ask a script that does things in processes of its own, which are killed after a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]


@contextmanager
def asking(script: Path) -> Iterator[Callable[[Mapping[str, Any]], int]]:
    """Yield a function that sends the script one line of JSON and returns the number that it answers."""
    env, pipe = {**os.environ, "PYTHONPATH": str(REPO)}, subprocess.PIPE
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def ask(question: Mapping[str, Any]) -> int:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            return int(stdout.readline())

        yield ask
        stdin.close()
