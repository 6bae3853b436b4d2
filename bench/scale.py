"""Measure the tasks of ``posts_collect`` and ``posts_dataset`` at several sizes, from nothing and with one more month.

``python bench/scale.py [POSTS ...]``; 3,000,000 posts are the paper's eight communities in full. The texts are those of
``scale_posts.py``: 160 words on average, one in ten repeats an earlier post. Every task is a ``corpus
task`` command of its own, as Airflow starts it: clone, fetch, command, push, publish. Only the 60 months of the corpus
are written directly, because their source is not what is measured.

``month`` is a month 1.2 times as large as the others, collected from its dump, two shards at a time: the last of five
years in which communities grow by half, evenly. ``dataset`` is all tasks from nothing and ``one_more_month`` all of
them again, after one more month. ``deletion_sweep`` builds the index of records, as the daily Dag does, and
``takedown`` is the median of takedowns of one record. Memory is the proportional set size of all processes of a task,
which is ended above ``LIMIT``. The baseline is the same task at the size before, times the growth of n log n. With
``SCALE_HOME`` set, the corpora are kept there, and months that are finished are not written again.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import scale_posts as scale
from bench.scale_posts import DrawnTexts, ScaleMonth
from pipelines.collect.month import Window
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import Workspace, workspace

ROOT = Path(__file__).resolve().parents[1]
SIZES = (10_000, 100_000)
STAGES = ("dedupe", "sample", "gold", "split", "quality")
SECRET = bytes(32)
# The busiest month, as a multiple of the mean, and shards at a time: one per core.
BUSIEST, CORES = 1.2, 2
LIMIT = 8 << 30
# Takedowns of one record each, of which the median counts.
TAKEDOWNS = 5
# Seconds between two readings of memory.
PAUSE = 0.25
PROFILE = """
sources:
  dump: {ethics: "none needed: synthetic posts", access_basis: synthetic, approval: bench, expires: "2099-01-01",
         retention_days: 36500}
"""


@dataclass(frozen=True)
class Usage:
    """Seconds, CPU seconds and the peak memory in bytes of a task and all its processes."""

    seconds: float
    cpu: float
    peak: int

    def plus(self, other: Usage) -> Usage:
        """Return the usage of two tasks, one after the other."""
        return Usage(self.seconds + other.seconds, self.cpu + other.cpu, max(self.peak, other.peak))


class Tasks:
    """The ``corpus task`` commands on one corpus."""

    def __init__(self, home: Path, *, vault: Path, dumps: Path) -> None:
        os.environ |= {"CORPUS_HOME": str(home), "CORPUS_SECRET": SECRET.hex(), "CORPUS_DUMPS": str(dumps)}
        os.environ["CORPUS_VAULT_URL"] = f"sqlite:///{vault}"
        self.settings = Settings.from_env()

    def run(self, *argv: str, given: object = ()) -> dict[str, Any]:
        """Run a task; return what it prints."""
        return self.measured(*argv, given=given)[0]

    def measured(self, *argv: str, given: object = ()) -> tuple[dict[str, Any], Usage]:
        """Run a task; return what it prints and its usage. Of tasks at the same time, the CPU time is that of all."""
        return self.command("task", *argv, given=given)

    def command(self, *argv: str, given: object = ()) -> tuple[dict[str, Any], Usage]:
        """Run any other command of the package in the same way."""
        call = [sys.executable, "-m", "pipelines", *argv]
        log = self.settings.home / "tasks.log"
        begin, used = time.monotonic(), _cpu()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with log.open("ab") as err, subprocess.Popen(call, cwd=ROOT, **pipes, stderr=err, start_new_session=True) as p:
            ended, peaks = Event(), [0]
            watch = Thread(target=_watch, args=(p.pid, ended, peaks))
            watch.start()
            out, _ = p.communicate(json.dumps(given).encode())
            ended.set()
            watch.join()
        if p.returncode:
            over = " above the limit of memory" if max(peaks) > LIMIT else ""
            raise SystemExit(f"{' '.join(argv[:2])} ended with {p.returncode}{over}; see {log}.")
        return json.loads(out.splitlines()[-1]), Usage(time.monotonic() - begin, _cpu() - used, max(peaks))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(pid: int, ended: Event, peaks: list[int]) -> None:
    while not ended.wait(PAUSE):
        peaks.append(sum(map(_memory, _tree(pid))))
        if peaks[-1] > LIMIT:
            os.killpg(pid, signal.SIGKILL)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it."""
    yield pid
    try:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _tree(int(child))
    except OSError:
        return  # it has ended


