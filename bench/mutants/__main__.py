"""Mutation testing of the modules on which the security promises rest.

``python -m bench.mutants map`` measures which tests execute which lines. ``run`` tests a seeded sample of mutants with
the tests that execute their lines, and continues where an earlier run was stopped. ``again`` tests the survivors with
the tests that have not run yet, or with those that are named. ``report`` counts. ``--jobs`` is how many processes share
the work, each with a copy of the project of its own. mutmut and coverage are not in the environment:
``uv pip install --no-deps --target var/mutmut mutmut==3.8.1 coverage==7.17.3``, then ``PYTHONPATH=var/mutmut:.``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.mutants.forked import Killer, adopt, after, forked, preload, tests
from bench.mutants.lines import LineMap, around, measure
from bench.mutants.mutate import AREAS, Mutant, listed, sample

ROOT = Path(__file__).resolve().parents[2]
# Test files whose tests are mapped: those of the areas, and those that use them most.
FILES = (
    "tests/store/test_seal.py", "tests/privacy/test_vault.py", "tests/collect/test_pace.py",
    "tests/collect/test_peer.py",
    "tests/collect/test_image_fetch.py", "tests/collect/test_fetched_batches.py", "tests/collect/test_decode.py",
    "tests/attacks/test_picture_child.py", "tests/attacks/test_forged_journal.py", "tests/registry/test_journal.py",
    "tests/release/test_hydrate.py", "tests/release/test_hydrate_attacks.py", "tests/release/test_anonymity.py",
    "tests/release/test_removal.py", "tests/release/test_package.py", "tests/release/test_joining.py",
    "tests/release/test_approval.py", "tests/registry/test_watch.py", "tests/test_consumer.py",
    "tests/registry/test_client.py", "tests/registry/test_versions.py", "tests/registry/test_gate.py",
    "tests/registry/test_looks.py", "tests/registry/test_rivals.py", "tests/registry/test_recall_checks.py",
    "tests/registry/test_promote.py", "tests/attacks/test_secret_place.py",
    "tests/privacy/test_retention.py", "tests/privacy/test_selection.py",
    "tests/privacy/test_gone.py", "tests/privacy/test_erasure.py", "tests/privacy/test_partitions.py",
    "tests/privacy/test_sinks.py", "tests/privacy/test_sweep.py", "tests/privacy/test_sweep_bands.py",
    "tests/privacy/test_learnt.py", "tests/privacy/test_expiry.py", "tests/privacy/test_takedown.py",
    "tests/registry/test_show.py",
    "tests/collect/test_refresh.py", "tests/store/test_remote.py", "tests/attacks/test_pushed_code.py",
    "tests/release/test_access.py", "tests/privacy/test_record_index.py", "tests/privacy/test_host_caches.py",
    "tests/registry/test_register.py", "tests/registry/test_scoring_server.py", "tests/registry/test_scoring.py",
    "tests/attacks/test_approvals.py", "tests/collect/test_collect.py", "tests/store/test_answers.py",
)  # fmt: skip
LIBRARIES = [
    "pytest",
    "numpy",
    "pandas",
    "pyarrow.parquet",
    "cryptography.fernet",
    "sqlalchemy",
    "hypothesis",
    "PIL.Image",
]


class Runner:
    """A copy of the project, in which one module at a time is changed, and the log of what the tests said."""

    def __init__(self, place: Path, *, job: int, patience: float) -> None:
        self.shared, self.place, self.patience = place, place / f"job{job}", patience
        self.tree = self.place / "tree"
        (place / "map").mkdir(parents=True, exist_ok=True)
        self.map = LineMap.read(place / "map")
        self._changes = 0

    def copy(self, *, keep: bool) -> None:
        """Copy what git knows or would add to the tree, and commit it: tests ask git for the project's files."""
        if keep and self.tree.is_dir():
            # a run that was stopped has left its mutant
            subprocess.run(["git", "checkout", "-q", "--", "."], cwd=self.tree, check=True)
            return
        argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        shutil.rmtree(self.tree, ignore_errors=True)
        for name in subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
            if name and os.path.lexists(ROOT / name) and not name.startswith(".venv"):
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name, follow_symlinks=False)
        for argv in (["init", "-q", "-b", "main"], ["add", "--all"], ["commit", "-q", "-m", "the working tree"]):
            subprocess.run(["git", *argv], cwd=self.tree, check=True)

    def enter(self) -> None:
        """Let the tests of this process and their processes find the copy."""
        os.environ["PYTHONPATH"] = str(self.tree)
        adopt()

    def prepare(self) -> None:
        """Import the libraries."""
        self.enter()
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        os.environ.setdefault("CORPUS_SECRET", "5e" * 64)
        # numba reads its variables when it is imported, which is before the tests set them
        script = "import json,pathlib;from pipelines.workspace import scratch as of;"
        script += "print(json.dumps(of.compiled_kernels(pathlib.Path())))"
        done = subprocess.run([sys.executable, "-c", script], cwd=self.tree, capture_output=True, text=True, check=True)
        os.environ |= json.loads(done.stdout)
        preload(LIBRARIES + self.map.modules())

    def trial(self, mutant: Mutant, batches: list[list[str]]) -> dict[str, Any]:
        """Change the tree, run the tests, and put the module back."""
        path = self.tree / mutant.module
        before = path.read_text()
        begun = time.monotonic()
        try:
            self._write(path, mutant.text)
            found = self._killed(batches)
        finally:
            self._write(path, before)
        kept = {name: getattr(mutant, name) for name in ("key", "area", "module", "line", "operator")}
        return (
            kept
            | {"diff": mutant.diff(), "tests": sum(map(len, batches))}
            | found
            | {"seconds": round(time.monotonic() - begun, 1)}
        )

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # compiled files are compared by second and size
        self._changes += 1
        at = int(time.time()) + self._changes
        os.utime(path, (at, at))

    def _killed(self, batches: list[list[str]]) -> dict[str, Any]:
        told = self.place / "killer.json"
        for batch in batches:
            for again in (False, True):
                killer = Killer(told, normal=self.map.normal, patience=self.patience)
                status = forked(
                    lambda batch=batch, killer=killer: tests(batch, place=self.place, plugin=killer, stop=True),
                    tree=self.tree, log=self.place / "tests.log", late=killer.late,
                )  # fmt: skip
                if status is not None:
                    break
                if again:
                    now = told.with_suffix(".now")
                    return {"status": "timeout", "killer": now.read_text() if now.exists() else batch[0]}
            if status:
                known = json.loads(told.read_text()) if told.exists() else {"killer": "", "why": f"exit {status}"}
                return {"status": "killed"} | known
        return {"status": "survived"}

    def batches(self, mutant: Mutant, *, budget: float, passed: set[str]) -> list[list[str]]:
        """Return the tests for a mutant that have not passed yet, in the order of their promise."""
        lines = around(self.tree / mutant.module, mutant.line)
        chosen, left = [], budget
        for file, names in self.map.of(mutant.module, lines, own=AREAS[mutant.area][2]):
            if some := self.map.cheapest(file, [name for name in names if name not in passed], budget=left):
                chosen.append(some)
                left -= self.map.seconds(file, some)
        rest = [name for names in chosen[1:] for name in names]
        return [batch for batch in (*chosen[:1], rest) if batch]


