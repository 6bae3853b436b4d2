"""Run ``make demo`` in fresh homes, undisturbed, beside busy loops, or killed at random, and log each run.

One JSON line per run is appended to ``var/demo_runs.jsonl``: the commit, the mode, seconds, exit status, tasks, cleared
tasks, and the learned models that did not beat the majority class. A home is removed when its run succeeded.

    python tests/demo_runs.py plain busy killed

``busy`` keeps one busy loop per core running. ``killed`` sends SIGKILL at five random moments, alternately to the demo
alone and to every process of its home (services, tasks and database included), and starts the demo again each time.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "var" / "demo_runs.jsonl"
KILLS = 5
# Seconds between two kills; the undisturbed demo takes about 400.
PAUSE = (30.0, 110.0)
LONGEST = 3600.0


@contextmanager
def busy() -> Iterator[None]:
    """Keep every core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class Demo:
    """The demo in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.output = home / "demo.log"

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "CORPUS_HOME": str(self.home)}
        with self.output.open("ab") as out:
            return subprocess.Popen(
                ["make", "demo"],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        subprocess.run(
            ["make", "down"],
            cwd=ROOT,
            env={**os.environ, "CORPUS_HOME": str(self.home)},
            check=False,
            stdout=subprocess.DEVNULL,
        )

    def kill_everything(self) -> None:
        """Send SIGKILL to every process whose environment names this home."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("CORPUS_HOME") == str(self.home):
                    process.kill()
            except psutil.Error:
                continue

    def killed(self, rng: random.Random) -> subprocess.Popen[bytes]:
        """Start the demo and kill it ``KILLS`` times; return the last one."""
        child = self.start()
        for number in range(KILLS):
            try:
                child.wait(rng.uniform(*PAUSE))
                break
            except subprocess.TimeoutExpired:
                if number % 2:
                    self.kill_everything()
                else:
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                child = self.start()
        return child

    def facts(self) -> dict[str, object]:
        """Return what the last table of the output says."""
        text = self.output.read_text(errors="replace")
        counts = re.search(r"(\d+) tasks, (\d+) repeated", text)
        return {
            "tasks": int(counts[1]) if counts else None,
            "cleared": int(counts[2]) if counts else None,
            "beaten": beaten(self.home),
        }


def beaten(home: Path) -> list[str]:
    """Return the models whose macro-F1 does not exceed the majority class, one entry for each task."""
    argv = [sys.executable, "-m", "pipelines", "status", "--json"]
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "CORPUS_HOME": str(home)}, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        return ["no metrics"]
    shown = json.loads(done.stdout)
    found = []
    for corpus, parts in shown["corpora"].items():
        for task, scores in parts.get("benchmark", {}).items():
            majority = scores.pop("majority")
            found += [f"{corpus} {task} {name}" for name, score in scores.items() if (score["mean"] or 0) <= majority]
    return found


def run(mode: str, *, seed: int) -> int:
    """Run one demo, log it, and return its exit status."""
    home = Path(tempfile.mkdtemp(prefix="demo-"))
    demo, began, rng = Demo(home), time.monotonic(), random.Random(seed)
    try:
        if mode == "busy":
            with busy():
                code = demo.start().wait(LONGEST)
        else:
            code = (demo.killed(rng) if mode == "killed" else demo.start()).wait(LONGEST)
    finally:
        demo.stop()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "mode": mode,
        "seed": seed,
        "code": code,
        "seconds": round(time.monotonic() - began),
        "load": round(os.getloadavg()[1], 1),
        **demo.facts(),
    }
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")
    sys.stdout.write(json.dumps(line) + "\n")
    if code == 0:
        shutil.rmtree(home)
    return code


if __name__ == "__main__":
    sys.exit(max(run(mode, seed=time.time_ns()) for mode in sys.argv[1:] or ["plain"]))
