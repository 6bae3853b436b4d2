"""List the files of a working tree, in git and in DVC, by path and digest, and read and write their pointers.

DVC names the dependencies of a stage by digests: a file by its MD5, a folder by the MD5 of the list of its files,
including those in git. Both digests can be computed from the pointers (the ``.dvc`` files), ``dvc.lock`` and the files
in git, without checking anything out.

A pointer that was handed over between tasks is untrusted input, because users of Airflow can change it. It has a
message authentication code, and is parsed against a closed schema, because DVC would follow other keys to another
repository, a URL or a path outside the clone.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipelines.core.errors import DataError
from pipelines.store.vault.keyring import derive
from pipelines.workspace.objects import TREE, ObjectStore, digest_of, tree_digest

SHARD = re.compile(r"outs:\n- md5: ([0-9a-f]{32})\n  size: (\d{1,15})\n  hash: md5\n  path: ([\w-]+\.parquet)\n")
Lock = Mapping[str, Any]
"""The stages of a ``dvc.lock``: name -> command, deps, params and outs."""


@dataclass(frozen=True)
class Out:
    """A DVC object that a pointer or a stage's entry in ``dvc.lock`` names.

    ``size`` is in bytes; for a folder, ``size`` is the sum over its files and ``nfiles`` their number.
    """

    md5: str
    size: int
    nfiles: int | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Out:
        return cls(entry["md5"], entry["size"], entry.get("nfiles"))


class Inventory:
    """The files of a working tree and the outputs in its ``dvc.lock``, whether or not they are checked out."""

    def __init__(self, root: Path, *, lock: Lock, objects: ObjectStore) -> None:
        self._root = root
        self._objects = objects
        self._outs = dict(_pointed(root)) | dict(_made(lock))
        self._git = cache(self._git_files)

    def outs(self, path: str) -> dict[str, Out]:
        """Return the DVC outputs at, below or above a path, by path."""
        return {name: out for name, out in self._outs.items() if overlap(name, path)}

    def files(self, *paths: str) -> dict[str, str]:
        """Return the digest of each file that DVC stores at or below some paths, by path."""
        return {
            file: digest
            for path in paths
            for name, out in self.outs(path).items()
            for file, digest in self._members(name, out)
            if _at_or_below(file, path)
        }

    def digest(self, path: str) -> str:
        """Return the digest of a stage's dependency at ``path`` as ``dvc.lock`` would record it."""
        out = self._outs.get(path)
        if out is not None:
            return out.md5
        if (self._root / path).is_file():
            return digest_of((self._root / path).read_bytes())
        entries = {file.removeprefix(f"{path}/"): digest for file, digest in self.files(path).items()}
        if path in entries:
            return entries[path]
        entries |= {name: digest for name, (digest, _) in self._git(path).items()}
        if not entries:
            raise DataError("DependencyMissing", path=path)
        return tree_digest(entries)

    def entry(self, path: str) -> dict[str, Any]:
        """Return a dependency's entry in ``dvc.lock``: path, digest, size and, for a folder, number of files."""
        entry: dict[str, Any] = {"path": path, "hash": "md5", "md5": self.digest(path)}
        if (out := self._outs.get(path)) is not None:
            entry["size"] = out.size
            return entry if out.nfiles is None else entry | {"nfiles": out.nfiles}
        if not entry["md5"].endswith(TREE):
            file = self._root / path
            return entry | {"size": file.stat().st_size if file.is_file() else self._objects.size(entry["md5"])}
        git, files = self._git(path), self.files(path)
        whole = {name: out for name, out in self.outs(path).items() if _at_or_below(name, path)}
        size = sum(size for _, size in git.values()) + sum(out.size for out in whole.values())
        if not whole:
            size += sum(self._objects.size(digest) for digest in files.values())
        return entry | {"size": size, "nfiles": len(git) + len(files)}

    def _members(self, name: str, out: Out) -> Iterator[tuple[str, str]]:
        if out.md5.endswith(TREE):
            yield from ((f"{name}/{file}", digest) for file, digest in self._objects.tree(out.md5).items())
        else:
            yield name, out.md5

    def _git_files(self, path: str) -> dict[str, tuple[str, int]]:
        """Return the files below a folder that no out covers: path below it -> digest and size in bytes."""
        listed = {}
        for folder, folders, files in os.walk(self._root / path):
            # as in .dvcignore
            folders[:] = [name for name in folders if name != "__pycache__"]
            for file in (Path(folder) / name for name in files):
                name = file.relative_to(self._root).as_posix()
                if self._outs.keys().isdisjoint({name, *map(str, Path(name).parents)}):
                    data = file.read_bytes()
                    listed[name.removeprefix(f"{path}/")] = digest_of(data), len(data)
        return listed


