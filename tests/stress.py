"""Run the graph of two months and both corpora under kills and freezes, and compare the data with undisturbed data.

A shard is one run of the graph with a seed of its own. It calls the commands of the Dags as ``plugins/dvc_airflow``
does and retries as Airflow does, while tasks are killed (SIGKILL), frozen (SIGSTOP) for up to 30 s, replaced while
they are frozen, and doubled, and one busy loop per core runs beside them. Each shard appends one line to
``var/stress.jsonl``; a shard that has a line for the present code is not run again. All runs begin with one vault:
the keys of records are random, so that sealed tables are equal only under the same keys. ``tests/test_stress.py`` runs
as many shards as ``CORPUS_STRESS_SHARDS`` says.

The model stages that need a network or minutes of training are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.demo_runs import busy
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "var" / "stress.jsonl"
HOME = ROOT / "var" / "stress"
SECRET = "5e" * 64
MONTHS = ("2022-11", "2022-12")
CORPORA = {"memes": "images", "posts": "texts"}
SLOTS = 4  # as many tasks at a time as the demo's Airflow runs
RETRIES = 2  # of every task that has no `retries` in profiles/tasks.json
LONGEST_FREEZE = 30.0
# Shares of the attempts; the rest is left alone.
KILLED, FROZEN, REPLACED, DOUBLED = 0.25, 0.25, 0.15, 0.4
# Seconds within which a disturbance begins: a task of the undisturbed run takes so long on a busy machine.
SOON = 12.0
# Of a month of the smaller sandbox, at most.
SHARDS = 3
LABELLERS = ("characters", "words", "embedding")
AGGREGATES = ("mean_logit", "label_set_majority", "k_of_n", "weighted", "dawid_skene")
ENSEMBLES = tuple(aggregate.replace("_", "") for aggregate in AGGREGATES)
FIRST = ("dedupe", "agreement", "sample", "gold", "split", "quality")
STAGES = {
    "memes": (FIRST, ("few_shot",)),
    "posts": (
        FIRST,
        (
            "few_shot",
            *(f"votes-{labeller}" for labeller in LABELLERS),
            *(f"{stage}-{ensemble}" for ensemble in ENSEMBLES for stage in ("silver", "injection_test")),
        ),
    ),
}


class Disturbed(Exception):
    """A run failed: a task failed more often than it is retried, or in a way that Airflow does not retry."""


@dataclass
class Task:
    """One task of the graph: ``call`` is given the results of the tasks above it, by name."""

    name: str
    call: Callable[[Mapping[str, Any]], Any]
    above: Sequence[str] = ()
    retries: int = RETRIES
    pool: str = ""


@dataclass
class Attempt:
    """One try of a task in a thread; ``child`` is the process of its command."""

    task: Task
    thread: threading.Thread | None = None
    child: subprocess.Popen[str] | None = None
    started: float = field(default_factory=time.monotonic)
    done: Any = None
    error: BaseException | None = None
    lost: bool = False

    @property
    def ended(self) -> bool:
        return self.thread is not None and not self.thread.is_alive()


class Chaos:
    """What is done to attempts, drawn from a seed; a task is disturbed so that it fails less often than its retries."""

    def __init__(self, seed: int | None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fate(self, task: Task) -> str:
        """Draw what happens to the next attempt of a task."""
        if self._random is None:
            return "alone"
        with self._lock:
            left = self._failures[task.name] < task.retries - 1
            drawn = self._random.random()
            for fate, share in (("kill", KILLED), ("replace", REPLACED), ("freeze", FROZEN)):
                if drawn < share:
                    if fate == "freeze":
                        return fate
                    if left:
                        self._failures[task.name] += 1
                        return fate
                    return "alone"
                drawn -= share
            return "alone"

    def doubled(self, task: Task) -> bool:
        """Draw whether two attempts of a publish begin at once."""
        with self._lock:
            return (
                self._random is not None
                and task.pool == "publish"
                and self._failures[task.name] < task.retries - 1
                and self._random.random() < DOUBLED
            )

    def seconds(self, longest: float) -> float:
        assert self._random is not None
        with self._lock:
            return self._random.random() ** 2 * longest

    def whole_group(self) -> bool:
        assert self._random is not None
        with self._lock:
            return self._random.random() < 0.5

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


class Scheduler:
    """Run tasks in the order of the graph, a few at a time, and repeat what failed as Airflow would."""

    def __init__(self, tasks: Sequence[Task], *, chaos: Chaos, hopeless: frozenset[int]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._chaos, self._hopeless = chaos, hopeless
        self.results: dict[str, Any] = {}
        self._tries: Counter[str] = Counter()
        self._running: list[Attempt] = []
        self._lost: list[Attempt] = []
        self.notes: list[str] = []
        self.attempts = 0

    def run(self) -> None:
        """Run everything.

        Raises:
            Disturbed: a task failed for good.
        """
        try:
            while len(self.results) < len(self._tasks):
                self._start_ready()
                self._collect()
                time.sleep(0.05)
            self._wait_for_lost()
        finally:
            for attempt in [*self._running, *self._lost]:
                self._signal(attempt, signal.SIGKILL, group=True)

    def _start_ready(self) -> None:
        busy = {attempt.task.name for attempt in self._running}
        for task in self._tasks.values():
            if len(self._running) >= SLOTS:
                return
            ready = task.name not in self.results and task.name not in busy and set(task.above) <= self.results.keys()
            if ready and not (task.pool and any(a.task.pool == task.pool for a in self._running)):
                self._start(task)
                busy.add(task.name)
                if self._chaos.doubled(task):
                    self._chaos.count("doubled")
                    self._start(task)

    def _start(self, task: Task) -> None:
        attempt = Attempt(task)

        def work() -> None:
            _current.attempt = attempt
            try:
                attempt.done = task.call(self.results)
            except BaseException as error:
                attempt.error = error

        attempt.thread = threading.Thread(target=work, name=task.name, daemon=True)
        self._running.append(attempt)
        self.attempts += 1
        attempt.thread.start()
        fate = self._chaos.fate(task)
        if fate != "alone":
            threading.Thread(target=self._disturb, args=(attempt, fate), daemon=True).start()

    def _disturb(self, attempt: Attempt, fate: str) -> None:
        time.sleep(self._chaos.seconds(SOON))
        if attempt.ended or attempt.child is None:
            return
        if fate == "kill":
            if self._signal(attempt, signal.SIGKILL, group=self._chaos.whole_group()):
                self._chaos.count("killed")
            return
        if not self._signal(attempt, signal.SIGSTOP, group=True):
            return
        self._chaos.count("frozen" if fate == "freeze" else "replaced")
        attempt.lost = fate == "replace"
        pause = self._chaos.seconds(LONGEST_FREEZE)
        deadline = time.monotonic() + pause
        if attempt.lost:
            # the frozen one goes on once its replacement is done, or in the midst of it
            while time.monotonic() < deadline + LONGEST_FREEZE - pause and attempt.task.name not in self.results:
                time.sleep(0.1)
        time.sleep(max(0.0, deadline - time.monotonic()))
        self._signal(attempt, signal.SIGCONT, group=True)

    def _collect(self) -> None:
        for attempt in list(self._running):
            name = attempt.task.name
            if attempt.lost:
                self._running.remove(attempt)
                self._lost.append(attempt)
                self._tries[name] += 1
            elif attempt.ended:
                self._running.remove(attempt)
                if attempt.error is None:
                    self.results.setdefault(name, attempt.done)
                elif name not in self.results:
                    self._failed(attempt)

    def _failed(self, attempt: Attempt) -> None:
        name, error = attempt.task.name, attempt.error
        status = getattr(error, "returncode", None)
        self._tries[name] += 1
        self.notes.append(f"{name} try {self._tries[name]}: {type(error).__name__} {status}")
        if status is None or status in self._hopeless:
            raise Disturbed(f"{name} failed for good: {type(error).__name__}, exit status {status}")
        if self._tries[name] > attempt.task.retries and all(a.task.name != name for a in self._running):
            raise Disturbed(f"{name} failed {self._tries[name]} times, at last with {status}")

    def _wait_for_lost(self) -> None:
        """Let attempts that were replaced, or came second, write to their end: it must change nothing."""
        for attempt in [*self._lost, *self._running]:
            assert attempt.thread is not None
            attempt.thread.join(300)
            status = "ok" if attempt.error is None else getattr(attempt.error, "returncode", "?")
            self._chaos.count(f"late, exit status {0 if status == 'ok' else status}")

    @staticmethod
    def _signal(attempt: Attempt, number: int, *, group: bool) -> bool:
        child = attempt.child
        if child is None or child.returncode is not None:
            return False
        with suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(child.pid, number)
            return True
        return False


_current = threading.local()


class _Child(subprocess.Popen[str]):
    """A process that the attempt of its thread knows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _current.attempt.child = self