def _memory(pid: int) -> int:
    """Return the proportional set size of a process in bytes: pages that n processes share count 1/n in each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def build(root: Path, *, posts: int) -> Path:
    """Write the sealed months of a corpus that are missing below ``root``; return the folder of its months."""
    params = load(ROOT)
    (root / "months").mkdir(parents=True, exist_ok=True)
    for month in scale.months(posts, seed=1):
        written = root / "months" / month.key
        if not written.exists():
            with Vault.open(f"sqlite:///{root}/vault.sqlite", secret=SECRET) as vault:
                write_month(month, root=root, params=params, vault=vault)
            written.touch()
    return root / "data" / "posts"


def write_month(month: ScaleMonth, *, root: Path, params: Params, vault: Vault) -> None:
    """Write one month's sealed tables, as the steps of collection do."""
    first, begin = month.numbers.start, Window.from_key(month.key).start
    texts = DrawnTexts.drawn(first, count=len(month.numbers), posts=month.posts)
    counts = np.diff(texts.begins).tolist()
    signed = texts.signatures(permutations=params.texts.permutations, shingle_words=params.texts.shingle_words)
    folder = root / "data" / "posts" / month.key
    ids = {vault.record_id(f"t3_{n:x}"): n for n in month.numbers}
    vault.admit([(r, f"t3_{n:x}") for r, n in ids.items()], corpus="posts", month=month.key, now=begin)
    cells: dict[str, Any] = {"kind": "text", "source": "dump", "nsfw": False, "spoiler": False, "scrubbed": "{}"}
    rows = (
        cells
        | {"record_id": r, "author_id": vault.author_id(scale.author(n, posts=month.posts))}
        | {"created": begin + timedelta(seconds=40 * (n - first)), "subreddit": scale.community(n)}
        | {"title": title, "body": body, "source_digest": r, "media": "[]"}
        for (r, n), (title, body) in zip(ids.items(), texts.said(), strict=True)
    )
    write_rows(rows, folder / "records.parquet", name="records", vault=vault)
    tables.write(tables.SCHEMAS["drops"].empty_table(), folder / "drops.parquet", name="drops")
    order, size = sorted(ids), params.collect.shard_size
    for shard in range(0, len(order), size):
        some = ((r, ids[r] - first) for r in order[shard : shard + size])
        made = ({"record_id": r, "words": counts[i], "language": "en", "signature": signed[i]} for r, i in some)
        write_rows(made, folder / "texts" / f"{shard // size:03d}.parquet", name="texts", vault=vault)


def publish(clone: Workspace, months: Sequence[Path]) -> None:
    """Commit written months to the corpus branch."""
    for month in months:
        shutil.copytree(month, clone.path / "data" / "posts" / month.name, copy_function=os.link)
        clone.add(sorted((clone.path / "data" / "posts" / month.name).rglob("*.parquet")))
    clone.commit("Months of posts", paths=["data"])


def dataset(tasks: Tasks, *, run: str) -> Iterator[tuple[str, Usage]]:
    """Run the tasks of ``posts_dataset`` and yield the usage of each."""
    given = ["--base", tasks.run("pin")["commit"], "--run", run, "--results", "-"]
    tokens: list[Any] = []
    for stage in STAGES:
        done, used = tasks.measured("stage", f"{stage}@posts", *given, given=tokens)
        tokens += done["results"]
        yield stage, used
    yield "publish", tasks.measured("publish-snapshot", "posts", "quality@posts", *given, given=tokens)[1]


