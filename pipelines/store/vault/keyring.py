"""Derive one key for each use from the project secret.

The first 32 bytes of the secret determine the record and author ids and never change, because the ids are in every
table and in the tombstones. The whole secret wraps the keys in the vault, so that bytes appended to it can be rotated.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pipelines.core.errors import BadParams, SealBroken

IDENTITY_BYTES = 32
# AES-256-SIV takes two 256-bit keys (RFC 5297).
SIV_KEY_BYTES = 64
# 128 bits: a collision among 10^9 records has a chance of about 10^-21.
ID_HEX_DIGITS = 32


def derive(secret: bytes, *, purpose: str, length: int) -> bytes:
    """Derive ``length`` bytes for one purpose from the secret with HKDF-SHA-256 (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=f"crisis-corpus/{purpose}".encode()).derive(secret)


class Keyring:
    """The project secret and the operations that need it: pseudonyms, and encryption of the vault's columns."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < IDENTITY_BYTES:
            raise BadParams(where="CORPUS_SECRET", detail=f"needs at least {IDENTITY_BYTES} bytes")
        self._identity = secret[:IDENTITY_BYTES]
        self._secret = secret
        self._id_keys: dict[str, bytes] = {}

    def name(self, text: str, *, domain: str) -> str:
        """Return the pseudonym of ``text``: 32 hexadecimal digits of HMAC-SHA-256 with the domain's own key."""
        key = self._id_keys.get(domain)
        if key is None:
            key = self._id_keys[domain] = derive(self._identity, purpose=f"id/{domain}", length=32)
        return hmac.digest(key, text.encode(), "sha256").hex()[:ID_HEX_DIGITS]

    @property
    def identity_check(self) -> bytes:
        """Return a check value for the secret's first 32 bytes, by which a vault rejects another vault's secret."""
        return derive(self._identity, purpose="check/identity", length=16)

    @property
    def wrapping_check(self) -> bytes:
        """Return a check value for the whole secret, by which a vault detects a secret that was rotated out."""
        return derive(self._secret, purpose="check/wrapping", length=16)

    @cached_property
    def _wrappers(self) -> dict[str, AESSIV]:
        return {
            column: AESSIV(derive(self._secret, purpose=f"wrap/{column}", length=SIV_KEY_BYTES))
            for column in ("key", "fullname")
        }

    def wrap(self, data: bytes, *, record_id: str, column: str) -> bytes:
        """Encrypt ``data`` for the vault's column ``key`` or ``fullname`` with AES-SIV, bound to the record."""
        return self._wrappers[column].encrypt(data, [record_id.encode()])

    def unwrap(self, rows: Iterable[tuple[str, bytes]], *, column: str) -> dict[str, bytes]:
        """Decrypt the vault's column ``key`` or ``fullname``; ``rows`` are (record id, encrypted value).

        Returns the decrypted values by record id.
        """
        decrypt = self._wrappers[column].decrypt
        opened = {}
        for record_id, wrapped in rows:
            try:
                opened[record_id] = decrypt(bytes(wrapped), [record_id.encode()])
            except InvalidTag:
                raise SealBroken(record_id=record_id, column=f"vault.{column}") from None
        return opened