class World:
    """A corpus repository of its own, the commands of the Dags on it, and the sandbox that all shards share."""

    def __init__(self, home: Path, *, checkout: Path, sandbox: Path, port: int) -> None:
        self.home, self.checkout = home, checkout
        address = f"http://127.0.0.1:{port}"
        os.environ.update(
            {
                "CORPUS_HOME": str(home),
                "CORPUS_SECRET": SECRET,
                "CORPUS_SANDBOX": str(sandbox),
                "CORPUS_DUMPS": str(sandbox / "dumps"),
                "CORPUS_SANDBOX_PORT": str(port),
                "CORPUS_REDDIT_URL": address,
                "CORPUS_REDDIT_OAUTH_URL": address,
                "CORPUS_ARCTIC_SHIFT_URL": address,
                "CORPUS_REDDIT_CLIENT_ID": "sandbox",
                "CORPUS_REDDIT_CLIENT_SECRET": "sandbox",
                "CORPUS_CONTACT": "sandbox@localhost",
                "NUMBA_CACHE_DIR": str(ROOT / "var" / "kernels"),
                "OMP_NUM_THREADS": "1",
            }
        )
        from dvc_airflow import command, settings

        settings.ROOT, settings.HOME, settings.PROFILE = checkout, home, "sandbox"
        command.subprocess = types.SimpleNamespace(  # type: ignore[assignment]
            Popen=_Child, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
        )
        self.hopeless = command.HOPELESS

    def tasks(self) -> list[Task]:
        """Return the graph: months of both corpora, their snapshots, and what labels them."""
        found: list[Task] = []
        for corpus, items in CORPORA.items():
            for month in MONTHS:
                found += _month(corpus, month, items=items)
            first, then = (
                [f"{stage.partition('-')[0]}@{corpus}{_rest(stage)}" for stage in part] for part in STAGES[corpus]
            )
            months = [f"{corpus} {month} publish" for month in MONTHS]
            found += self.snapshot(corpus, "dataset", first, after=months)
            below = [f"split@{corpus}"]
            found += self.snapshot(corpus, "label", then, after=[f"{corpus} dataset publish"], below=below)
        return found

    def snapshot(
        self, corpus: str, dag: str, stages: Sequence[str], *, after: Sequence[str], below: Sequence[str] = ()
    ) -> list[Task]:
        """Return the tasks of the Dag ``<corpus>_<dag>``: it pins a commit, runs stages and publishes the last one."""
        from dvc_airflow.command import run
        from dvc_airflow.graph import graph
        from dvc_airflow.tasks import publish_results, stage_results

        known = graph(self.checkout, profile="sandbox")
        options = json.loads((ROOT / "profiles" / "tasks.json").read_text())
        name, dag_run = f"{corpus} {dag}", types.SimpleNamespace(dag_id=f"{corpus}_{dag}", run_id="stress")
        pin = f"{name} pin"
        found = [Task(pin, lambda _: run("task", "pin")["commit"], after)]
        made = {stage: f"{name} {stage}" for stage in stages}
        for stage in stages:
            upstream = [made[other] for other in known[stage].upstream if other in made]

            def reproduce(done: Mapping[str, Any], stage: str = stage, upstream: list[str] = upstream) -> Any:
                given = [done[other] for other in upstream]
                return stage_results(stage, base=done[pin], results=given, dag_run=dag_run)[0]

            retries = options.get(known[stage].step, {}).get("retries", RETRIES)
            found.append(Task(made[stage], reproduce, [pin, *upstream], retries=retries))

        def publish(done: Mapping[str, Any]) -> Any:
            tokens = [done[task] for task in made.values()]
            given: dict[str, Any] = {"base": done[pin], "results": tokens, "dag_run": dag_run, "below": below}
            answer = publish_results(corpus, stages[-1], **given)
            assert not answer["superseded"], f"{name} was superseded"
            return answer

        return [*found, Task(f"{name} publish", publish, list(made.values()), pool="publish")]


