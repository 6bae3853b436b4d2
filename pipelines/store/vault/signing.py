"""Sign with Ed25519 keys that are derived from the project secret; signatures are verified without the secret.

Text is signed in OpenSSH's format, so that `git verify-tag` can verify it, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from contextlib import suppress

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pipelines.store.vault.keyring import IDENTITY_BYTES, derive

KIND = b"ssh-ed25519"
BEGIN, END = "-----BEGIN SSH SIGNATURE-----\n", "\n-----END SSH SIGNATURE-----\n"


class Signer:
    """A private Ed25519 key for one purpose; the key does not change when the project secret is rotated."""

    def __init__(self, secret: bytes, *, purpose: str) -> None:
        seed = derive(secret[:IDENTITY_BYTES], purpose=f"sign/{purpose}", length=32)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature of ``data``."""
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
        with suppress(ValueError, InvalidSignature):
            blob = base64.b64decode(re.sub(r"\s|-----END.*", "", rest), validate=True)
            Ed25519PublicKey.from_public_bytes(self.public).verify(blob[-64:], _message(signed))
            return signed
        return None


def _strings(*values: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def _message(text: str) -> bytes:
    return b"SSHSIG" + _strings(b"git", b"", b"sha512", hashlib.sha512(text.encode()).digest())
