"""DVC's view of this repository, read with the parser in C that the lock brings, against ruamel.yaml without it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

ROUNDS = 5
# What a task does three times at least: parse dvc.yaml, dvc.lock and params.yaml, and resolve every stage.
READS = """
import sys, time
if sys.argv[1] == "pure":
    sys.modules["_ruamel_yaml"] = None
from dvc.repo import Repo
begin = time.monotonic()
repo = Repo()
assert len(repo.index.stages) > 50
print(time.monotonic() - begin)
"""


def seconds(parser: str) -> float:
    """Return how long a fresh process takes to build the index."""
    argv = [sys.executable, "-c", READS, parser]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print one line of JSON: medians of turns, taken one after the other."""
    turns = [(seconds("c"), seconds("pure")) for _ in range(ROUNDS)]
    ours, baseline = (statistics.median(column) for column in zip(*turns, strict=True))
    line = {"name": "dvc_index", "ours": ours, "baseline": baseline, "ratio": baseline / ours, "unit": "s"}
    print(json.dumps(line | {"baseline_name": "ruamel.yaml as DVC installs it"}))


if __name__ == "__main__":
    main()
