"""Keep which records each DVC object names, so that a takedown reads only the objects that name its records.

``<CORPUS_HOME>/object_index`` has one file per object: the sorted keyed digests (8 bytes each) of all ids that the
object names. Those of a table are stored by row group, so that only the row groups that name a record are rewritten.
An object never changes, so neither does its entry. An entry is written only if the object's bytes have its digest, and
counts only if it is authentic: a missing, damaged or forged entry makes the object be read. Nothing else depends on the
index; it may be deleted at any time.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from pipelines.config.settings import Settings
from pipelines.takedown.redacted_tables import TOKEN
from pipelines.takedown.redaction import ids_in
from pipelines.vault.keyring import IDENTITY_BYTES, derive
from pipelines.workspace.objects import file_digest

# Raise it when `redaction.ids_in` finds other ids in the same bytes: entries of another format are unknown.
FORMAT = b"2"
MAC_BYTES = 32
SCANNED = "scanned"
Digests = NDArray[np.uint64]


class RecordIndex:
    """The index of one host; several processes may use it at once."""

    def __init__(self, folder: Path, *, secret: bytes, read_only: bool = False) -> None:
        self._folder, self._read_only = folder, read_only
        # as the ids, the keys do not change when the secret is rotated
        keys = derive(secret[:IDENTITY_BYTES], purpose="object-index", length=64)
        # each id is one block, so that this is a keyed digest; HMAC takes 100 times as long
        self._cipher, self._key = Cipher(AES256(keys[:32]), ECB()), keys[32:]  # noqa: S305

    @classmethod
    def of(cls, settings: Settings, *, read_only: bool = False) -> RecordIndex:
        """Return the index of a home; its folder is created with the first entry, and not if it is ``read_only``."""
        return cls(settings.home / "object_index", secret=settings.secret(), read_only=read_only)

    def digests_of(self, record_ids: Collection[str]) -> Digests | None:
        """Return the keyed digests of record ids; ``None`` if one is in no form that the index has."""
        if not all(map(TOKEN.fullmatch, record_ids)):
            return None
        return self._digests(bytes.fromhex("".join(record_ids)))

    def names(self, digest: str, wanted: Digests | None) -> bool | None:
        """Return whether an object names one of these records; ``None`` if only reading the object shows it.

        Two ids have the same 8 bytes with a chance of 2^-64; such an object is rewritten to the same bytes.
        """
        groups = self.groups(digest, wanted)
        return None if groups is None else bool(groups)

    def groups(self, digest: str, wanted: Digests | None) -> list[int] | None:
        """Return the row groups of a table, or 0 for any other object, that name one of these records.

        ``None``: only reading the object shows it.
        """
        if wanted is None or (parts := self._parts(digest)) is None:
            return None
        return [number for number, part in enumerate(parts) if _share(part, wanted)]

    def add(self, digest: str, path: Path) -> None:
        """Store the entry of an object, whose bytes are at ``path``, unless they are not those that it is named for."""
        if not self._read_only and file_digest(path) == digest:
            self._store(digest, [self._digests(ids) for ids in ids_in(path)])

    def add_copy(self, digest: str, path: Path, *, of: str, copied: Sequence[int | None]) -> None:
        """Store the entry of a table, just written to ``path``, of which the row groups ``copied`` are those of ``of``.

        ``copied`` has for each row group its number in the object ``of``, or ``None`` if the group is new.
        """
        if not self._read_only and (known := self._parts(of)) is not None:
            fresh = iter(ids_in(path, groups=[at for at, number in enumerate(copied) if number is None]))
            self._store(digest, [self._digests(next(fresh)) if n is None else known[n] for n in copied])

    def remove(self, digests: Collection[str]) -> None:
        """Delete the entries of objects."""
        for digest in digests if not self._read_only else ():
            # what cannot be deleted is not authentic, or names an object that is gone
            with suppress(OSError):
                (self._folder / digest).unlink()

    def keep(self, digests: Collection[str]) -> None:
        """Delete all entries except those of these objects, and what killed processes left half-written."""
        if self._folder.is_dir():
            self.remove({path.name for path in self._folder.iterdir()} - {*digests, SCANNED})

    def clear(self, *, now: datetime) -> None:
        """Delete all entries, so that every object is read once more."""
        self.keep(())
        self._write(SCANNED, now.isoformat().encode())

    def is_due(self, *, now: datetime, days: int) -> bool:
        """Return whether the last :meth:`clear` was ``days`` ago or longer, or is unknown."""
        data = self._read(SCANNED)
        return data is None or not timedelta() <= now - datetime.fromisoformat(data.decode()) < timedelta(days)

    def _parts(self, digest: str) -> list[Digests] | None:
        """Return the digests of each row group, or of the whole object; ``None`` without an authentic entry."""
        if (data := self._read(digest)) is None:
            return None
        entry = np.frombuffer(data, "<u8")
        sizes = entry[1 : 1 + int(entry[0])] if entry.size else entry
        return np.split(entry[1 + sizes.size :], np.cumsum(sizes[:-1], dtype=np.int64)) if sizes.size else []

    def _store(self, digest: str, parts: Sequence[Digests]) -> None:
        sizes = np.array([len(parts), *map(len, parts)], "<u8")
        self._write(digest, np.concatenate([sizes, *parts]).astype("<u8").tobytes())

    def _digests(self, ids: bytes) -> Digests:
        encryptor = self._cipher.encryptor()
        blocks = np.frombuffer(encryptor.update(ids) + encryptor.finalize(), "<u8")
        digests: Digests = np.unique(blocks[::2])
        return digests

    def _mac(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._key, b"%s %s " % (FORMAT, name.encode()) + data, "sha256")

    def _read(self, name: str) -> bytes | None:
        """Return the content of a file of the index; ``None`` if it is missing or was not written by :meth:`_write`."""
        try:
            stored = (self._folder / name).read_bytes()
        except OSError:
            return None
        mac, data = stored[:MAC_BYTES], stored[MAC_BYTES:]
        return data if hmac.compare_digest(mac, self._mac(name, data)) else None

    def _write(self, name: str, data: bytes) -> None:
        half = self._folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        # an object without an entry is read, which a full disk must not prevent
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            half.touch(mode=0o600)
            half.write_bytes(self._mac(name, data) + data)
            half.replace(self._folder / name)


def _share(entry: Digests, wanted: Digests) -> bool:
    if not entry.size or not wanted.size:
        return False
    at = np.minimum(np.searchsorted(entry, wanted), entry.size - 1)
    return bool((entry[at] == wanted).any())
