"""``python writer.py ROLE ROOT``: one process of the test with two writers and one reader of a key.

A line on standard input begins a round and names its key. A writer answers ``first`` or ``second``. A reader reads
until the next line and answers with the counts of what it read.
"""

from __future__ import annotations

import json
import select
import sys
from collections import Counter
from typing import Any

from pipelines.workspace.results import Results, ResultUnusable, StageResult

# More than a pipe or a page holds, so that a half-written object would be seen.
SIZE = 100_000


def opened(root: str) -> Results:
    """Return the results of a remote: a folder, or an address of S3 whose endpoint is in the environment."""
    fs: Any
    if root.startswith("s3://"):
        from dvc_s3 import S3FileSystem

        fs = S3FileSystem()
        root = root.removeprefix("s3://")
    else:
        from dvc_objects.fs.local import localfs as fs
    return Results(fs, root, secret=b"secret")


def result(role: str, key: str) -> StageResult:
    """Return what a writer stores under a key; no two writers and no two keys have the same bytes."""
    return StageResult("stage", {"cmd": key}, {"metrics/x.json": (role * SIZE)[:SIZE]})


def write(results: Results, role: str) -> None:
    """Store a result of its own in every round."""
    for line in sys.stdin:
        key = line.strip()
        own = result(role, key)
        kept, differs = results.create(key, own)
        assert differs == (kept != own)
        say("second" if differs else "first")


def read(results: Results) -> None:
    """Read the key of every round until the round ends."""
    # line by line: what a buffer took ahead would hide from `select`
    while line := sys.stdin.buffer.raw.readline():  # type: ignore[attr-defined]
        key = line.decode().strip()
        whole = [result(role, key) for role in ("one", "two")]
        seen: Counter[str] = Counter()
        kept, ended = None, False
        while True:
            try:
                found = results.get(key)
                bad = (found is None and kept is not None) or found not in (None, *whole) or kept not in (None, found)
                seen["bad" if bad else "absent" if found is None else "whole"] += 1
                kept = found
            except ResultUnusable:
                seen["bad"] += 1
            if ended:
                break
            # one more look after the end, so that every round is read
            if ended := bool(select.select([sys.stdin], [], [], 0)[0]):
                sys.stdin.buffer.raw.readline()  # type: ignore[attr-defined]
        say(json.dumps(seen))


def say(line: str) -> None:
    """Answer the process that counts the rounds."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, root = sys.argv[1:]
    store = opened(root)
    say("ready")
    if role == "reader":
        read(store)
    else:
        write(store, role)