def read_yaml(text: str) -> dict[str, Any]:
    """Parse a DVC file with DVC's own reader (YAML 1.2, in which ``8e-06`` is a number)."""
    from dvc.utils.serialize import parse_yaml

    content: dict[str, Any] = parse_yaml(text, "")
    return content


def read_outs(text: str) -> list[dict[str, Any]]:
    """Return the outs of a ``.dvc`` file; those of the many shards of a month without the slow parser."""
    if shard := SHARD.fullmatch(text):
        return [{"md5": shard[1], "size": int(shard[2]), "hash": "md5", "path": shard[3]}]
    outs: list[dict[str, Any]] = read_yaml(text)["outs"]
    return outs


def _pointed(root: Path) -> Iterator[tuple[str, Out]]:
    for top in ("data", "annotations", "work"):
        for path, out in _named(root / top):
            yield path.relative_to(root).as_posix(), out


def _named(folder: Path) -> Iterator[tuple[Path, Out]]:
    """Yield the path of each output that a pointer below a folder names."""
    for pointer in sorted(folder.rglob("*.dvc")):
        for out in read_outs(pointer.read_text()):
            yield pointer.parent / out["path"], Out.of(out)


def unfinished(folder: Path) -> Iterator[str]:
    """Yield each output that a pointer below a folder names, and that is not checked out whole."""
    for path, out in _named(folder):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        if not files or sum(file.stat().st_size for file in files) != out.size:
            yield path.as_posix()


def _made(lock: Lock) -> Iterator[tuple[str, Out]]:
    for stage in lock.values():
        # uncached metrics are in git
        yield from ((out["path"], Out.of(out)) for out in stage.get("outs", ()) if not is_metric(out["path"]))


def is_metric(path: str) -> bool:
    """Return whether an output is a metrics file, which git stores (``cache: false`` in DVC)."""
    return path.startswith("metrics/")


def _at_or_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def overlap(one: str, other: str) -> bool:
    """Return whether two paths are equal or one is below the other."""
    return _at_or_below(one, other) or _at_or_below(other, one)


# What the resolver fills in stays within one name of a path.
FILLED = re.compile(r"\$\{[^{}]*\}")


class Graph:
    """The stages of a clone, as DVC resolves them from ``dvc.yaml``."""

    def __init__(self, repo: Any) -> None:
        from dvc.dvcfile import load_file

        self._file = load_file(repo, repo.fs.join(repo.root_dir, "dvc.yaml"))

    def defines(self, name: str) -> bool:
        """Return whether ``dvc.yaml`` defines a stage of this name; removed stages may remain in ``dvc.lock``."""
        return not self._file.exists() or bool(self._file.resolver.has_key(name))

    def names(self) -> list[str]:
        """Return the names of all stages that ``dvc.yaml`` defines."""
        return sorted(self._file.resolver.get_keys()) if self._file.exists() else []

    def outs(self, folder: str) -> Iterator[str]:
        """Return the paths of cached outputs that stages write at or below a folder."""
        if not self._file.exists():
            return
        groups = {
            group
            for group, stage in self._file.contents.get("stages", {}).items()
            if any(_may_be_below(out, folder) for out in _cached_outs(stage.get("do", stage)))
        }
        for name in self._file.resolver.get_keys():
            if name.partition("@")[0] in groups:
                [stage] = self._file.resolver.resolve_one(name).values()
                yield from (out for out in _cached_outs(stage) if f"{out}/".startswith(f"{folder}/"))


