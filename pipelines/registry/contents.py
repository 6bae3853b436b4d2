"""Read the model package of a model version: its manifest and the ids of its training records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from crisis_corpus.integrity import MODEL, RECORDS, NoPack, PackManifest, place, read_manifest


@dataclass(frozen=True)
class Pack:
    """The model package of a downloaded model version: its folder, manifest and ids of training records."""

    folder: Path
    manifest: PackManifest
    records: frozenset[str]

    @classmethod
    def read(cls, version: Path) -> Pack:
        """Read the model package in the folder of a downloaded model version."""
        folder = place(version)
        return cls(folder, read_manifest(folder / MODEL), read_records(folder / RECORDS))


def read_records(path: Path) -> frozenset[str]:
    """Return the ids of the records that a model was trained or selected on, from ``records.parquet``."""
    try:
        return frozenset(pq.read_table(path, columns=["record_id"])["record_id"].to_pylist())
    except (OSError, ValueError, KeyError):
        raise NoPack(detail=f"{RECORDS} is missing or unreadable") from None