def _rest(stage: str) -> str:
    rest = stage.partition("-")[2]
    return f"-{rest}" if rest else ""


def _month(corpus: str, month: str, *, items: str) -> list[Task]:
    """Return the tasks of ``<corpus>_collect``; the shards of a month are looked at by one task each."""
    from dvc_airflow.command import run
    from dvc_airflow.tasks import step

    name = f"{corpus} {month}"

    def collect(_: Mapping[str, Any]) -> Any:
        done = step("collect", corpus, "--month", month, out=[f"work/{corpus}/{month}/*.parquet"])
        assert done["result"]["shards"] <= SHARDS, f"{name} has {done['result']['shards']} shards"
        return done

    def look(done: Mapping[str, Any], shard: int) -> Any:
        job = done[f"{name} collect"]
        if shard >= job["result"]["shards"]:
            return job["pointers"]
        out = [f"data/{corpus}/{month}/{items}/*.parquet", f"work/{corpus}/{month}/drops/*.parquet"]
        argv = (items, corpus, "--month", month, "--shard", str(shard))
        return {**job["pointers"], **step(*argv, out=out, pointers=job["pointers"])["pointers"]}

    def partition(done: Mapping[str, Any]) -> Any:
        pointers = {path: text for shard in shards for path, text in done[shard].items()}
        argv = ("partition", corpus, "--month", month)
        made = step(*argv, out=[f"data/{corpus}/{month}/*.parquet"], pointers=pointers)["pointers"]
        return {path: text for path, text in (pointers | made).items() if path.startswith("data/")}

    def publish(done: Mapping[str, Any]) -> Any:
        argv = ("task", "publish-partition", corpus, "--month", month, "--pointers", "-")
        return run(*argv, given=json.dumps(done[f"{name} partition"]))

    shards = [f"{name} {items} {shard}" for shard in range(SHARDS)]
    return [
        Task(f"{name} collect", collect),
        *(
            Task(task, lambda done, shard=shard: look(done, shard), [f"{name} collect"])
            for shard, task in enumerate(shards)
        ),
        Task(f"{name} partition", partition, shards),
        Task(f"{name} publish", publish, [f"{name} partition"], pool="publish"),
    ]


