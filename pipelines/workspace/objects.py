"""Store and fetch DVC's content-addressed objects: one cache per host, one remote for all hosts.

An object is named by the MD5 of its bytes; a folder is an object that lists the digests of its files and whose name
ends in ``.dir``. Every write is atomic (a temporary file, then a rename), so a reader sees a whole object or none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipelines.core.errors import DataError
from pipelines.workspace.dvc_remote import storage

TREE = ".dir"
# Ours: concurrent requests when many objects of a distant remote are checked.
REQUESTS = 16


class ObjectIncomplete(DataError):
    """A DVC object that is needed is missing or damaged in the cache or on the remote."""


class ObjectStore:
    """The DVC cache and remote of one clone of the corpus repository."""

    def __init__(self, repo: Any) -> None:
        from dvc_objects.fs.local import localfs

        self.cache = repo.cache.local
        self.remote = storage(repo)
        self._local = localfs
        self._trees: dict[str, dict[str, str]] = {}

    @property
    def root(self) -> str:
        """Return the remote's top folder, which contains the folder of DVC objects."""
        # objects are below files/md5
        return str(self.remote.fs.parent(self.remote.fs.parent(self.remote.path)))

    def tree(self, digest: str) -> dict[str, str]:
        """Return the digest of each file in a folder object (a DVC object that lists files) by relative path."""
        if digest not in self._trees:
            self.fetch([digest])
            entries = json.loads(Path(self.cache.oid_to_path(digest)).read_bytes())
            self._trees[digest] = {entry["relpath"]: entry["md5"] for entry in entries}
        return self._trees[digest]

    def size(self, digest: str) -> int:
        """Return the size of a DVC object in bytes, after fetching it to the cache."""
        self.fetch([digest])
        return Path(self.cache.oid_to_path(digest)).stat().st_size

    def fetch(self, digests: Iterable[str]) -> None:
        """Copy DVC objects from the remote to the cache, and verify each against its digest."""
        missing = sorted(digest for digest in set(digests) if not self._cached(digest))
        if not missing:
            return
        paths = [self.remote.oid_to_path(digest) for digest in missing]
        # a failed copy is found by the check below
        self.cache.add(paths, self.remote.fs, missing, verify=True, on_error=lambda *_: None)
        for digest in missing:
            if not self._cached(digest):
                raise ObjectIncomplete(digest=digest, place="remote")

    def push(self, digests: Iterable[str]) -> None:
        """Copy DVC objects from the cache to the remote if they are missing or have another size there.

        The list of a folder is copied after its files.
        """
        wanted = set(digests)
        files = {digest for folder in wanted if folder.endswith(TREE) for digest in self.tree(folder).values()}
        for group in ((wanted | files) - _folders(wanted), _folders(wanted)):
            held = self._sizes(group)
            for digest in group:
                if held[digest] is None and not self._cached(digest):
                    raise ObjectIncomplete(digest=digest, place="cache")
            missing = sorted(digest for digest in group if self._cached(digest) and held[digest] != self.size(digest))
            if missing:
                paths = [self.cache.oid_to_path(digest) for digest in missing]
                self.remote.add(paths, self._local, missing, check_exists=False)

    def put(self, path: Path) -> str:
        """Add a file to the DVC cache and return its digest; the file may become a link to the cached object."""
        digest = file_digest(path)
        self.cache.add(str(path), self._local, digest, hardlink=True)
        return digest

    def put_tree(self, entries: Mapping[str, str]) -> str:
        """Add a folder's file list (relative path -> digest) to the cache in DVC's format, and return its digest."""
        digest = tree_digest(entries)
        if not self._cached(digest):
            self.cache.add_bytes(digest, tree_bytes(entries))
        return digest

    def link(self, digest: str, path: Path) -> None:
        """Place an object of the DVC cache at a path of the working tree, as a link if possible."""
        from dvc_objects.fs import generic

        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        links = list(self.cache.cache_types)
        generic.transfer(self._local, self.cache.oid_to_path(digest), self._local, str(path), links=links)

    def require_whole(self, outs: Mapping[str, int]) -> None:
        """Check that the DVC remote contains these objects and, for folders, every file in them.

        Args:
            outs: digest -> size in bytes; of a folder the sum of its files.
        """
        sizes = self._sizes({file for digest in outs for file in self._files(digest)} | _folders(outs))
        for digest, size in outs.items():
            held = [sizes[file] for file in self._files(digest)]
            if digest not in sizes or sizes[digest] is None or None in held or sum(filter(None, held)) != size:
                raise ObjectIncomplete(digest=digest, place="remote")

    def holds(self, outs: Mapping[str, int]) -> bool:
        """Return whether the DVC remote contains all of these objects completely; see :meth:`require_whole`."""
        try:
            self.require_whole(outs)
        except ObjectIncomplete:
            return False
        return True

    def _files(self, digest: str) -> Collection[str]:
        return self.tree(digest).values() if digest.endswith(TREE) else [digest]

    def _sizes(self, digests: Collection[str]) -> dict[str, int | None]:
        def size(digest: str) -> int | None:
            try:
                return int(self.remote.fs.size(self.remote.oid_to_path(digest)))
            except FileNotFoundError:
                return None

        if self.remote.fs.protocol == "local":
            return {digest: size(digest) for digest in digests}
        with ThreadPoolExecutor(REQUESTS) as pool:
            return dict(zip(digests, pool.map(size, digests), strict=True))

    def _cached(self, digest: str) -> bool:
        from dvc_objects.errors import ObjectFormatError

        try:
            # hashes an object unless it is marked as verified, and removes it if the digest differs
            self.cache.check(digest)
        except (FileNotFoundError, ObjectFormatError):
            return False
        return True


def tree_bytes(entries: Mapping[str, str]) -> bytes:
    """Return a folder's file list (relative path -> digest) in DVC's format.

    The folder's digest is the MD5 of these bytes and ``.dir``.
    """
    return json.dumps([{"md5": md5, "relpath": path} for path, md5 in sorted(entries.items())], sort_keys=True).encode()


def tree_digest(entries: Mapping[str, str]) -> str:
    """Return the digest that DVC gives a folder with these files (relative path -> digest)."""
    return f"{digest_of(tree_bytes(entries))}{TREE}"


def file_digest(path: Path) -> str:
    """Return the digest that DVC gives a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest()


def digest_of(data: bytes) -> str:
    """Return the digest that DVC gives these bytes."""
    return str(_md5(data).hexdigest())


def _md5(data: bytes = b"") -> Any:
    # an object name in DVC, not used for security
    return hashlib.md5(data, usedforsecurity=False)


def _folders(digests: Iterable[str]) -> set[str]:
    return {digest for digest in digests if digest.endswith(TREE)}
