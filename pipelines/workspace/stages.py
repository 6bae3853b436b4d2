"""Run one stage of ``dvc.yaml`` in a clone and hand over its result, without DVC's run-cache.

DVC resolves the stage. Digests, objects and the entry of ``dvc.lock`` have DVC's format, so that ``dvc repro`` on the
commit runs nothing again. No index over all stages is built, because it costs seconds per task.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import operator
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.core.errors import DataError
from pipelines.workspace.inventory import Inventory, is_metric, overlap, read_yaml
from pipelines.workspace.objects import digest_of
from pipelines.workspace.results import ResultUnusable, StageResult, Token

if TYPE_CHECKING:
    from pipelines.workspace.clone import Workspace

OUTS = ("outs", "metrics", "plots")


@dataclass(frozen=True)
class Definition:
    """One stage of ``dvc.yaml`` as DVC resolves it in a clone; ``params`` are its parameter values by file."""

    name: str
    cmd: str
    deps: tuple[str, ...]
    params: Mapping[str, Any]
    outs: tuple[str, ...]

    @classmethod
    def resolve_all(cls, repo: Any, names: Iterable[str]) -> dict[str, Definition]:
        """Return several stages by name; ``dvc.yaml`` and the parameters are read only once."""
        from dvc.dependency import ParamsDependency
        from dvc.dvcfile import load_file

        file = load_file(repo, str(Path(repo.root_dir, "dvc.yaml")))
        # without names no file is needed; `stages` reads it each time
        loader: Any = file.stages if (names := list(names)) else {}
        # DVC's own stages would make an object of each path, which takes ten times as long
        found = {name: loader.resolver.resolve_one(name)[name] for name in names}
        params = {name: _keys(data.get("params", ())) for name, data in found.items()}
        keys: dict[str, set[str]] = {}
        for path, wanted in (item for files in params.values() for item in files.items()):
            keys.setdefault(path, set()).update(wanted)
        values = {}
        for path, together in keys.items():
            values[path] = _values(Path(repo.root_dir, path), together)
            if rest := together - values[path].keys():
                read = ParamsDependency(loader[names[0]], path, sorted(rest))
                read.save()
                values[path] |= read.hash_info.value
            values[path] = json.loads(json.dumps(values[path]))
        return {
            name: cls(
                name,
                data["cmd"],
                tuple(sorted({os.path.normpath(path) for path in data.get("deps", ())})),
                {path: {key: values[path][key] for key in sorted(wanted)} for path, wanted in params[name].items()},
                tuple(sorted(os.path.normpath(path) for kind in OUTS for path in _paths(data.get(kind, ())))),
            )
            for name, data in found.items()
        }

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry of ``dvc.lock`` has this command, these paths and these parameters."""
        return (
            entry.keys() <= {"cmd", "deps", "params", "outs"}
            and entry.get("cmd") == self.cmd
            and {dep["path"] for dep in entry.get("deps", ())} == {*self.deps}
            and entry.get("params", {}) == self.params
            and tuple(out["path"] for out in entry.get("outs", ())) == self.outs
        )


@dataclass(frozen=True)
class StageRun:
    """One run of a Dag on the commit ``base``; its tokens (references to results) are valid only for its own stages."""

    clone: Workspace
    name: str
    base: str

    def receive(self, tokens: Iterable[Token]) -> list[StageResult]:
        """Return the results to which tokens refer, after checking that the clone defines their stages equally."""
        results = [self.clone.results.receive(token, run=self.name, base=self.base) for token in tokens]
        defined = Definition.resolve_all(self.clone.repo, [result.stage for result in results])
        for result in results:
            if not defined[result.stage].matches(result.entry):
                detail = "its command, names or params differ from those of this commit"
                raise ResultUnusable(stage=result.stage, detail=detail)
            if not _own_metrics(result):
                raise ResultUnusable(stage=result.stage, detail="its metrics do not match its digests")
        return results

    def reproduce(self, stage: str) -> Token:
        """Return the token of a stage's result: a stored result, the commit's, or a new one from running the stage."""
        clone, results = self.clone, self.clone.results
        defined = Definition.resolve_all(clone.repo, [stage])[stage]
        inventory = clone.inventory()
        _require_made(clone, defined, inventory)
        digests = {path: inventory.digest(path) for path in defined.deps}
        key = _key(defined, digests)
        try:
            stored = results.get(key)
            usable = stored is None or _usable(stored, clone, defined, digests)
        except ResultUnusable:
            stored, usable = None, False
        if stored is not None and usable:
            return self._token(key, stored)
        if not usable:
            # a damaged result must not block the stage forever
            sys.stderr.write(
                f"The stored result of stage {stage} is damaged or lacks objects; the stage is run again.\n"
            )
            results.remove(key)
        result = _committed(clone, defined, digests) or _run(clone, defined, inventory)
        kept, differs = results.create(key, result)
        if differs:
            detail = "is not deterministic: the result stored first for the same inputs is used"
            sys.stderr.write(f"Stage {stage} {detail}.\n")
        return self._token(key, kept, differs=differs)

    def _token(self, key: str, result: StageResult, *, differs: bool = False) -> Token:
        return self.clone.results.token(key, result, run=self.name, base=self.base, differs=differs)