def digests() -> dict[str, str]:
    """Return what the tip of the corpus branch holds: outs of stages, uncached metrics and pointers, by path."""
    from pipelines.core.config.settings import Settings
    from pipelines.workspace.clone import workspace
    from pipelines.workspace.inventory import read_yaml

    with workspace(Settings.from_env()) as clone:
        found = {out["path"]: out["md5"] for entry in clone.lock().values() for out in entry.get("outs", ())}
        for pointer in sorted((clone.path / "data").rglob("*.dvc")):
            for out in read_yaml(pointer.read_text())["outs"]:
                found[(pointer.parent / out["path"]).relative_to(clone.path).as_posix()] = out["md5"]
        found["order of dvc.lock"] = " ".join(clone.lock())
    return found


def broken_keys() -> int:
    """Return how many stored results cannot be read, or name objects that are not whole."""
    from pipelines.core.config.settings import Settings
    from pipelines.workspace.clone import workspace
    from pipelines.workspace.stages import objects_of

    broken = 0
    with workspace(Settings.from_env()) as clone:
        fs, folder = clone.results.place
        for path in sorted(fs.find(folder)):
            key = "".join(Path(path).parts[-2:])
            try:
                result = clone.results.get(key)
                assert result is not None
                clone.objects.require_whole(objects_of([result.entry]))
            except Exception:
                broken += 1
    return broken


def run_graph(world: World, *, seed: int | None, vault: Path | None = None) -> dict[str, Any]:
    """Run the whole graph in a new repository, with a copy of ``vault``, and return the figures of the run."""
    from pipelines.core.config.settings import Settings
    from pipelines.workspace import repository

    shutil.rmtree(world.home, ignore_errors=True)
    world.home.mkdir(parents=True)
    if vault is not None:
        shutil.copy(vault, world.home / "vault.sqlite")
    repository.init(Settings.from_env(), checkout=world.checkout, profile="sandbox")
    tasks = world.tasks()
    chaos, began = Chaos(seed), time.monotonic()
    scheduler = Scheduler(tasks, chaos=chaos, hopeless=world.hopeless)
    failed = ""
    try:
        scheduler.run()
    except Disturbed as error:
        failed = str(error)
    return {
        "tasks": len(tasks),
        "stage_tasks": sum(len(part) for parts in STAGES.values() for part in parts),
        "attempts": scheduler.attempts,
        "disturbed": dict(chaos.counts),
        "failed_tries": scheduler.notes,
        "differs": sum(bool(done.get("differs")) for done in scheduler.results.values() if isinstance(done, dict)),
        "failed": failed,
        "broken_keys": broken_keys(),
        "seconds": round(time.monotonic() - began),
        "load": round(os.getloadavg()[0], 1),
        "digests": {} if failed else digests(),
    }


