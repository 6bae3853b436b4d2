"""Search every store on this machine; tables, archives and git objects are unpacked."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.config.settings import Settings
from pipelines.takedown.redaction import is_table
from pipelines.takedown.stores import Store, stores


def counted(settings: Settings, *needles: bytes) -> dict[str, int]:
    """Return for each store the number of occurrences of these bytes.

    The caller adds needles in other encodings (base64 in an annotation server).
    """
    return {
        store.name: sum(text.count(needle) for text in _texts(store, settings) for needle in needles)
        for store in stores()
    }


def _texts(store: Store, settings: Settings) -> Iterator[bytes]:
    """Yield the unpacked content of a store, file by file."""
    repositories = set()
    for path in _files(store, settings):
        if (bare := _repository(path)) is None:
            yield from _unpacked(path)
        elif bare not in repositories:
            repositories.add(bare)
            yield _git_objects(bare)


def _files(store: Store, settings: Settings) -> Iterator[Path]:
    for path in store.paths(settings):
        yield from ((p for p in sorted(path.rglob("*")) if p.is_file()) if path.is_dir() else [path][: path.is_file()])


def _repository(path: Path) -> Path | None:
    """Return the bare repository that contains a file; ``None`` if there is none."""
    return next((p for p in path.parents if (p / "HEAD").is_file() and (p / "objects").is_dir()), None)


def _git_objects(bare: Path) -> bytes:
    """Return every object of every commit, reachable or not."""
    argv = ["git", "--git-dir", str(bare), "cat-file", "--batch", "--batch-all-objects"]
    return subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout


def _unpacked(path: Path) -> Iterator[bytes]:
    if is_table(path):
        # pages are compressed, so the raw bytes cannot be searched
        for column in pq.read_table(path).columns:
            yield b"\n".join(_cells(column))
    elif path.suffix == ".gz":
        yield gzip.decompress(path.read_bytes())
    else:
        yield path.read_bytes()


def _cells(column: pa.ChunkedArray) -> Iterator[bytes]:
    for value in column.to_pylist():
        yield value if isinstance(value, bytes) else str(value).encode()
