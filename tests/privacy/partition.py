"""Writes the posts of a month in their plain columns, for tests that read nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.small_corpus import full, write_table

PLAIN = {"subreddit": "SuicideMeme", "source": "reddit", "created": datetime(2023, 1, 2, tzinfo=UTC)}


def write_posts(path: Path, *, rows: dict[str, dict[str, Any]]) -> None:
    write_table(path, [full("records", **PLAIN, record_id=i) | fields for i, fields in rows.items()], name="records")
