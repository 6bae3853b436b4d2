"""The objects of DVC, in the cache and in the remote, of every version: read, replaced and removed by their digest.

A version is a commit that names objects. An object that names a record which was taken down is removed from both
places, and the same table without the record is put beside the others under its own digest. Which digest became which
is kept in ``<CORPUS_HOME>/takedowns/objects.json`` (digests and sizes, nothing else), so that an old version can still
be checked out, without the record: :func:`pipelines.takedown.pointers.mend`. Objects that name none are not touched.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from pipelines.config.settings import Settings
from pipelines.errors import DataError
from pipelines.takedown.redaction import Gone, Left
from pipelines.workspace.clone import Workspace
from pipelines.workspace.objects import TREE, file_digest, tree_bytes

MAP = "takedowns/objects.json"
DIGEST = re.compile(r"[0-9a-f]{32}(?:\.dir)?")
# An object of DVC's, or a stage result under the key of its inputs.
OBJECT = re.compile(rf"{DIGEST.pattern}|[0-9a-f]{{64}}")
# Ours: longer than the upload of one object takes.
HALF_HOURS = 6


class ObjectUnreadable(DataError):
    """An object is listed and cannot be read, so nobody can say whom it names."""

    message = "Object {digest} cannot be read ({detail})."
    remedy = (
        "If the cache's copy is damaged, remove it; DVC fetches it anew. Then run the same again: it goes on there."
    )
    exit_code = 75


@dataclass(frozen=True)
class Change:
    """An object without the records: the digest and size that it has now, its size before, what was taken out."""

    digest: str
    size: int
    before: int
    left: Left


class Objects:
    """Cache and remote together; a digest stands for the same bytes in both."""

    def __init__(self, clone: Workspace, *, scratch: Path) -> None:
        """Use :meth:`opened` instead."""
        self._cache = clone.objects.cache
        self._remote = clone.objects.remote
        self._results = clone.results
        self._scratch = scratch
        self._clean: set[str] = set()

    @classmethod
    @contextmanager
    def opened(cls, clone: Workspace) -> Iterator[Objects]:
        """Open both as a clone of the corpus knows them; what is made on the way goes at the end."""
        with tempfile.TemporaryDirectory(dir=clone.path.parent) as folder:
            yield cls(clone, scratch=Path(folder))

    def digests(self) -> list[str]:
        """Return every object of every version, sorted."""
        # DVC lists what is half-written as well
        every = {*self._cache.all(), *self._remote.all()}
        return sorted(digest for digest in every if DIGEST.fullmatch(digest))

    def exists(self, digest: str) -> bool:
        """Say whether an object is in either place."""
        return bool(self._cache.exists(digest) or self._remote.exists(digest))

    @contextmanager
    def file(self, digest: str) -> Iterator[Path]:
        """Give an object as a local file, fetched into the scratch folder where only a distant remote has it.

        Raises:
            ObjectUnreadable: it is gone, or cannot be read.
        """
        fetched = None
        try:
            path = Path(self._cache.oid_to_path(digest))
            if not path.exists():
                path = Path(self._remote.oid_to_path(digest))
                if self._remote.fs.protocol != "local":
                    path = fetched = self._scratch / digest
                    self._remote.fs.get_file(self._remote.oid_to_path(digest), str(path))
            yield path
        except (OSError, pa.ArrowException) as error:
            raise ObjectUnreadable(digest=digest, detail=type(error).__name__) from None
        finally:
            if fetched is not None:
                fetched.unlink(missing_ok=True)

    def tree(self, digest: str) -> dict[str, str]:
        """Return what a folder held: path below it -> digest of the file."""
        with self.file(digest) as path:
            return {entry["relpath"]: entry["md5"] for entry in json.loads(path.read_bytes())}

    def size(self, digest: str) -> int:
        """Return the size of an object in bytes."""
        with self.file(digest) as path:
            return path.stat().st_size

    def named(self, gone: Gone, *, among: Collection[str] | None = None) -> list[str]:
        """Return those of these objects, or of all, that name one of the records; one that was clean is not read again.

        Folders are lists of digests and name nobody.
        """
        found = []
        for digest in sorted(self.digests() if among is None else among):
            if digest.endswith(TREE) or digest in self._clean:
                continue
            with self.file(digest) as path:
                if gone.within(path):
                    found.append(digest)
                else:
                    self._clean.add(digest)
        return found

    def without(self, digest: str, gone: Gone) -> Change:
        """Put the same object without the records beside it, in cache and remote, and return what became of it."""
        made = self._scratch / f"{digest}.made"
        with self.file(digest) as path:
            left, before = gone.without(path, made), path.stat().st_size
        size = made.stat().st_size
        fresh = self.put(made)
        self._clean.add(fresh)
        return Change(fresh, size, before, left)

    def put(self, path: Path, *, suffix: str = "") -> str:
        """Move a file into the cache, whole or not at all, and copy it to the remote; return its digest."""
        from dvc_objects.fs.local import localfs

        digest = file_digest(path) + suffix
        for place in (self._remote, self._cache):
            place.add(str(path), localfs, digest)
        path.unlink()
        return digest

    def put_tree(self, entries: Mapping[str, str]) -> str:
        """Keep what a folder holds as DVC does; return its digest."""
        made = self._scratch / "tree"
        made.write_bytes(tree_bytes(entries))
        return self.put(made, suffix=TREE)

    def places(self, digests: Collection[str]) -> dict[str, int]:
        """Return how many of these objects are in the cache, and how many in the remote."""
        held = {"cache": self._cache, "remote": self._remote}
        return {name: sum(place.exists(digest) for digest in digests) for name, place in held.items()}

    def remove(self, digests: Collection[str]) -> None:
        """Remove objects from both places, after the stage results that name them."""
        doomed = set(digests)
        if doomed:
            trees = [digest for digest in self.digests() if digest.endswith(TREE)]
            dangling = {digest for digest in trees if not doomed.isdisjoint(self.tree(digest).values())}
            self._results.forget(doomed | dangling)
        for place in (self._remote, self._cache):
            for digest in sorted(doomed):
                if place.exists(digest):
                    place.delete(digest)

    def remove_halves(self, *, now: datetime) -> int:
        """Remove what killed processes left half-written in places on this machine; return how many files.

        Nobody can say whom half a table names. What was written to within HALF_HOURS may still be at work.
        """
        removed = 0
        places = [(self._cache.fs, self._cache.path), (self._remote.fs, self._remote.path), self._results.place]
        for root in (Path(path) for fs, path in places if fs.protocol == "local"):
            for path in (p for p in root.rglob("*") if p.is_file()):
                is_object = OBJECT.fullmatch(f"{path.parent.name}{path.name}")
                if not is_object and now.timestamp() - path.stat().st_mtime > HALF_HOURS * 3600:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed


def replaced(settings: Settings) -> dict[str, tuple[str, int]]:
    """Return which object became which: old digest -> the digest and size that it has now."""
    with suppress(FileNotFoundError):
        known = json.loads((settings.home / MAP).read_bytes())
        return {old: (str(new), int(size)) for old, (new, size) in known.items()}
    return {}


def remember(changes: Mapping[str, Change], *, settings: Settings) -> None:
    """Add to what became of which; a second takedown of one object leads from the first digest to the last."""
    fresh = {old: (change.digest, change.size) for old, change in changes.items() if old != change.digest}
    known = {old: fresh.get(now[0], now) for old, now in replaced(settings).items()} | fresh
    write_whole(settings.home / MAP, json.dumps(dict(sorted(known.items())), indent=1))


def write_whole(path: Path, text: str) -> None:
    """Write a file of mode 600 so that whoever reads it sees the old or the new one, and it survives a crash."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    made.touch(mode=0o600)
    with made.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
