"""Measure the CPU time of a cached stage task, with 10 and with 10,000 earlier results on the remote.

Ours is ``corpus task stage`` as an Airflow task starts it, on the project's own graph. The baseline is DVC's own
exchange of results: reproduce the stage in a clone and push with the run-cache, which copies every entry ever made. The
run-cache holds as many entries as there are results.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.core.config.settings import Settings
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.scratch import step_environment

ROOT = Path(__file__).resolve().parents[1]
STAGE = "agreement@posts"
ROUNDS = 5
EARLIER = (10, 10_000)
# With 10,000 entries the baseline copies two times 10,000 files, so it is run only once.
BASELINE_ROUNDS = {10: 5, 10_000: 1}
BASELINE = """
import sys
from dvc.repo import Repo
repo = Repo(".")
repo.reproduce(targets=[sys.argv[1]], pull=True, single_item=True)
repo.push(targets=[sys.argv[1]], run_cache=True)
"""


def begin(home: Path) -> Settings:
    """Create a corpus from this checkout's HEAD."""
    os.environ |= {"CORPUS_HOME": str(home), "CORPUS_SECRET": "5e" * 64}
    settings = Settings.from_env()
    repository.init(settings, checkout=ROOT, profile=None)
    _without_duplicates(settings)
    return settings


def _without_duplicates(settings: Settings) -> None:
    """Commit an empty result of ``dedupe``, on which the stage depends."""
    table = b"no near-duplicates"
    tree = json.dumps([{"md5": hashlib.md5(table).hexdigest(), "relpath": "clusters.txt"}]).encode()
    digests = hashlib.md5(table).hexdigest(), f"{hashlib.md5(tree).hexdigest()}.dir"
    for digest, content in zip(digests, (table, tree), strict=True):
        for place in (settings.remote, settings.cache):
            path = Path(place, "files", "md5", digest[:2], digest[2:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    out = {"path": "snapshot/posts/dedupe", "hash": "md5", "md5": digests[1], "size": len(table), "nfiles": 1}
    with workspace(settings) as clone:
        lock = {"schema": "2.0", "stages": {"dedupe@posts": {"cmd": "true", "outs": [out]}}}
        (clone.path / "dvc.lock").write_text(json.dumps(lock))
        clone.commit("No near-duplicates", paths=["dvc.lock"])


def fill(settings: Settings, *, results: int) -> None:
    """Put the given number of earlier results on the remote, in our format and in DVC's run-cache."""
    for number in range(results):
        ours = Path(settings.remote, "results", f"{number % 256:02x}", f"{number:062x}")
        theirs = [Path(place, "runs", f"{number % 256:02x}", f"{number:064x}", f"{number:064x}")
                  for place in (settings.remote, settings.cache)]  # fmt: skip
        for path in (ours, *theirs):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"cmd: 'true'\nouts:\n- path: out\n  md5: {number:032x}\n")


def cpu(argv: list[str], *, cwd: Path) -> float:
    """Run a command and return its CPU seconds, including its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def task(base: str) -> float:
    """Run the stage's task; return its CPU seconds."""
    return cpu([sys.executable, "-m", "pipelines", "task", "stage", STAGE, "--base", base, "--run", "bench"], cwd=ROOT)


def theirs(settings: Settings, base: str) -> float:
    """Return the CPU seconds of DVC's exchange for a result in its run-cache."""
    with workspace(settings, revision=base) as clone:
        return cpu([sys.executable, "-c", BASELINE, STAGE], cwd=clone.path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = begin(Path(folder) / "var")
        with workspace(settings) as clone:
            base = clone.head
        os.environ |= step_environment(settings)
        theirs(settings, base)
        task(base)
        for earlier in EARLIER:
            fill(settings, results=earlier)
            cached, baseline = [], []
            for number in range(ROUNDS):
                cached.append(task(base))
                if number < BASELINE_ROUNDS[earlier]:
                    baseline.append(theirs(settings, base))
            row = {
                "name": f"stage_task_cached_{earlier}_results",
                "ours": round(median(cached), 2),
                "baseline": round(median(baseline), 2),
                "baseline_name": "dvc repro and push with the run-cache",
                "ratio": round(median(baseline) / median(cached), 2),
                "unit": "CPU s",
            }
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
