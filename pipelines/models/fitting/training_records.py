"""Write and read the list of records that a model was trained on or selected by.

``records.parquet`` has their rows of the table ``splits``, so a deletion finds the models that it affects and removes
the ids. The digest of the list stays in the committed metrics: a list that has changed since is recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa

from crisis_corpus.integrity import sha256
from pipelines.core.config.base import Section
from pipelines.store import tables
from pipelines.store.tables import Item

FILE = tables.RECORDS
# Tag of a training run in MLflow: the digest of its list.
TAG = "selected"


class TrainingRecords(Section):
    """The number of a model's training records, and the SHA-256 of their sorted ids, one id per line."""

    records: int
    digest: str


def trained_on(record_ids: Collection[str] | pa.ChunkedArray) -> TrainingRecords:
    """Return the number of distinct record ids and the digest of these; their order does not matter."""
    records, digest = tables.listed(record_ids)
    return TrainingRecords(records=records, digest=digest)


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each of the files, by the name given in ``files``."""
    return {name: sha256(path) for name, path in files.items()}


def write(placed: Mapping[Item, tuple[str, str]], *, folder: Path) -> TrainingRecords:
    """Write the list of a model's training records; return the number and digest of the records.

    Args:
        placed: item -> its split and its group (of near-duplicates, or one author).
    """
    rows = [{"record_id": r, "image": n, "group": g, "split": s} for (r, n), (s, g) in placed.items()]
    tables.write_rows(rows, folder / FILE, name="splits")
    return trained_on([record_id for record_id, _ in placed])


def read(folder: Path) -> dict[str, str] | None:
    """Return the split of every record on which a model was trained or selected; ``None`` if the folder has no list."""
    if not (folder / FILE).is_file():
        return None
    rows = tables.read(folder / FILE, name="splits", columns=["record_id", "split"]).to_pylist()
    return {row["record_id"]: row["split"] for row in rows}