def _cached_outs(stage: Mapping[str, Any]) -> Iterator[str]:
    for out in stage.get("outs", ()):
        if isinstance(out, str):
            yield out
        else:
            yield from (path for path, how in out.items() if how.get("cache", True))


def _may_be_below(template: str, folder: str) -> bool:
    names, wanted = template.split("/"), folder.split("/")
    return len(names) >= len(wanted) and all(
        re.fullmatch(".*".join(map(re.escape, FILLED.split(name))), want)
        for name, want in zip(names, wanted, strict=False)
    )


# Ours: enough for four lines of text with a path.
MAX_LENGTH = 1024
TOPS = ("data", "work")


def pointer_text(name: str, *, md5: str, size: int) -> str:
    """Return the text of a pointer file in DVC's format; ``size`` is in bytes."""
    return f"outs:\n- md5: {md5}\n  size: {size}\n  hash: md5\n  path: {name}\n"


def read_pointer(text: str) -> Out:
    """Return the DVC object that a pointer file of this repository names."""
    (out,) = read_outs(text)
    return Out.of(out)


def hand_over(pointers: Mapping[str, str], *, secret: bytes) -> dict[str, str]:
    """Append an authentication code to each pointer's text in a comment; return the texts by path."""
    return {path: f"{text}# {_mac(path, text, secret)}\n" for path, text in pointers.items()}


def received(pointers: Mapping[str, str], *, secret: bytes) -> dict[str, str]:
    """Verify and remove the codes of pointers from :func:`hand_over`; return the plain texts by path."""
    texts = {}
    for number, (path, given) in enumerate(pointers.items(), start=1):
        text, _, mac = str(given).rpartition("# ")
        if not hmac.compare_digest(mac.rstrip("\n").encode(), _mac(path, text, secret).encode()):
            raise DataError("BadPointer", number=number, detail="no task of this corpus wrote it for this path")
        texts[path] = text
    return texts


def _mac(path: str, text: str, secret: bytes) -> str:
    key = derive(secret, purpose="pointer", length=32)
    return hmac.new(key, f"{path}\0{text}".encode(), sha256).hexdigest()


def check_handed_over(pointers: Mapping[str, str], *, below: str | None = None) -> dict[str, str]:
    """Check that each pointer names one local file below ``data/`` or ``work/``, and ``below``; return them."""
    for number, (path, text) in enumerate(pointers.items(), start=1):
        fault = _fault(path, text)
        if not fault and below and not path.startswith(f"{below}/"):
            fault = f"its path is not below {below}/"
        if fault:
            raise DataError("BadPointer", number=number, detail=fault)
    return dict(pointers)


def _fault(path: str, text: str) -> str:
    parts = path.split("/")
    # no part is empty or begins with a dot, which excludes `..` and `.git`
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+", path) or parts[0] not in TOPS:
        return "its path is not below data/ or work/"
    if len(text) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    if (named := pointed(text)) is None:
        return "it has other fields than md5, size, hash and path of one file"
    return "" if named == parts[-1] else "it names another file than its own"


def pointed(text: str) -> str | None:
    """Return the name of the file in a DVC pointer's text, or ``None`` if it differs from :func:`pointer_text`."""
    # no YAML parser, which would let unknown keys through
    form = r"outs:\n- md5: [0-9a-f]{32}\n  size: [0-9]{1,15}\n  hash: md5\n  path: (.+)\n"
    return match[1] if (match := re.fullmatch(form, text)) else None
