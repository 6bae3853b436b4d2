"""Read, replace and remove the DVC objects of every version of the corpus, in DVC's cache and remote, by digest.

A version is a commit of the corpus that names objects. An object that contains a deleted record's id is removed from
cache and remote, and the same table without the record is stored under its own digest. The mapping from old to new
digests is kept in ``<CORPUS_HOME>/takedowns/objects.json`` (digests and sizes, nothing else), so that an old version
can still be checked out without the record: :func:`pipelines.takedown.rewrite.mend`. Objects that name no deleted
record are not touched.

``<CORPUS_HOME>/object_index`` has which records each object names, so that only the objects of a takedown's records are
read: one file per object, with the sorted keyed digests (8 bytes each) of all ids that it names. An object never
changes, so neither does its entry. An entry is written only if the object's bytes have its digest, and counts only if
it is authentic: a missing, damaged or forged entry makes the object be read. Nothing else depends on the index; it may
be deleted at any time.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from pipelines.core import formats
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError
from pipelines.core.process import write_private
from pipelines.store.blind import blind
from pipelines.store.vault.keyring import IDENTITY_BYTES, derive
from pipelines.takedown.redaction import TOKEN, Gone, Left, ids_in
from pipelines.workspace.clone import Workspace
from pipelines.workspace.objects import TREE, file_digest, is_whole, tree_bytes

MAP = "takedowns/objects.json"
DIGEST = re.compile(r"[0-9a-f]{32}(?:\.dir)?")
# A DVC object, or a stage result under the key of its inputs.
OBJECT = re.compile(rf"{DIGEST.pattern}|[0-9a-f]{{64}}")
# Ours: longer than the upload of one object takes.
HALF_HOURS = 6


@dataclass(frozen=True)
class Change:
    """A DVC object rewritten without deleted records: new digest, bytes after and before, and what was removed."""

    digest: str
    size: int
    before: int
    left: Left


class Objects:
    """All objects in DVC's cache and remote, by digest."""

    def __init__(self, clone: Workspace, *, scratch: Path, read_only: bool) -> None:
        self._cache = clone.objects.cache
        self._remote = clone.objects.remote
        self._results = clone.results
        self._keys = lambda: clone.vault
        self._scratch = scratch
        self._index = RecordIndex.of(clone.settings, read_only=read_only)

    @classmethod
    @contextmanager
    def opened(cls, clone: Workspace, *, read_only: bool = False) -> Iterator[Objects]:
        """Open DVC's cache and the remote of a clone of the corpus; remove temporary files at the end.

        With ``read_only``, a search adds nothing to the index of records.
        """
        with tempfile.TemporaryDirectory(dir=clone.path.parent) as folder:
            yield cls(clone, scratch=Path(folder), read_only=read_only)

    def digests(self) -> list[str]:
        # half-written files are listed, too
        every = {*_listed(self._cache), *_listed(self._remote)}
        return sorted(digest for digest in every if DIGEST.fullmatch(digest))

    def exists(self, digest: str) -> bool:
        """Return whether an object is in the cache or in the remote."""
        return bool(self._cache.exists(digest) or self._remote.exists(digest))

    @contextmanager
    def file(self, digest: str, *, altered: bool = False) -> Iterator[Path]:
        """Yield the path of an object as a local file; if only a distant remote has it, it is downloaded first.

        Bytes that do not have the digest are an error, unless they may be ``altered``.
        """
        fetched = None
        try:
            path = cached = Path(self._cache.oid_to_path(digest))
            whole = cached.exists() and is_whole(cached, digest)
            if not whole and (self._remote.exists(digest) or not cached.exists()):
                path = Path(self._remote.oid_to_path(digest))
                if self._remote.fs.protocol != "local":
                    path = fetched = self._scratch / digest
                    self._remote.fs.get_file(self._remote.oid_to_path(digest), str(path))
                whole = is_whole(path, digest)
            if not whole and not altered:
                raise DataError("ObjectUnreadable", digest=digest, detail="its bytes do not have this digest")
            yield path
        except (OSError, pa.ArrowException) as error:
            raise DataError("ObjectUnreadable", digest=digest, detail=type(error).__name__) from None
        finally:
            if fetched is not None:
                fetched.unlink(missing_ok=True)

    def tree(self, digest: str) -> dict[str, str]:
        """Return the content of a folder object: relative path -> digest of the file."""
        with self.file(digest) as path:
            return {entry["relpath"]: entry["md5"] for entry in json.loads(path.read_bytes())}

    def _may_name(self, tree: str, doomed: set[str]) -> bool:
        with suppress(DataError):
            return not doomed.isdisjoint(self.tree(tree).values())
        # it was altered, and no reader accepts it
        return True

    def size(self, digest: str) -> int:
        with self.file(digest) as path:
            return path.stat().st_size

    def named(self, gone: Gone, *, among: Collection[str] | None = None) -> list[str]:
        """Return the digests of the objects (of ``among``, or all) that contain the id of a deleted record.

        Only objects that the index does not know are read. Folder objects are lists of digests and name no records.
        """
        every = sorted(self.digests() if among is None else among)
        if among is None:
            self._index.keep(every)
        wanted, digests = self._index.digests_of(gone.ids), []
        for digest in every:
            if digest.endswith(TREE):
                continue
            named = self._index.names(digest, wanted)
            if named is None:
                with self.file(digest, altered=True) as path:
                    named = bool(gone.within(path))
                    if not named:
                        self._index.add(digest, path)
            if named:
                digests.append(digest)
        return digests

    def without(self, digest: str, gone: Gone) -> Change:
        """Store a copy of an object without the deleted records in cache and remote, and return the change."""
        made = self._scratch / f"{digest}.made"
        with self.file(digest) as path:
            left, before = gone.without(path, made), path.stat().st_size
        blind(made, keys=self._keys)
        size = made.stat().st_size
        change = Change(self.put(made), size, before, left)
        with self.file(change.digest) as path:
            self._index.add(change.digest, path)
        return change

    def put(self, path: Path, *, suffix: str = "") -> str:
        """Move a file into the cache atomically and copy it to the remote; return its digest."""
        from dvc_objects.fs.local import localfs

        digest = file_digest(path) + suffix
        for place in (self._remote, self._cache):
            place.add(str(path), localfs, digest)
        path.unlink()
        return digest

    def put_tree(self, entries: Mapping[str, str]) -> str:
        """Store a folder object in DVC's format; return its digest."""
        made = self._scratch / "tree"
        made.write_bytes(tree_bytes(entries))
        return self.put(made, suffix=TREE)

    def places(self, digests: Collection[str]) -> dict[str, int]:
        """Return how many of these objects are in the cache and how many in the remote."""
        held = {"cache": self._cache, "remote": self._remote}
        return {name: sum(place.exists(digest) for digest in digests) for name, place in held.items()}

    def remove(self, digests: Collection[str]) -> None:
        """Remove objects from cache and remote, and before them the cached stage results that refer to them."""
        doomed = set(digests)
        if doomed:
            trees = [digest for digest in self.digests() if digest.endswith(TREE)]
            dangling = {digest for digest in trees if self._may_name(digest, doomed)}
            self._results.forget(doomed | dangling)
            self._index.remove(doomed)
        for place in (self._remote, self._cache):
            for digest in sorted(doomed):
                if place.exists(digest):
                    place.delete(digest)

    def unfinished(self, *, now: datetime) -> list[Path]:
        """Return the incomplete files of killed processes in the cache and a local remote.

        An incomplete table does not show which records it contains. Files modified within HALF_HOURS may still be in
        use and are left out.
        """
        places = [(self._cache.fs, self._cache.path), (self._remote.fs, self._remote.path), self._results.place]
        roots = [Path(path) for fs, path in places if fs.protocol == "local"]
        return [
            path
            for root in roots
            for path in root.rglob("*")
            if path.is_file()
            and not OBJECT.fullmatch(f"{path.parent.name}{path.name}")
            and now.timestamp() - path.stat().st_mtime > HALF_HOURS * 3600
        ]


