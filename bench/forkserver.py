"""Measure the start of a command that uses torch: forked from the fork server against a new process, alternately.

CPU seconds, from the start of ``python -m pipelines`` until torch and transformers are imported and the command ends.
The server's own imports, once per start of the deployment, are not included.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from pipelines.core import forkserver

ROUNDS = 5
# `python -m pipelines` in a folder whose package only imports: what the stages of the demo have in common
MAIN = "from pipelines.core.forkserver import delegate\ndelegate()\nimport torch, transformers.modeling_utils\n"
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def cpu(folder: Path, environment: dict[str, str], *, server: psutil.Process | None) -> float:
    """Return the CPU seconds of one command and of what the server did for it."""

    def used() -> float:
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        if server is None:
            return own.ru_utime + own.ru_stime
        times = server.cpu_times()
        return own.ru_utime + own.ru_stime + sum(times[:4])

    before = used()
    subprocess.run([sys.executable, "-m", "pipelines"], cwd=folder, env=environment, check=True)
    return used() - before


def main() -> None:
    """Print one JSON line."""
    with tempfile.TemporaryDirectory() as name:
        folder, script = Path(name), Path(forkserver.__file__)
        package = folder / "pipelines"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(MAIN)
        (package / script.name).write_text(script.read_text())
        socket = folder / "server.sock"
        alone = {**os.environ, **QUIET, "PYTHONPATH": ""}
        served = alone | {forkserver.ADDRESS: str(socket)}
        server = subprocess.Popen([sys.executable, "-P", str(script), str(socket)], env=alone)
        try:
            while not socket.exists():
                time.sleep(0.1)
            process = psutil.Process(server.pid)
            rounds = [(cpu(folder, served, server=process), cpu(folder, alone, server=None)) for _ in range(ROUNDS)]
        finally:
            server.kill()
            server.wait()
    ours, baseline = (statistics.median(times) for times in zip(*rounds, strict=True))
    line = {
        "name": "forkserver",
        "ours": round(ours, 2),
        "baseline": round(baseline, 2),
        "baseline_name": "a new process imports torch and transformers",
        "ratio": round(baseline / ours, 1),
        "unit": "CPU s",
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