def month(tasks: Tasks, *, posts: int) -> Iterator[tuple[str, Usage]]:
    """Run the tasks of ``posts_collect`` for the month after the last, and yield the usage of each."""
    after = ScaleMonth(scale.MONTHS, int(posts * BUSIEST), 1)
    after.write(tasks.settings.dumps)
    key, data, work = after.key, f"data/posts/{after.key}", f"work/posts/{after.key}"

    def step(name: str, *argv: str, out: Sequence[str], pointers: object = None) -> tuple[dict[str, Any], Usage]:
        globs = [part for pattern in out for part in ("--out", pattern)]
        call = ("step", "--pointers", "-", *globs, "--", name, "posts", "--month", key, *argv)
        return tasks.measured(*call, given=pointers or {})

    def shard(pointers: dict[str, str], number: int) -> tuple[dict[str, Any], Usage]:
        out = [f"{data}/texts/*.parquet", f"{work}/drops/*.parquet"]
        return step("texts", "--shard", str(number), out=out, pointers=pointers)

    done, used = step("collect", out=[f"{work}/*.parquet"])
    yield "collect", used
    found, pointers = done["result"], done["pointers"]
    begin, cpu = time.monotonic(), _cpu()
    with ThreadPoolExecutor(CORES) as pool:
        shards = list(pool.map(partial(shard, pointers), range(found["first"], found["first"] + found["shards"])))
    yield "texts", Usage(time.monotonic() - begin, _cpu() - cpu, max(used.peak for _, used in shards))
    every = {path: text for made, _ in shards for path, text in made["pointers"].items()} | pointers
    done, used = step("partition", out=[f"{data}/*.parquet"], pointers=every)
    yield "partition", used
    every = {path: text for path, text in (every | done["pointers"]).items() if path.startswith("data/")}
    yield "publish", tasks.measured("publish-partition", "posts", "--month", key, "--pointers", "-", given=every)[1]


def takedowns(tasks: Tasks, *, posts: int) -> Iterator[tuple[str, Usage]]:
    """Index the objects of all versions, then take down single records; yield the usage of both."""
    yield "deletion_sweep", tasks.command("takedown", "run-pending", "--yes", "--who", "bench")[1]
    took = []
    for number in Random(2).sample(range(posts), TAKEDOWNS):
        post = f"t3_{number:x}"
        done, used = tasks.command("takedown", "--post", post, "--reason", f"bench-{post}", "--who", "bench", "--yes")
        if done["records"] != 1 or not done["steps"]["rewrite"]:
            raise SystemExit(f"The takedown of {post} removed {done['records']} records.")
        took.append(used)
    yield "takedown", sorted(took, key=lambda used: used.seconds)[TAKEDOWNS // 2]


def measured(root: Path, *, posts: int) -> Iterator[tuple[str, Usage]]:
    """Yield the usage of each task at one size, and of each Dag."""
    months = sorted(build(root, posts=posts).iterdir())
    home, dumps = root / "home", root / "dumps"
    for folder in (home, dumps):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    # publishing stores the split in the vault: each measurement begins with the vault of the months
    shutil.copy(root / "vault.sqlite", home)
    (root / "bench.yaml").write_text(PROFILE)
    tasks = Tasks(home, vault=home / "vault.sqlite", dumps=dumps)
    repository.init(tasks.settings, checkout=ROOT, profile=str(root / "bench.yaml"))
    runs = {
        "dataset": (months[:-1], partial(dataset, tasks, run="first")),
        "one_more_month": (months[-1:], partial(dataset, tasks, run="second")),
        "month": ([], partial(month, tasks, posts=posts)),
    }
    for name, (more, steps) in runs.items():
        with workspace(tasks.settings) as clone:
            publish(clone, more)
        whole = Usage(0, 0, 0)
        for task, used in steps():
            whole = whole.plus(used)
            yield f"{name}_{task}", used
        yield name, whole
    yield from takedowns(tasks, posts=posts)


def main(sizes: list[int]) -> None:
    """Print one line of JSON for each task and size; ``ours`` are CPU seconds of all its processes."""
    before: dict[str, tuple[int, float]] = {}
    for posts in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(os.environ.get("SCALE_HOME", temporary)) / str(posts)
            for name, used in measured(root, posts=posts):
                n, cpu = before.get(name, (posts, used.cpu))
                before[name] = (posts, used.cpu)
                grown = cpu * posts * math.log(posts) / (n * math.log(n))
                line = {"name": f"scale_{name}_{posts:.0e}".replace("+0", ""), "ours": round(used.cpu, 1)}
                line |= {"baseline": round(grown, 1), "baseline_name": f"n log n from {n:,} posts"}
                line |= {"ratio": round(grown / used.cpu, 2), "unit": "CPU s", "seconds": round(used.seconds, 1)}
                line |= {"peak_mb": used.peak >> 20, "load": round(os.getloadavg()[0], 1)}
                print(json.dumps(line), flush=True)
            shutil.rmtree(root / "home")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or list(SIZES))
