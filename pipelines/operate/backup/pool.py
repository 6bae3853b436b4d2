"""Keep the files of all backups in one folder, by digest, so that a backup copies only what is new.

A DVC object has its own name, an MD5; any other file the SHA-256 of its bytes. A file gets its name only when all of
its bytes are there and have this digest, so that an interrupted backup is resumed by repeating it. A backup is a
manifest, a JSON file named after its time, that lists the files; it is authenticated under the project secret.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import compress
from operator import not_
from pathlib import Path
from typing import TypeVar

from crisis_corpus.integrity import sha256
from pipelines.core import formats
from pipelines.core.errors import BadParams, DataError
from pipelines.core.process import write_private
from pipelines.store.vault.keyring import IDENTITY_BYTES, derive
from pipelines.workspace.objects import REQUESTS, TREE, file_digest

NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")
A = TypeVar("A")
B = TypeVar("B")
FORMAT = "%Y-%m-%dT%H-%M-%SZ"
SHA256_DIGITS = 64


@dataclass(frozen=True)
class BackupManifest:
    """The content of one backup.

    Args:
        made: the time of the backup, as ISO 8601.
        commit: the newest commit of branch ``corpus`` in it.
        databases: database -> its file: an SQLite database, or a dump of ``pg_dump`` if the name ends in ``.dump``.
        files: path of a file -> size and SHA-256.
        objects: digest of a DVC object -> size.
    """

    made: str
    commit: str
    databases: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of each file of the pool that this backup needs, by its name."""
        return self.objects | {digest: size for size, digest in self.files.values()}


class Pool:
    """The folder of the backups of one project."""

    def __init__(self, folder: Path, *, secret: bytes) -> None:
        self.folder = folder
        # as the ids, the key does not change when the secret is rotated
        self._key = derive(secret[:IDENTITY_BYTES], purpose="backup", length=32)

    def path(self, digest: str) -> Path:
        """Return the path of a file of the pool."""
        return self.folder / "pool" / digest[:2] / digest[2:]

    def put(self, path: Path) -> tuple[int, str]:
        """Copy a file into the pool; return its size and SHA-256."""
        digest = sha256(path)
        self.add(digest, lambda half: shutil.copyfile(path, half))
        return self.path(digest).stat().st_size, digest

    def add(self, digest: str, copy: Callable[[Path], object]) -> bool:
        """Store a file that ``copy`` writes to a path, unless it is in the pool; return whether it was copied."""
        place = self.path(digest)
        if place.exists():
            return False
        for above in (self.folder / "pool", place.parent):
            above.mkdir(exist_ok=True, mode=0o700)
        half = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            copy(half)
            half.chmod(0o600)
            if _digest(half, like=digest) != digest:
                raise DataError("BackupDamaged", detail=f"the file {digest} was altered before it was copied")
            with half.open("rb") as file:
                os.fsync(file.fileno())
            half.replace(place)
        finally:
            half.unlink(missing_ok=True)
        return True

    def require(self, manifest: BackupManifest) -> None:
        """Check that every file of a backup is in the pool and unaltered."""
        for digest in self._damaged(manifest.sizes):
            raise DataError("BackupDamaged", detail=f"the file {digest} is missing or was altered")

    def verify(self) -> int:
        """Remove the altered files of the pool; return their number."""
        damaged = list(self._damaged(self.held()))
        for digest in damaged:
            self.path(digest).unlink()
        return len(damaged)

    def held(self) -> list[str]:
        """Return the names of all files in the pool."""
        return [f"{path.parent.name}{path.name}" for path in self.folder.glob("pool/*/*") if path.name[0] != "."]

    def names(self) -> list[str]:
        """Return the names of the backups, oldest first."""
        return sorted(path.stem for path in self.folder.glob("*.json") if NAME.fullmatch(path.stem))

    def write(self, manifest: BackupManifest) -> str:
        """Store the manifest of a complete backup; return the name of the backup."""
        name = datetime.fromisoformat(manifest.made).astimezone(UTC).strftime(FORMAT)
        body = formats.stamped("backup", asdict(manifest))
        write_private(self.folder / f"{name}.json", json.dumps(body | {"mac": self._mac(body)}, indent=1) + "\n")
        return name

    def read(self, name: str | None) -> BackupManifest:
        """Return the manifest of a backup, by default of the newest one."""
        names = self.names()
        if not names or (name or names[-1]) not in names:
            detail = f"has no such backup; it has {', '.join(names) or 'none'}"
            raise BadParams("BadArgument", where=str(self.folder), detail=detail)
        try:
            body = json.loads((self.folder / f"{name or names[-1]}.json").read_bytes())
            mac = str(body.pop("mac"))
            content = formats.opened("backup", body)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DataError("BackupDamaged", detail="its manifest is not one of `corpus backup`") from None
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            raise DataError("BackupDamaged", detail="its manifest was altered, or written with another secret")
        files = {path: (size, sha) for path, (size, sha) in content["files"].items()}
        return BackupManifest(**{**content, "files": files})

    def prune(self, *, days: int, now: datetime) -> int:
        """Delete the backups older than ``days`` except the newest, and what no backup needs; return their number."""
        names = self.names()
        old = [n for n in names[:-1] if now - datetime.strptime(n, FORMAT).replace(tzinfo=UTC) > timedelta(days)]
        needed = {digest for name in names if name not in old for digest in self.read(name).sizes}
        for name in old:
            (self.folder / f"{name}.json").unlink()
        for path in self.folder.glob("pool/*/*"):
            if f"{path.parent.name}{path.name}" not in needed:
                path.unlink()
        return len(old)

    def _mac(self, body: object) -> str:
        return hmac.digest(self._key, json.dumps(body, sort_keys=True).encode(), "sha256").hex()

    def _damaged(self, digests: Collection[str]) -> Iterator[str]:
        def whole(digest: str) -> bool:
            path = self.path(digest)
            return path.is_file() and _digest(path, like=digest) == digest

        with each(whole, digests) as wholes:
            yield from compress(digests, map(not_, wholes))


@contextmanager
def each(work: Callable[[A], B], items: Collection[A]) -> Iterator[Iterator[B]]:
    """Call a function for each item, several at a time."""
    pool = ThreadPoolExecutor(REQUESTS)
    try:
        yield pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _digest(path: Path, *, like: str) -> str:
    if len(like) != SHA256_DIGITS:
        return file_digest(path) + (TREE if like.endswith(TREE) else "")
    return sha256(path)
