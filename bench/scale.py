"""Measure the stages of the posts corpus at several sizes, from nothing and with one more month.

``python bench/scale.py [POSTS ...]``; 3,000,000 posts are the paper's eight communities in full. The posts have 160
words on average: words and common phrases by Zipf's law. One in ten repeats an earlier post; most of these are edited,
some are exact, and some belong to bursts of one text. Each step runs in a process of its own. The baseline of a step is
its time at the smallest size times the growth of n log n. With ``SCALE_HOME`` set, the corpora are kept there.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.params import Params, load
from pipelines.curate import quality, sample
from pipelines.curate.dedupe import dedupe
from pipelines.curate.split import split
from pipelines.sandbox.reddit.post_world import COMMUNITIES
from pipelines.sandbox.reddit.scale_texts import Texts
from pipelines.storage import tables
from pipelines.storage.seal import write_rows
from pipelines.vault.vault import Vault

ROOT = Path(__file__).resolve().parents[1]
SIZES = (10_000, 100_000)
MONTHS = 60
Step = Callable[[Path, Vault, Params], object]


def write_month(month: int, *, posts: int, root: Path, params: Params) -> None:
    """Write one month's sealed tables, as the steps of collection do."""
    each = math.ceil(posts / MONTHS)
    numbers = range(month * each, min((month + 1) * each, posts))
    name, begin = (
        f"{2018 + month // 12}-{1 + month % 12:02d}",
        datetime(2018 + month // 12, 1 + month % 12, 1, tzinfo=UTC),
    )
    folder, done = root / "data" / "posts" / name, root / "months" / name
    if done.exists():
        return
    texts = Texts.drawn(numbers[0], count=len(numbers), posts=posts)
    counts = np.diff(texts.begins).tolist()
    signed = texts.signatures(permutations=params.texts.permutations, shingle_words=params.texts.shingle_words)
    with vault_of(root) as vault:
        ids = {vault.record_id(f"t3_{n:x}"): n for n in numbers}
        vault.admit([(r, f"t3_{n:x}") for r, n in ids.items()], corpus="posts", month=name, now=begin)
        cells: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["posts"].names) | {"kind": "text", "source": "dump"}
        rows = (
            cells
            | {"record_id": r, "author_id": vault.author_id(f"u{n * 7919 % (posts // 2)}")}
            | {"created": begin + timedelta(seconds=50 * (n - numbers[0])), "subreddit": COMMUNITIES[n % 8]}
            | {"title": title, "body": body, "source_digest": r, "media": "[]"}
            for (r, n), (title, body) in zip(ids.items(), texts.said(), strict=True)
        )
        write_rows(rows, folder / "posts.parquet", name="posts", vault=vault)
        tables.write(tables.SCHEMAS["drops"].empty_table(), folder / "drops.parquet", name="drops")
        order, size = sorted(ids), params.collect.shard_size
        for shard in range(0, len(order), size):
            made = (
                {"record_id": r, "words": counts[ids[r] - numbers[0]], "language": "en"}
                | {"signature": signed[ids[r] - numbers[0]]}
                for r in order[shard : shard + size]
            )
            write_rows(made, folder / "texts" / f"{shard // size:03d}.parquet", name="texts", vault=vault)
    done.touch()


def vault_of(root: Path) -> Vault:
    """Open the vault of a corpus."""
    return Vault.open(f"sqlite:///{root}/vault.sqlite", secret=bytes(32))


def build(root: Path, *, posts: int, params: Params) -> None:
    """Write the months of a corpus that are missing, and the empty gold tables of a corpus without labels."""
    (root / "months").mkdir(exist_ok=True)
    for month in range(MONTHS):
        write_month(month, posts=posts, root=root, params=params)
    for name in ("gold", "drops"):
        empty = pa.Table.from_pylist([], schema=tables.SCHEMAS[name])
        tables.write(empty, root / "snapshot" / "posts" / "gold" / f"{name}.parquet", name=name)


STEPS: dict[str, Step] = {
    "dedupe": lambda root, vault, params: dedupe.run("posts", params=params, vault=vault, root=root),
    "sample": lambda root, vault, params: sample.run("posts", params=params, vault=vault, root=root),
    "split": lambda root, vault, params: split.run("posts", params=params, vault=vault, root=root),
    "quality": lambda root, vault, params: quality.run("posts", params=params, settings=None, vault=vault, root=root),
}


def step(name: str, root: Path) -> dict[str, float]:
    """Run one step; return seconds and CPU seconds without the imports, and the peak memory of this process in MB."""
    params = load(ROOT)
    begin, used = time.monotonic(), time.process_time()
    with vault_of(root) as vault:
        STEPS[name](root, vault, params)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.monotonic() - begin, "cpu": time.process_time() - used, "peak_mb": peak}


def apart(name: str, root: Path) -> dict[str, float]:
    """Run one step in a process of its own."""
    call = [sys.executable, __file__, "--step", name, str(root)]
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(root: Path, *, posts: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each step's figures, without the last month and again with it."""
    params = load(ROOT)
    if not (root / "built").exists():
        build(root, posts=posts, params=params)
        (root / "built").touch()
    last = sorted((root / "data" / "posts").iterdir())[-1]
    aside = root / "last"
    last.rename(aside)
    try:
        for name in STEPS:
            yield name, apart(name, root)
    finally:
        aside.rename(last)
    more = [apart(name, root) for name in STEPS]
    whole = {key: sum(found[key] for found in more) for key in ("seconds", "cpu")}
    yield "one_more_month", {**whole, "peak_mb": max(found["peak_mb"] for found in more)}


def main(sizes: list[int]) -> None:
    """Print one line of JSON for each step and size; ``ours`` are CPU seconds."""
    first: dict[str, tuple[int, float]] = {}
    for posts in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(os.environ.get("SCALE_HOME", temporary)) / str(posts)
            root.mkdir(parents=True, exist_ok=True)
            for name, found in measured(root, posts=posts):
                n, cpu = first.setdefault(name, (posts, found["cpu"]))
                grown = cpu * posts * math.log(posts) / (n * math.log(n))
                line = {"name": f"scale_{name}_{posts:.0e}".replace("+0", ""), "ours": round(found["cpu"], 1)}
                line |= {"baseline": round(grown, 1), "baseline_name": f"n log n from {n:,} posts"}
                line |= {"ratio": round(grown / found["cpu"], 2), "unit": "CPU s"}
                print(json.dumps(line | {key: round(found[key], 1) for key in ("seconds", "peak_mb")}), flush=True)
            shutil.rmtree(root / "snapshot" / "posts" / "dedupe")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        print(json.dumps(step(sys.argv[2], Path(sys.argv[3]))))
    else:
        main([int(size) for size in sys.argv[1:]] or list(SIZES))