Item = TypeVar("Item")


def share(items: Sequence[Item], work: Callable[[Runner, Item], None], *, runners: list[Runner]) -> None:
    """Let each runner work in a process of its own, each time on the next item that none has begun."""
    reader, writer = os.pipe()
    # 4 bytes are read and written at once; 16,000 items fit into a pipe
    os.write(writer, b"".join(number.to_bytes(4, "big") for number in range(len(items))))
    os.close(writer)
    runners[0].prepare()
    children = []
    for runner in runners:
        if child := os.fork():
            children.append(child)
            continue
        try:
            runner.enter()
            while number := os.read(reader, 4):
                work(runner, items[int.from_bytes(number, "big")])
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit("a job has failed")


def map_lines(runners: list[Runner], options: argparse.Namespace) -> None:
    """Measure the test files that are not measured yet."""

    def work(runner: Runner, file: str) -> None:
        path = runner.shared / "map" / f"{file.replace('/', '-')}.json"
        if path.exists() and not options.files:
            return
        begun = time.monotonic()
        known = measure(file, tree=runner.tree, place=runner.place, seconds=900)
        if known is None:
            say(f"{file}: not measured")
            return
        path.write_text(json.dumps({"file": file} | known))
        failed = [name for name, test in known["tests"].items() if not test["passed"]]
        say(f"{file}: {len(known['tests'])} tests, {time.monotonic() - begun:.0f} s, failed: {failed}")

    share(options.files or FILES, work, runners=runners)


def run(runners: list[Runner], options: argparse.Namespace) -> None:
    """Test a sample, in the areas' turn, until it or the time is used up."""
    log = options.place / options.log
    done = {line["key"] for line in read(log)}
    drawn = sample(runners[0].tree, seed=options.seed, size=options.size, areas=options.areas)
    test_all(runners, [mutant for mutant in drawn if mutant.key not in done], log=log, options=options)


