"""Killing what Airflow runs, as a crash would."""

import os
import signal
import time
from pathlib import Path

import psutil


def runner_of(*words: str, root: Path) -> psutil.Process | None:
    for process in psutil.process_iter(["cmdline", "cwd"]):
        argv = process.info["cmdline"] or []
        if {"pipelines", *words} <= set(argv) and process.info["cwd"] == str(root):
            return process.parent()
    return None


def kill_first(*words: str, root: Path, killed: list[int], patience: float) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if runner := runner_of(*words, root=root):
            os.kill(runner.pid, signal.SIGKILL)
            killed.append(runner.pid)
            return
        time.sleep(0.4)
