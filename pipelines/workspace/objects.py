"""Store and fetch DVC's content-addressed objects (one cache per host, one remote for all hosts), and configure DVC.

An object is named by the MD5 of its bytes; a folder is an object that lists the digests of its files and whose name
ends in ``.dir``. Every write is atomic (a temporary file, then a rename), so a reader sees a whole object or none.
A writer of cache or remote can alter an object, with its size and times: each process hashes what it uses.
The clients of object stores repeat a failed request for minutes, so one request with a deadline is made first.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.process import write_private

# Ours: a tenth of it is long for a distant store, and a command must fail within half a minute.
DEADLINE_SECONDS = 15
# Remotes whose address begins with a bucket or container, which DVC does not create.
BUCKETS = frozenset({"s3", "gs", "gcs", "azure", "oss"})
# Errors of the clients that mean the credentials, although they are no PermissionError.
CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ClientAuthenticationError", "RefreshError"})
BAD_FORMAT = "CORPUS_REMOTE or CORPUS_REMOTE_OPTIONS is not in DVC's format"


def configure(path: Path, *, settings: Settings, scratch: bool = True) -> None:
    """Configure a clone's DVC cache and remote in ``.dvc/config.local``, which is not committed (mode 600).

    A scratch clone keeps DVC's own state in its scratch folder, so that it is removed with the clone. Another clone has
    a cache of its own, and copies of its objects: what a person's `dvc` command writes reaches no object of a task.
    """
    core = {"remote": "corpus", "analytics": "false", "autostage": "false", "check_update": "false"}
    sections = {
        "cache": {"dir": str(settings.cache), "type": "reflink,hardlink,copy"} if scratch else {"type": "reflink,copy"},
        "core": core | ({"site_cache_dir": str(path.parent / "site")} if scratch else {}),
        "'remote \"corpus\"'": {"url": settings.remote, "verify": "true"}
        | {name: value.get_secret_value() for name, value in settings.remote_options.items()},
    }
    lines = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"    {name} = {_quoted(value)}" for name, value in options.items())]
    write_private(path / ".dvc" / "config.local", "\n".join(lines) + "\n")


def _quoted(value: str) -> str:
    """Return a value in the format of DVC's configuration, which has no escapes."""
    quote = "'" if '"' in value else '"'
    if quote in value or "%(" in value or not value.isprintable():
        detail = "a value has a line break, both kinds of quotes, or %(, which DVC cannot store"
        raise ConfigError("RemoteRefused", detail=detail)
    return f"{quote}{value}{quote}"


def opened(path: Path) -> Any:
    from dvc.config import ConfigError as BadConfig
    from dvc.repo import Repo

    try:
        return Repo(str(path))
    except BadConfig:
        # DVC's message may quote the value of an option
        raise ConfigError("RemoteRefused", detail=BAD_FORMAT) from None


def storage(repo: Any) -> Any:
    """Return the store of a repository's DVC remote after it has answered one request (a folder is not tested)."""
    from dvc.config import ConfigError as BadConfig
    from dvc_objects.fs.errors import ConfigError as BadOptions
    from dvc_objects.fs.errors import RemoteMissingDepsError

    try:
        remote = repo.cloud.get_remote_odb()
        local = remote.fs.protocol == "local"
    except (ImportError, RemoteMissingDepsError):
        package = f"dvc-{repo.config['remote']['corpus']['url'].partition(':')[0]}"
        raise ConfigError("RemoteRefused", detail=f"the package {package} is missing: pip install {package}") from None
    except (BadConfig, BadOptions):
        raise ConfigError("RemoteRefused", detail=BAD_FORMAT) from None
    if not local:
        _answered(remote)
    return remote


def _answered(remote: Any) -> None:
    outcome: list[BaseException | bool] = []

    def ask() -> None:
        try:
            fs, path = remote.fs, remote.path
            outcome.append(bool(fs.exists(path) or fs.protocol not in BUCKETS or fs.exists(path.partition("/")[0])))
        except Exception as error:
            outcome.append(error)

    # a daemon: its own retries may go on for minutes after the deadline
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    match outcome:
        case []:
            raise DataError("RemoteUnavailable", detail=f"no answer within {DEADLINE_SECONDS} seconds")
        case [True]:
            return
        case [False]:
            raise ConfigError("RemoteRefused", detail="its bucket does not exist")
        case [error]:
            name = type(error).__name__
            if isinstance(error, PermissionError) or name in CREDENTIALS:
                raise ConfigError("RemoteRefused", detail=f"it refuses the credentials ({name})") from None
            raise DataError("RemoteUnavailable", detail=f"the request failed with {name}") from None


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
        self._verified: dict[str, tuple[int, ...]] = {}

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
        """Copy DVC objects from the cache to the remote if missing or of another size there, folders last."""
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
        if not self._cached(digest):
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
        """Check that the remote has these objects (digest -> size, of a folder the sum), folders with every file."""
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
        """Return whether the cache has an object whose bytes have its digest; an altered one is removed."""
        path = Path(self.cache.oid_to_path(digest))
        try:
            # the time of the last change of the inode, which no call sets; DVC's own check believes the file's mode
            info = path.stat()
            state = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            if self._verified.get(digest) != state and not is_whole(path, digest):
                path.unlink()
                return False
        except FileNotFoundError:
            return False
        self._verified[digest] = state
        return True


def tree_bytes(entries: Mapping[str, str]) -> bytes:
    """Return a folder's file list (path -> digest) in DVC's format; the folder's digest is their MD5 and ``.dir``."""
    return json.dumps([{"md5": md5, "relpath": path} for path, md5 in sorted(entries.items())], sort_keys=True).encode()


def tree_digest(entries: Mapping[str, str]) -> str:
    """Return the digest that DVC gives a folder with these files (relative path -> digest)."""
    return f"{digest_of(tree_bytes(entries))}{TREE}"


def file_digest(path: Path) -> str:
    """Return the digest that DVC gives a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest()


def is_whole(path: Path, digest: str) -> bool:
    """Return whether the bytes of a DVC object, a file or a folder's list, have its digest."""
    return file_digest(path) == digest.removesuffix(TREE)


def digest_of(data: bytes) -> str:
    """Return the digest that DVC gives these bytes."""
    return str(_md5(data).hexdigest())


def _md5(data: bytes = b"") -> Any:
    # an object name in DVC, not used for security
    return hashlib.md5(data, usedforsecurity=False)


def _folders(digests: Iterable[str]) -> set[str]:
    return {digest for digest in digests if digest.endswith(TREE)}
