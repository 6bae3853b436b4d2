"""Other names for the same records in every release, so that no two of them can be joined.

A release's ids come from the project secret and the release's name, so that none of them has to be stored beside the
record's own to be found again after a takedown. Its addresses and digests come from a random key of its own, which is
handed to consumers apart from the package; the same key gives the same bytes. :mod:`pipelines.release.hydrate` has what
both sides do, and no import of ours.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.errors import BadParams
from pipelines.release import hydrate
from pipelines.vault.vault import Vault

# Ours: the name of a folder on every file system, and of a domain of ids.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a release.

    Raises:
        BadParams: it is none.
    """
    if not NAME.fullmatch(name):
        raise BadParams(where="release", detail="a name has 1 to 64 lower-case letters, digits and ._- after the first")
    return name


def release_ids(record_ids: Iterable[str], *, release: str, vault: Vault) -> dict[str, str]:
    """Return the id in one release of each record: 32 hex digits of the vault's HMAC in the release's own domain."""
    return {r: vault.record_id(r, domain=f"release/{release}") for r in record_ids}


def own_key(path: Path) -> bytes:
    """Return the release's random key of 32 bytes, made on first use with mode 600.

    Raises:
        BadParams: the file holds something else.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.part")
        made.unlink(missing_ok=True)
        made.touch(mode=0o600)
        made.write_text(secrets.token_hex(hydrate.KEY_BYTES) + "\n")
        made.replace(path)
    try:
        return hydrate.read_key(path)
    except hydrate.Stop:
        raise BadParams(where=path.name, detail="is no key of a release; restore it") from None


@dataclass(frozen=True)
class Content:
    """What is known of a post that a consumer can compare: its scrubbed text, and each picture's first address."""

    text: str = field(repr=False)
    pictures: tuple[str, ...] = field(repr=False)


def fetch_row(key: bytes, *, release_id: str, image: int, fullname: str, content: Content) -> dict[str, str]:
    """Return the row of ``fetch.csv`` by which a consumer finds one item and knows it again."""
    found = hydrate.Address(fullname, hydrate.known_ends(content.text))
    address = content.pictures[image] if image < len(content.pictures) else ""
    known = hydrate.picture_digest(key, release_id=release_id, image=image, address=address) if address else ""
    return {
        "id": release_id,
        "image": str(image),
        "address": hydrate.seal_address(key, found, release_id=release_id),
        "text": hydrate.text_digest(key, release_id=release_id, text=content.text, ends=found.ends),
        "picture": known,
    }
