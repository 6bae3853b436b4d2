"""CPU of a stage's task beside the stage's own command, cached and not, with 10 and with 10,000 earlier results.

Ours is ``corpus task stage`` as an Airflow task starts it, on the project's own graph. The baseline is the way of
handing results over that DVC offers: reproduce the stage in a clone with what is upstream of it restored from the
run-cache, and push with the run-cache, which copies every entry ever made.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipelines.params import Settings
from pipelines.store import repository

STAGE = "gold@posts"
ROUNDS = 5
FEW, MANY = 10, 10_000
BASELINE = """
import sys
from dvc.repo import Repo
repo = Repo(".")
repo.reproduce(targets=[sys.argv[1]], pull=True)
repo.push(run_cache=True)
"""


def begin(home: Path) -> Settings:
    """Make a corpus from this checkout's HEAD, with an empty split: the stage then does next to nothing."""
    os.environ |= {"CORPUS_HOME": str(home), "CORPUS_SECRET": "5e" * 64}
    settings = Settings.from_env()
    repository.init(settings, checkout=ROOT, profile=None)
    return settings


def cpu(argv: list[str], **how: object) -> float:
    """Run a command and return its CPU seconds, those of its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)  # type: ignore[call-overload]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