def run_shard(shard: int) -> dict[str, Any]:
    """Return the line of a shard for the present code: the one in the log, or that of a run now."""
    HOME.mkdir(parents=True, exist_ok=True)
    code = _code()
    for line in _lines():
        if (line["shard"], line["code"]) == (shard, code):
            return line
    with _machinery(code) as (checkout, sandbox, port):
        given: dict[str, Any] = {"checkout": checkout, "sandbox": sandbox, "port": port}
        reference, vault = HOME / f"reference-{code}.json", HOME / f"reference-{code}.sqlite"
        if not reference.exists():
            home = HOME / "undisturbed"
            made = run_graph(World(home, **given), seed=None)
            assert not made["failed"], made["failed"]
            with closing(sqlite3.connect(home / "vault.sqlite")) as source, closing(sqlite3.connect(vault)) as copy:
                source.backup(copy)
            reference.write_text(json.dumps(made))
        wanted = json.loads(reference.read_text())["digests"]
        seed = random.SystemRandom().randrange(2**32)
        home = HOME / f"shard-{shard}"
        with busy():
            found = run_graph(World(home, **given), seed=seed, vault=vault)
    held = found.pop("digests")
    different = sorted(path for path in wanted.keys() | held.keys() if wanted.get(path) != held.get(path))
    line = {"shard": shard, "code": code, "seed": seed, **found, "different": different}
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")
    if not found["failed"] and not different:
        shutil.rmtree(home, ignore_errors=True)
    return line


def problems(line: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a shard, in words."""
    found = [line["failed"]] if line["failed"] else []
    found += [f"{line['broken_keys']} broken keys"] if line["broken_keys"] else []
    return found + [f"{path} differs from the undisturbed run" for path in line["different"]]


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LOG.read_text().splitlines()] if LOG.exists() else []


def _code() -> str:
    """Return a digest of all that the data depends on."""
    names = ["dvc.yaml", "params.yaml", "catalogue.yaml", "profiles/sandbox.yaml", "tests/stress.py"]
    found = [ROOT / name for name in names] + sorted((ROOT / "pipelines").rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in found)).hexdigest()[:12]


@contextmanager
def _machinery(code: str) -> Iterator[tuple[Path, Path, int]]:
    """Make the checkout and the sandbox once, and serve the sandbox."""
    from crisis_corpus_sandbox.reddit.build import build
    from pipelines.core.config.params import load
    from tests.small_checkout import checkout

    folder = HOME / f"code-{code}"
    root, sandbox, noted = folder / "checkout", folder / "sandbox", folder / "port"
    if not noted.exists():
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        checkout(root, smaller=smaller)
        port = free_port()
        drawn = load(root, profile="sandbox").sandbox
        assert drawn is not None
        build(sandbox, sandbox=drawn.model_copy(update={"port": port}))
        noted.write_text(str(port))
    port = int(noted.read_text())
    environment = {**os.environ, "CORPUS_SANDBOX": str(sandbox), "CORPUS_SANDBOX_PORT": str(port)}
    argv = [sys.executable, "-m", "pipelines", "sandbox", "serve"]
    server = subprocess.Popen(argv, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield root, sandbox, port
    finally:
        server.kill()
        server.wait()


def smaller(profile: dict[str, Any]) -> None:
    """Make the profile of the sandbox as small as a shard needs, with labellers that need no network."""
    profile["sandbox"] |= {"submissions": 120, "posts": 200}
    profile["collect"]["shard_size"] = 40
    profile["sample"] = {"memes": {"size": 40}, "posts": {"size": 110}}
    profile["split"]["posts"] = {name: {"train": 30, "dev": 50, "test": 30} for name in ("ratios", "sizes")}
    profile["votes"]["labellers"] = {"posts": list(LABELLERS)}
    profile["votes"]["min_positives"] = 3
    profile["ensembles"] = {
        name: {"members": list(LABELLERS), "aggregate": aggregate, "fallback": None}
        for name, aggregate in zip(ENSEMBLES, AGGREGATES, strict=True)
    }
    profile["silver"] |= {"ensembles": {"posts": list(ENSEMBLES)}, "min_probability": 0.0}
    profile["train"]["rows"]["posts"]["ensemble"] = ENSEMBLES[0]
    profile["predict"] = {"rows": {"posts": []}}
    profile["injection_test"]["size"] = 10