def dependencies(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each dependency in an entry of ``dvc.lock``, by path."""
    return {dep["path"]: dep["md5"] for dep in entry.get("deps", ())}


def objects_of(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the size in bytes of each object that stages produced, by digest."""
    return {digest: size for entry in entries for digest, size in _objects(entry).items()}


def in_graph_order(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the stages of a ``dvc.lock`` topologically, and by name where the order is free."""
    makers = {out["path"]: name for name, entry in lock.items() for out in entry.get("outs", ())}
    ordered: dict[str, Any] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            paths = [dep["path"] for dep in lock[name].get("deps", ())]
            upstream = {makers[out] for path in paths for out in makers if overlap(out, path)} - {name}
            for maker in sorted(upstream):
                visit(maker)
            ordered[name] = lock[name]

    for name in sorted(lock):
        visit(name)
    return ordered


def _paths(entries: Iterable[str | Mapping[str, Any]]) -> Iterator[str]:
    """Return the paths of a list of ``dvc.yaml``, in which a path may have options."""
    for entry in entries:
        yield from [entry] if isinstance(entry, str) else entry


def _keys(entries: Iterable[str | Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the keys by file of a list of parameters, in which those of ``params.yaml`` have no file."""
    files: dict[str, set[str]] = {}
    for entry in entries:
        for path, keys in ({"params.yaml": [entry]} if isinstance(entry, str) else entry).items():
            files.setdefault(path, set()).update(keys or ())
    return files


def _values(file: Path, keys: Iterable[str]) -> dict[str, Any]:
    """Return the values of a file that are where their keys say; DVC's search visits every value for each key."""
    content = read_yaml(file.read_text()) if file.suffix == ".yaml" and file.is_file() else {}
    values = {}
    for key in keys:
        with contextlib.suppress(KeyError, TypeError):
            values[key] = functools.reduce(operator.getitem, key.split("."), content)
    return values


def _usable(stored: StageResult, clone: Workspace, defined: Definition, digests: Mapping[str, str]) -> bool:
    """Return whether a stored result has these inputs and its objects are complete."""
    # with write access to the remote, the result of other inputs could be copied to this key
    return (
        stored.stage == defined.name
        and defined.matches(stored.entry)
        and dependencies(stored.entry) == digests
        and _own_metrics(stored)
        and clone.objects.holds(_objects(stored.entry))
    )


def _require_made(clone: Workspace, defined: Definition, inventory: Inventory) -> None:
    """Raise if a dependency lacks an out that some stage writes into it."""
    for path in defined.deps:
        there = inventory.outs(path)
        for out in clone.graph.outs(path):
            if out not in there:
                raise DataError("DependencyMissing", path=out)


def _own_metrics(result: StageResult) -> bool:
    named = {out["path"]: out["md5"] for out in result.entry.get("outs", ()) if is_metric(out["path"])}
    return named == {path: digest_of(text.encode()) for path, text in result.metrics.items()}


def _key(defined: Definition, digests: Mapping[str, str]) -> str:
    inputs = [defined.name, defined.cmd, digests, defined.params, defined.outs]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _objects(entry: Mapping[str, Any]) -> dict[str, int]:
    return {out["md5"]: out["size"] for out in entry.get("outs", ()) if not is_metric(out["path"])}


def _committed(clone: Workspace, defined: Definition, digests: Mapping[str, str]) -> StageResult | None:
    """Return the result in the clone's commit if it has the same inputs and is complete, else ``None``."""
    entry = clone.lock().get(defined.name)
    if entry is None or not defined.matches(entry) or dependencies(entry) != digests:
        return None
    if not clone.objects.holds(_objects(entry)):
        return None
    metrics = {path: clone.path / path for path in defined.outs if is_metric(path)}
    if not all(file.is_file() for file in metrics.values()):
        return None
    result = StageResult(defined.name, entry, {path: file.read_bytes().decode() for path, file in metrics.items()})
    return result if _own_metrics(result) else None


def _run(clone: Workspace, defined: Definition, inventory: Inventory) -> StageResult:
    """Check out the dependencies, run the stage's command, push its outs, and return the result."""
    # read sizes before checking out, so that checked-out files are not taken for files in git
    deps = [inventory.entry(path) for path in defined.deps]
    clone.link(inventory.files(*defined.deps))
    for out in map(clone.path.joinpath, defined.outs):
        # the copy of a metric in git is from an earlier run
        if out.is_dir():
            shutil.rmtree(out)
        out.unlink(missing_ok=True)
        out.parent.mkdir(parents=True, exist_ok=True)
    clone.command(defined.cmd, name=f"stage {defined.name}")
    outs = [_keep(clone, out, stage=defined.name) for out in defined.outs]
    made = {"cmd": defined.cmd, "deps": deps, "params": defined.params, "outs": outs}
    entry = {key: value for key, value in made.items() if value}
    clone.objects.push(_objects(entry))
    metrics = {out: (clone.path / out).read_bytes().decode() for out in defined.outs if is_metric(out)}
    return StageResult(defined.name, entry, metrics)


def _keep(clone: Workspace, out: str, *, stage: str) -> dict[str, Any]:
    """Add an out to the cache and return its entry for ``dvc.lock``."""
    path = clone.path / out
    if not path.exists():
        raise DataError("OutMissing", stage=stage, path=out)
    if path.is_file():
        digest = digest_of(path.read_bytes()) if is_metric(out) else clone.keep(path)
        return {"path": out, "hash": "md5", "md5": digest, "size": path.stat().st_size}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    entries = {file.relative_to(path).as_posix(): clone.keep(file) for file in files}
    size = sum(file.stat().st_size for file in files)
    return {"path": out, "hash": "md5", "md5": clone.objects.put_tree(entries), "size": size, "nfiles": len(files)}
