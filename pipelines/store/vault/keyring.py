"""Derive one key for each use from the project secret: for ids, for the vault's columns, and for signatures (Ed25519).

The first 32 bytes of the secret determine the record and author ids and never change, because the ids are in every
table and in the tombstones. The whole secret wraps the keys in the vault, so that bytes appended to it can be rotated.
Signatures are verified without the secret; text is signed in OpenSSH's format, so that `git verify-tag` can verify it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
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
        """Decrypt the vault's column ``key`` or ``fullname``, given and returned by record id."""
        decrypt = self._wrappers[column].decrypt
        opened = {}
        for record_id, wrapped in rows:
            try:
                opened[record_id] = decrypt(bytes(wrapped), [record_id.encode()])
            except InvalidTag:
                raise SealBroken(record_id=record_id, column=f"vault.{column}") from None
        return opened


KIND = b"ssh-ed25519"
BEGIN, END = "-----BEGIN SSH SIGNATURE-----\n", "\n-----END SSH SIGNATURE-----\n"


class Signer:
    """A private Ed25519 key for one purpose; the key does not change when the project secret is rotated."""

    def __init__(self, secret: bytes, *, purpose: str) -> None:
        seed = derive(secret[:IDENTITY_BYTES], purpose=f"sign/{purpose}", length=32)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def sign_text(self, text: str) -> str:
        """Return a text with its signature appended in OpenSSH's format, as git does for tags."""
        public = _strings(KIND, self.public)
        signature = _strings(KIND, self.sign(_message(text)))
        blob = b"SSHSIG" + struct.pack(">I", 1) + _strings(public, b"git", b"", b"sha512", signature)
        return f"{text}{BEGIN}{base64.encodebytes(blob).decode().strip()}{END}"

    def signed_text(self, text: str) -> str | None:
        """Return a text without this key's signature at its end, or ``None`` if it has no valid signature."""
        signed, _, rest = text.partition(BEGIN)
        # the raw signature ends the blob; the rest of it describes key and algorithm, which are fixed here
        with suppress(ValueError):
            blob = base64.b64decode(re.sub(r"\s|-----END.*", "", rest), validate=True)
            return signed if is_signed(_message(signed), signature=blob[-64:], public=self.public) else None
        return None


def is_signed(data: bytes, *, signature: bytes, public: bytes) -> bool:
    """Return whether data has the signature of the holder of an Ed25519 key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (ValueError, InvalidSignature):
        return False
    return True


def _strings(*values: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def _message(text: str) -> bytes:
    return b"SSHSIG" + _strings(b"git", b"", b"sha512", hashlib.sha512(text.encode()).digest())
