"""Measure sealing and opening 100,000 small posts against the same table with plain content.

``cpu`` figures are posts per CPU second of all processes: they do not depend on other load, and not on the cores.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.store import seal, tables
from pipelines.store.vault.vault import Vault

POSTS = 100_000
WHEN = datetime(2022, 12, 1, tzinfo=UTC)


def rows(ids: list[str]) -> list[dict[str, Any]]:
    """Return one small post for each record: a title of 40 characters and an address of 60."""
    cells: dict[str, Any] = {"created": WHEN, "kind": "image", "nsfw": False, "spoiler": False, "source": "dump"}
    cells |= {"scrubbed": "{}", "subreddit": "one", "body": ""}
    return [
        cells
        | {
            "record_id": i,
            "author_id": i,
            "source_digest": i,
            "title": f"a title of a post, {i[:20]}",
            "media": f"https://example.org/{i}.jpg",
        }
        for i in ids
    ]


def cpu() -> float:
    """Return the CPU seconds of this process and of the processes that it forked."""
    return sum(os.times()[:4])


def main() -> None:
    """Print one line of JSON: posts per second for writing and for reading one column, sealed and plain."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Vault.open(f"sqlite:///{folder}/vault.sqlite", secret=bytes(32)) as vault,
    ):
        items = [(vault.record_id(f"t3_{n:x}"), f"t3_{n:x}") for n in range(POSTS)]
        begin = time.monotonic()
        vault.admit(items, corpus="memes", month="2022-12", now=WHEN)
        admitted = time.monotonic() - begin
        posts = rows([record_id for record_id, _ in items])
        path = Path(folder) / "records.parquet"

        begin = time.monotonic()
        table = pa.Table.from_pylist(
            [p | {"title": p["title"].encode(), "media": p["media"].encode()} for p in posts],
            schema=tables.SCHEMAS["records"],
        )
        tables.write(table, path, name="records")
        tables.read(path, name="records")["title"].to_pylist()
        plain = time.monotonic() - begin

        begin, cpu_begin = time.monotonic(), cpu()
        seal.write_rows(posts, path, name="records", vault=vault)
        written, cpu_written = time.monotonic() - begin, cpu() - cpu_begin
        seal.open_column(tables.read(path, name="records"), name="records", column="title", vault=vault)
        sealed, cpu_sealed = time.monotonic() - begin, cpu() - cpu_begin
    print(
        json.dumps(
            {
                "name": "seal",
                "ours": round(POSTS / sealed),
                "baseline": round(POSTS / plain),
                "baseline_name": "the same table unsealed",
                "ratio": round(plain / sealed, 3),
                "unit": "posts/s",
                "write_seconds": round(written, 2),
                "open_seconds": round(sealed - written, 2),
                "admit_seconds": round(admitted, 2),
                "cores": len(os.sched_getaffinity(0)),
                "cpu_write": round(POSTS / cpu_written),
                "cpu_open": round(POSTS / (cpu_sealed - cpu_written)),
                "cpu": round(POSTS / cpu_sealed),
            }
        )
    )


if __name__ == "__main__":
    main()