def _listed(place: Any) -> Iterator[str]:
    if place.fs.protocol != "local":
        yield from place.all()
        return
    # DVC's own listing takes ten times as long
    yield from (f"{path.parent.name}{path.name}" for path in Path(place.path).glob("??/*"))


def replaced(settings: Settings) -> dict[str, tuple[str, int]]:
    """Return the objects that takedowns have replaced: old digest -> new digest and size in bytes."""
    with suppress(FileNotFoundError):
        known = formats.opened("objects", json.loads((settings.home / MAP).read_bytes()))["digests"]
        return {old: (str(new), int(size)) for old, (new, size) in known.items()}
    return {}


def remember(changes: Mapping[str, Change], *, settings: Settings) -> None:
    """Add changes to the stored map of replaced objects; an object replaced twice is mapped to the last replacement."""
    fresh = {old: (change.digest, change.size) for old, change in changes.items() if old != change.digest}
    known = {old: fresh.get(now[0], now) for old, now in replaced(settings).items()} | fresh
    text = json.dumps(formats.stamped("objects", {"digests": dict(sorted(known.items()))}), indent=1)
    write_private(settings.home / MAP, text)


def remove_folder(folder: Path) -> None:
    """Delete a folder, which another process may delete at the same time."""

    def failed(_: object, path: str, raised: tuple[Any, ...]) -> None:
        if not isinstance(raised[1], FileNotFoundError):
            raise DataError("FolderNotDeleted", path=path, error=raised[0].__name__) from None

    shutil.rmtree(folder, onerror=failed)


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
        # raise the version when `redaction.ids_in` finds other ids in the same bytes: older entries are unknown then
        head = f"{formats.version('object_index')} {name} "
        return hmac.digest(self._key, head.encode() + data, "sha256")

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
