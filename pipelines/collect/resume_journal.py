"""Keep the pages that a source has sent until all of them are read, so that a retry requests only the others."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from pipelines.core.errors import SealBroken
from pipelines.store.seal import seal, unseal

COLUMN = "state"
LENGTH_BYTES = 4


class ResumeJournal:
    """An append-only file of encrypted pages; a page that a crash left incomplete is removed and requested again."""

    def __init__(self, path: Path, *, secret: bytes, day: date) -> None:
        self._path = path
        self._key = hmac.digest(secret, b"crisis-corpus/collect/state", "sha512")
        self._day = day
        self._name = ""
        self._count = 0

    def begin(self, query: str) -> list[dict[str, Any]]:
        """Return the stored pages of an earlier attempt at the same query on the same day, oldest first."""
        self._name = f"{self._day}:{query}"
        self._count = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        entries, whole = [], 0
        self._path.touch(mode=0o600)
        with self._path.open("r+b") as file:
            for entry in self._frames(file):
                entries.append(entry)
                whole = file.tell()
            file.truncate(whole)
        return entries

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append one page of a listing, and wait until it is on disk."""
        sealed = seal(self._key, record_id=self._record, column=COLUMN, data=orjson.dumps(entry))
        with self._path.open("ab") as file:
            file.write(len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed)
            file.flush()
            os.fsync(file.fileno())
        self._count += 1

    def end(self) -> None:
        """Delete the file, because the source was read completely."""
        self._path.unlink(missing_ok=True)

    @property
    def _record(self) -> str:
        return f"{self._name}:{self._count}"

    def _frames(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        while len(head := file.read(LENGTH_BYTES)) == LENGTH_BYTES:
            length = int.from_bytes(head, "big")
            sealed = file.read(length)
            try:
                data = unseal(self._key, record_id=self._record, column=COLUMN, data=sealed)
            except SealBroken:
                return
            self._count += 1
            yield orjson.loads(data)
