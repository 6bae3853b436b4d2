"""Derive separate record ids for every release, so that releases cannot be joined by id.

Release ids are derived from the project secret and the release's name. Release ids can be recomputed after a takedown,
so no mapping to record ids is stored. Addresses and digests use a random key of the release, which is handed to
consumers separately from the package; the same key gives the same bytes. Code that both sides need is in
:mod:`crisis_corpus.hydrate`, which imports nothing of this project.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from crisis_corpus import hydrate
from pipelines.core.errors import BadParams
from pipelines.store.vault.vault import Vault

# Ours: valid as a folder name on every file system and as an id domain.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a release if it is valid."""
    if not NAME.fullmatch(name):
        raise BadParams(where="release", detail="a name has 1 to 64 lower-case letters, digits and ._- after the first")
    return name


def release_ids(record_ids: Iterable[str], *, release: str, vault: Vault) -> dict[str, str]:
    """Return the release id of each record: 32 hexadecimal digits of an HMAC that is specific to the release."""
    return {r: vault.record_id(r, domain=f"release/{release}") for r in record_ids}


def own_key(path: Path) -> bytes:
    """Return a release's random key of 32 bytes from its file; create the file with mode 600 on first use."""
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
        raise BadParams(where=path.name, detail="is not a release key; restore the file from a backup") from None


@dataclass(frozen=True)
class Content:
    """The content of a post that consumers of a release can verify: scrubbed text and each picture's first address."""

    text: str = field(repr=False)
    pictures: tuple[str, ...] = field(repr=False)


def fetch_row(key: bytes, *, release_id: str, image: int, fullname: str, content: Content) -> dict[str, str]:
    """Return the row of ``fetch.csv`` with which a consumer fetches an item and verifies its content."""
    post = hydrate.Address(fullname, hydrate.known_ends(content.text))
    address = content.pictures[image] if image < len(content.pictures) else ""
    picture = hydrate.picture_digest(key, release_id=release_id, image=image, address=address) if address else ""
    return {
        "id": release_id,
        "image": str(image),
        "address": hydrate.seal_address(key, post, release_id=release_id),
        "text": hydrate.text_digest(key, release_id=release_id, text=content.text, ends=post.ends),
        "picture": picture,
    }
