"""Digest the split of a corpus, so that results on different splits are never compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pipelines.storage import tables


def split_digest(corpus: str, *, root: Path = Path()) -> str:
    """Return the SHA-256 of the lines ``record image split`` of ``snapshot/<corpus>``."""

    rows = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits").to_pylist()
    return digest_of(f"{row['record_id']} {row['image']} {row['split']}" for row in rows)


def digest_of(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines, in sorted order."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