def again(runners: list[Runner], options: argparse.Namespace) -> None:
    """Test the survivors of the log again."""
    log = options.place / options.log
    known = [line for line in last(log).values() if line["area"] in options.areas]
    wanted = set(options.keys) or {line["key"] for line in known if line["status"] == "survived"}
    found = [mutant for area in options.areas for mutant in listed(runners[0].tree, area=area) if mutant.key in wanted]
    for key in wanted - {mutant.key for mutant in found}:
        write(
            log, {"key": key, "status": "gone"} | {k: v for k, v in last(log)[key].items() if k in ("area", "module")}
        )
    test_all(runners, found, log=log, options=options)


def test_all(runners: list[Runner], mutants: list[Mutant], *, log: Path, options: argparse.Namespace) -> None:
    until, before = time.monotonic() + options.minutes * 60, last(log)

    def work(runner: Runner, mutant: Mutant) -> None:
        if time.monotonic() > until:
            return
        passed = set(before.get(mutant.key, {}).get("passed", ()))
        batches = [options.files] if options.files else runner.batches(mutant, budget=options.budget, passed=passed)
        found = runner.trial(mutant, batches)
        ran = {"passed": sorted(passed.union(*batches))} if found["status"] == "survived" else {}
        write(log, found | {"seed": options.seed} | ran)
        if found["status"] == "survived":
            say(" ".join(str(found[name]) for name in ("status", "key", "module", "line", "operator", "tests")))
            say(found["diff"])
        if len(known := last(log)) % 20 == 0:
            say(f"{len(known)}: {dict(Counter(line['status'] for line in known.values()))}")

    share(mutants, work, runners=runners)
    report(log)


def check(runners: list[Runner], options: argparse.Namespace) -> None:
    """Run the tests that killed mutants on the unchanged project: one that fails there has proved nothing."""
    lines = [line for line in last(options.place / options.log).values() if line["area"] in options.areas]
    files = defaultdict(set)
    for name in {line["killer"] for line in lines if "::" in line.get("killer", "")}:
        files[name.partition("::")[0]].add(name)

    def work(runner: Runner, file: str) -> None:
        names, log = sorted(files[file]), runner.shared / f"check-{file.replace('/', '-')}.log"
        killer = Killer(runner.place / "killer.json", normal=runner.map.normal, patience=runner.patience)
        status = forked(
            lambda: tests(names, place=runner.place, plugin=killer, stop=False),
            tree=runner.tree, log=log, late=after(1800),
        )  # fmt: skip
        say(f"{file}: {len(names)} tests that killed: exit status {status}")

    share(sorted(files), work, runners=runners)


def report(log: Path) -> None:
    """Count the log by area."""
    lines = [line for line in last(log).values() if line["status"] != "gone"]
    for area in (*AREAS, None):
        of = [line for line in lines if area in (None, line["area"])]
        lived = sum(line["status"] == "survived" for line in of)
        if of:
            say(f"{area or 'all'}: {len(of)} mutants, {len(of) - lived} killed ({100 * (1 - lived / len(of)):.1f} %)")


def read(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def last(log: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each mutant."""
    return {line["key"]: line for line in read(log)}


def write(log: Path, line: dict[str, Any]) -> None:
    """Append a line to a log, at once: jobs share it."""
    with log.open("ab", buffering=0) as out:
        out.write(json.dumps(line).encode() + b"\n")


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.mutants", description=__doc__)
    parser.add_argument("act", choices=["map", "run", "again", "check", "report"])
    parser.add_argument("files", nargs="*", help="test files, instead of those of the map")
    parser.add_argument("--place", type=Path, default=ROOT / "var" / "mutants")
    parser.add_argument("--log", default="log.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=420)
    parser.add_argument("--areas", nargs="*", default=list(AREAS), choices=list(AREAS))
    parser.add_argument("--keys", nargs="*", default=[])
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for one mutant")
    parser.add_argument("--patience", type=float, default=3, help="a test hangs after so many times its usual seconds")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="use the copy of the project of the last call")
    options = parser.parse_intermixed_args()
    if options.act == "report":
        return report(options.place / options.log)
    runners = [Runner(options.place, job=job, patience=options.patience) for job in range(options.jobs)]
    for runner in runners:
        runner.copy(keep=options.keep)
    return {"map": map_lines, "run": run, "again": again, "check": check}[options.act](runners, options)


if __name__ == "__main__":
    main()
