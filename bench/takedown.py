"""Measure a takedown of 1 and of 1,000 of 50,000 records from two versions, against filtering every table.

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
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from dvc.repo import Repo

from pipelines.config.settings import Settings
from pipelines.config.takedown import Takedown
from pipelines.storage import seal, tables
from pipelines.takedown import takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import Gone
from pipelines.takedown.selection import Selection
from pipelines.vault.vault import Vault
from pipelines.workspace import trust
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.stages import StageRun

SNAPSHOT = "snapshot/posts"
RECORDS, MONTHS, BYTES, SHARD = 50_000, 10, 4_000, 1_000
WHEN = datetime(2022, 12, 1, tzinfo=UTC)
STAGE = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
from pipelines.storage import tables
stage, out = sys.argv[1], Path(sys.argv[2])
ids = pa.concat_tables([pq.read_table(p, columns=["record_id"]) for p in Path("data").glob("*/*/posts.parquet")])
ids = ids["record_id"].combine_chunks().sort()
def write(name, **columns):
    schema = tables.SCHEMAS[name]
    full = {f.name: columns.get(f.name, pa.nulls(len(ids), f.type)) for f in schema}
    table = pa.table({k: pc.cast(v, schema.field(k).type) for k, v in full.items()})
    tables.write(table, out / f"{name}.parquet", name=name)
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


def begin(home: Path) -> tuple[Settings, list[str]]:
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
                    ids += fill(clone, month=month, vault=vault)
                run, entries = StageRun.of(clone, name=f"half {half}", base=clone.head), clone.lock()
                for stage in STAGES:
                    results = run.receive(clone, [run.reproduce(clone, stage)])
                    clone.take(results)
                    entries |= {result.stage: result.entry for result in results}
                clone.write_lock(entries)
                clone.commit(f"half {half}", paths=["data", "dvc.lock"])
    return settings, ids


def fill(clone: Workspace, *, month: int, vault: Vault) -> list[str]:
    """Write one month of posts and pictures; return the ids."""
    count, rng = RECORDS // MONTHS, random.Random(month)
    names = {f"t3_{month * count + n:x}" for n in range(count)}
    items = sorted((vault.record_id(name), name) for name in names)
    vault.admit(items, corpus="posts", month=f"2022-{month + 1:02d}", now=WHEN)
    ids, folder = [record_id for record_id, _ in items], clone.path / "data" / "posts" / f"2022-{month + 1:02d}"
    posts = dict.fromkeys(tables.SCHEMAS["posts"].names) | {
        "created": WHEN,
        "kind": "image",
        "subreddit": "one",
        "source": "dump",
    }
    rows = [posts | {"record_id": i, "author_id": i[::-1], "title": f"a title, {i[:9]}", "body": i * 10} for i in ids]
    seal.write_rows(rows, folder / "posts.parquet", name="posts", vault=vault)
    picture = dict.fromkeys(tables.SCHEMAS["images"].names) | {"image": 0}
    for at in range(0, count, SHARD):
        shard = [picture | {"record_id": i, "bytes": rng.randbytes(BYTES)} for i in ids[at : at + SHARD]]
        seal.write_rows(shard, folder / "images" / f"{at // SHARD:03d}.parquet", name="images", vault=vault)
    clone.add(sorted(folder.rglob("*.parquet")))
    return ids


def ours(settings: Settings, *, ids: list[str]) -> tuple[float, dict[str, float]]:
    """Return the seconds of a takedown of these records, in total and by step."""
    selection, now = Selection(f"{len(ids):032x}", frozenset(ids), {"posts": len(ids)}), datetime.now(UTC)
    marks: list[tuple[str, float]] = []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        start = time.monotonic()
        takedown.run(
            selection, reason="bench", who="bench", settings=settings, vault=vault, now=now,
            terms=Takedown(withdraw_share=1), say=lambda what: marks.append((what, time.monotonic())),
        )  # fmt: skip
        total = time.monotonic() - start
    took, last = {}, start
    for name, at in marks:
        if name in ("tombstone", "rewrite", "purge", "objects", "models", "receipt"):
            took[name], last = round(at - last, 2), at
    return total, took


def baseline(settings: Settings, *, ids: list[str]) -> float:
    """Return the seconds of the same for the newest version only, with DVC's own commands in a checkout."""
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
        return time.monotonic() - start


def main() -> None:
    """Print a line of JSON for 1 and for 1,000 records."""
    with tempfile.TemporaryDirectory() as folder, quiet_errors():
        with quiet():
            settings, ids = begin(Path(folder) / "home")
            # as the daily sweep does: it adds the objects of the day to the index of records
            with workspace(settings) as clone, Objects.opened(clone) as objects:
                objects.named(Gone(["0" * 32]))
        saved, rng, lines, first = Path(folder) / "saved", random.Random(1), [], 0.0
        shutil.copytree(settings.home, saved)
        for count in (1, 1_000):
            who = rng.sample(ids, count)
            with quiet():
                took, steps = ours(settings, ids=who)
                shutil.rmtree(settings.home)
                shutil.copytree(saved, settings.home)
                other = baseline(settings, ids=who)
                shutil.rmtree(settings.home)
                shutil.copytree(saved, settings.home)
            first = first or took
            lines.append(
                {
                    "name": f"takedown of {count:,} of {RECORDS:,}",
                    "ours": round(took, 2),
                    "baseline": round(other, 2),
                    "baseline_name": "filter every table of a checkout, newest version only",
                    "ratio": round(other / took, 2),
                    "unit": "s",
                    "growth": round(took / first, 2),
                    "steps": steps,
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
