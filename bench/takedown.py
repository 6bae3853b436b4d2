"""Measure a takedown of 1 and of 1,000 of 50,000 records from two versions, against filtering every table.

``python bench/takedown.py [RECORDS ...]``: further sizes are measured without the baseline, as growth from the first.
The corpus has two commits: ten months of posts with pictures of 4 kB, near-duplicates, splits, votes and silver. The
baseline uses DVC's own commands: check out, write every table without the rows, commit, push. It leaves the older
version unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from dvc.repo import Repo

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.store import seal, tables
from pipelines.store.vault.vault import Vault
from pipelines.takedown import takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import Gone
from pipelines.takedown.selection import Selection
from pipelines.takedown.stores import stores
from pipelines.workspace import trust
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.stages import StageRun

SNAPSHOT = "snapshot/posts"
STORES = {store.name for store in stores()}
RECORDS, MONTHS, BYTES, SHARD = (50_000,), 10, 4_000, 1_000
# Takedowns of one record at each size; the median counts.
REPEATS = 5
WHEN = datetime(2022, 12, 1, tzinfo=UTC)
STAGE = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
from pipelines.store import tables
stage, out = sys.argv[1], Path(sys.argv[2])
ids = pa.concat_tables([pq.read_table(p, columns=["record_id"]) for p in Path("data").glob("*/*/records.parquet")])
ids = ids["record_id"].combine_chunks().sort()
def write(name, **columns):
    full = {}
    for c in tables.CONTRACTS[name].columns:
        known = {pa.string(): (*c.accepted_values, "-")[0], pa.bool_(): False}
        least = None if c.nullable else [] if pa.types.is_list(c.type) else known.get(c.type, 0)
        full[c.name] = pc.cast(columns[c.name], c.type) if c.name in columns else pa.array([least] * len(ids), c.type)
    tables.write(pa.table(full), out / f"{name}.parquet", name=name)
first = ids.take(pa.array([i - i % 3 for i in range(len(ids))]))
zero, labels = pa.array([0] * len(ids)), pa.array([["no_crisis"]] * len(ids))
if stage == "dedupe":
    write("pairs", record_id=first, image=zero, other_id=ids, other_image=zero)
    write("clusters", record_id=ids, image=zero, cluster=pc.binary_join_element_wise(first, "0", "#"))
elif stage == "split":
    write("splits", record_id=ids, image=zero, group=pc.binary_join_element_wise(first, "0", "/"))
else:
    write(stage, record_id=ids, category=pa.array(["labels"] * len(ids)), labels=labels)
"""
# the command of the clone; its script imports the installed package
MAIN = "import subprocess, sys\nsys.exit(subprocess.run(['python', '-P', 'stage.py', *sys.argv[1:]]).returncode)\n"
CODE = {"stage.py": STAGE, "pipelines/__init__.py": "", "pipelines/__main__.py": MAIN, ".gitignore": "__pycache__/\n"}
STAGES = {
    "dedupe": ["data/posts"],
    "split": ["data/posts", "snapshot/posts/dedupe"],
    "votes": ["data/posts", "snapshot/posts/split"],
    "silver": ["data/posts", "snapshot/posts/votes"],
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Redirect DVC's output, because standard output must hold only JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def begin(home: Path, *, records: int) -> tuple[Settings, list[str]]:
    """Create the corpus; return its settings and the ids of its records."""
    os.environ["CORPUS_HOME"], os.environ["CORPUS_SECRET"] = str(home), "5e" * 64
    settings, code = Settings.from_env(), home / "code"
    shape = {
        name: {
            "cmd": f"python -m pipelines {name} snapshot/posts/{name}",
            "deps": deps,
            "outs": [f"snapshot/posts/{name}"],
        }
        for name, deps in STAGES.items()
    }
    ignore = {"data/.gitignore": "*.parquet\n", "snapshot/.gitignore": "*\n!.gitignore\n"}
    for name, text in {"dvc.yaml": yaml.safe_dump({"stages": shape}), **CODE, **ignore}.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    git("init", "--quiet", "-b", "main", cwd=code)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=code, check=True)
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "code", cwd=code)
    git("clone", "--quiet", "--bare", str(code), settings.repo)
    for branch in ("code", "corpus"):
        git("--git-dir", settings.repo, "branch", branch, "main")
    trust.sign(settings, "corpus", who="bench", why="a corpus", cwd=Path(settings.repo), to=settings.repo)
    Path(settings.remote).mkdir(parents=True)
    ids: list[str] = []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        for half in range(2):
            with workspace(settings) as clone:
                for month in range(half * MONTHS // 2, (half + 1) * MONTHS // 2):
                    ids += fill(clone, month=month, count=records // MONTHS, vault=vault)
                run, entries = StageRun(clone, f"half {half}", clone.head), clone.lock()
                for stage in STAGES:
                    results = run.receive([run.reproduce(stage)])
                    clone.take(results)
                    entries |= {result.stage: result.entry for result in results}
                clone.write_lock(entries)
                clone.commit(f"half {half}", paths=["data", "dvc.lock"])
    return settings, ids


def fill(clone: Workspace, *, month: int, count: int, vault: Vault) -> list[str]:
    """Write one month of posts and pictures; return the ids."""
    rng = random.Random(month)
    names = {f"t3_{month * count + n:x}" for n in range(count)}
    items = sorted((vault.record_id(name), name) for name in names)
    vault.admit(items, corpus="posts", month=f"2022-{month + 1:02d}", now=WHEN)
    ids, folder = [record_id for record_id, _ in items], clone.path / "data" / "posts" / f"2022-{month + 1:02d}"
    posts = {"created": WHEN, "kind": "image", "subreddit": "one", "source": "dump", "source_digest": "-"}
    posts |= {"media": "[]", "scrubbed": "{}", "nsfw": False, "spoiler": False}
    rows = [posts | {"record_id": i, "author_id": i[::-1], "title": f"a title, {i[:9]}", "body": i * 10} for i in ids]
    seal.write_rows(rows, folder / "records.parquet", name="records", vault=vault)
    texts = dict.fromkeys(("sha256", "ocr_engine", "language", "fingerprint_id"), "-") | {"text": ""}
    numbers = dict.fromkeys(("words", "ocr_confidence", "energy", "text_area"), 0) | {"width": 1, "height": 1}
    hashes = dict.fromkeys(("fingerprint", "inner_fingerprint", "outer_fingerprint"))
    picture = texts | numbers | hashes | {"image": 0}
    for at in range(0, count, SHARD):
        shard = [picture | {"record_id": i, "bytes": rng.randbytes(BYTES)} for i in ids[at : at + SHARD]]
        seal.write_rows(shard, folder / "images" / f"{at // SHARD:03d}.parquet", name="images", vault=vault)
    clone.add(sorted(folder.rglob("*.parquet")))
    return ids


@dataclass(frozen=True)
class Took:
    """The duration of a takedown: seconds, CPU seconds of all processes, and seconds by step."""

    seconds: float
    cpu: float = 0
    steps: dict[str, float] = field(default_factory=dict)


def ours(settings: Settings, *, ids: list[str]) -> Took:
    """Take down these records and return how long it took."""
    selection, now = Selection(ids[0], frozenset(ids), {"records": len(ids)}), datetime.now(UTC)
    marks: list[tuple[str, float]] = []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        start, used = time.monotonic(), sum(os.times()[:4])
        takedown.Deletion(
            settings=settings, vault=vault, now=now, terms=Takedown(withdraw_share=1),
            say=lambda what: marks.append((what, time.monotonic())),
        ).run(selection, reason="bench", who="bench")  # fmt: skip
        total, cpu = time.monotonic() - start, sum(os.times()[:4]) - used
    steps, last = {}, start
    for name, at in marks:
        if name in STORES or name == "receipt":
            steps[name], last = round(at - last, 2), at
    return Took(total, cpu, steps)


def baseline(settings: Settings, *, ids: list[str]) -> Took:
    """Do the same for the newest version only, with DVC's own commands in a checkout."""
    with workspace(settings) as clone:
        start = time.monotonic()
        wanted = tables.strings(ids)
        with contextlib.chdir(clone.path), Repo(str(clone.path)) as repo:
            repo.pull()
            for path in sorted(p for d in ("data", "snapshot") for p in (clone.path / d).rglob("*.parquet")):
                table = pq.read_table(path)
                kept = table.filter(pc.invert(pc.is_in(table["record_id"], value_set=wanted)))
                path.unlink()
                pq.write_table(kept, path)
            for pointer in sorted(clone.path.rglob("*.dvc")):
                if pointer.is_file():
                    repo.commit(target=str(pointer), force=True)
            repo.commit(force=True)
            repo.push()
        return Took(time.monotonic() - start)


def indexed(home: Path, *, records: int) -> tuple[Settings, list[str]]:
    """Create the corpus, and index its objects as the daily sweep does."""
    settings, ids = begin(home, records=records)
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        objects.named(Gone(["0" * 32]))
    return settings, ids


def against_baseline(settings: Settings, *, ids: list[str], saved: Path) -> list[dict[str, Any]]:
    """Take down 1 and 1,000 records, in turn with the baseline, from the same state."""
    shutil.copytree(settings.home, saved)
    rng, lines, first = random.Random(1), [], 0.0
    for count in (1, 1_000):
        who, took = rng.sample(ids, count), []
        for how in (ours, baseline):
            took.append(how(settings, ids=who))
            shutil.rmtree(settings.home)
            shutil.copytree(saved, settings.home)
        first = first or took[0].seconds
        lines.append(
            {
                "name": f"takedown of {count:,} of {len(ids):,}",
                "ours": round(took[0].seconds, 2),
                "baseline": round(took[1].seconds, 2),
                "baseline_name": "filter every table of a checkout, newest version only",
                "ratio": round(took[1].seconds / took[0].seconds, 2),
                "unit": "s",
                "growth": round(took[0].seconds / first, 2),
                "steps": took[0].steps,
            }
        )
    return lines


def one_by_one(settings: Settings, *, ids: list[str]) -> Took:
    """Take down single records, one after the other; return the median of the times."""
    took = [ours(settings, ids=[record]) for record in random.Random(2).sample(ids, REPEATS)]
    return sorted(took, key=lambda one: one.cpu)[REPEATS // 2]


def main() -> None:
    """Print lines of JSON: against the baseline, and for one record at each size."""
    sizes, lines, first = [int(given) for given in sys.argv[1:]] or RECORDS, [], None
    with tempfile.TemporaryDirectory() as folder, quiet_errors():
        for size in sizes:
            home = Path(folder) / f"{size}"
            with quiet():
                settings, ids = indexed(home, records=size)
                if size == sizes[0]:
                    lines += against_baseline(settings, ids=ids, saved=Path(folder) / "saved")
                took = one_by_one(settings, ids=ids) if len(sizes) > 1 else None
            shutil.rmtree(home)
            if took is None:
                continue
            first = first or took
            lines.append(
                {
                    "name": f"takedown of one record, {size:,}",
                    "ours": round(took.cpu, 2),
                    "baseline": round(first.cpu, 2),
                    "baseline_name": f"{sizes[0]:,} records",
                    "ratio": round(first.cpu / took.cpu, 2),
                    "unit": "CPU s",
                    "growth": round(took.cpu / first.cpu, 2),
                    "seconds": round(took.seconds, 2),
                    "growth_seconds": round(took.seconds / first.seconds, 2),
                    "steps": took.steps,
                }
            )
    for line in lines:
        print(json.dumps(line))


@contextlib.contextmanager
def quiet_errors() -> Iterator[None]:
    """Suppress DVC's progress output."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


if __name__ == "__main__":
    main()
