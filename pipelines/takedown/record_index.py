"""Keep which records each DVC object names, so that a takedown reads only the objects that name its records.

``<CORPUS_HOME>/object_index`` has one file per object: the sorted keyed digests (8 bytes each) of all ids that the
object names. An object never changes, so neither does its entry. An entry is written only if the object's bytes have
its digest, and counts only if it is authentic: a missing, damaged or forged entry makes the object be read. Nothing
else depends on the index; it may be deleted at any time.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from pipelines.core.config.settings import Settings
from pipelines.store.vault.keyring import IDENTITY_BYTES, derive
from pipelines.takedown.redaction import TOKEN, ids_in
from pipelines.workspace.objects import file_digest

# Raise it when `redaction.ids_in` finds other ids in the same bytes: entries of another format are unknown.
FORMAT = b"3"
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
        return None if wanted is None or (known := self._read(digest)) is None else _share(known, wanted)

    def add(self, digest: str, path: Path) -> None:
        """Store the entry of an object, whose bytes are at ``path``, unless they are not those that it is named for."""
        if not self._read_only and file_digest(path) == digest:
            self._write(digest, self._digests(ids_in(path)).tobytes())

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

    def _digests(self, ids: bytes) -> Digests:
        encryptor = self._cipher.encryptor()
        blocks = np.frombuffer(encryptor.update(ids) + encryptor.finalize(), "<u8")
        digests: Digests = np.unique(blocks[::2])
        return digests

    def _mac(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._key, b"%s %s " % (FORMAT, name.encode()) + data, "sha256")

    def _read(self, name: str) -> bytes | None:
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


def _share(data: bytes, wanted: Digests) -> bool:
    entry = np.frombuffer(data, "<u8")
    if not entry.size or not wanted.size:
        return False
    at = np.minimum(np.searchsorted(entry, wanted), entry.size - 1)
    return bool((entry[at] == wanted).any())
