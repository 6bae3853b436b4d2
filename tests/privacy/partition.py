"""Writes the posts of a month in their plain columns, for tests that read nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.store import tables

PLAIN = {"subreddit": "SuicideMeme", "source": "reddit", "created": datetime(2023, 1, 2, tzinfo=UTC)}


def write_posts(path: Path, *, rows: dict[str, dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = tables.SCHEMAS["records"]
    filled = [dict.fromkeys(schema.names) | PLAIN | {"record_id": i} | fields for i, fields in rows.items()]
    tables.write(pa.Table.from_pylist(filled, schema=schema), path, name="records")
