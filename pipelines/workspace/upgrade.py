"""Keep the results of stages whose revision is unchanged when a corpus is upgraded to newer code.

Code is a dependency of every stage. Without this step a renamed module or a new comment would make every stage run
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.core.config.params import FILES, texts_below
from pipelines.core.errors import DataError
from pipelines.workspace.clone import Workspace
from pipelines.workspace.inventory import read_yaml
from pipelines.workspace.stages import Definition, dependencies, in_graph_order

CODE = ("pipelines", "crisis_corpus")
SCHEMES = "schemes"


@dataclass(frozen=True)
class Before:
    """The stage results and parameters of a corpus before an upgrade to newer code.

    Args:
        lock: the entries of ``dvc.lock``.
        current: the names of the stages whose command, dependencies and parameters match their entry.
        params: the parameters.
        schemes: the bytes of the team's own schemes by name.
    """

    lock: Mapping[str, Any]
    current: frozenset[str]
    params: Mapping[str, Any]
    schemes: Mapping[str, bytes]


def before(clone: Workspace) -> Before:
    """Return the stage results and parameters of a clone's commit; call this before newer code is merged."""
    inventory = clone.inventory()
    current = set()
    lock = {name: entry for name, entry in clone.lock().items() if clone.graph.defines(name)}
    stages = Definition.resolve_all(clone.repo, lock)
    for name, entry in lock.items():
        defined = stages[name]
        try:
            digests = {path: inventory.digest(path) for path in defined.deps}
        except DataError:
            continue
        if defined.matches(entry) and dependencies(entry) == digests:
            current.add(name)
    return Before(lock, frozenset(current), _params(clone), _schemes(clone))


def keep(clone: Workspace, earlier: Before) -> tuple[list[str], list[str]]:
    """Rewrite ``dvc.lock`` after newer code was merged, so that unchanged stages keep their results.

    Returns the names of the stages whose results were kept, and of those that must run again.

    An entry is rewritten for the newer command, dependencies and parameters if it was current, and
    none of the parameters, data, revisions and libraries' versions that the stage depends on differs. All other
    entries stay unchanged, and DVC runs their stages.
    """
    merged = Workspace(clone.path, settings=clone.settings)
    merged.write_lock(earlier.lock)
    lock, kept = dict(earlier.lock), []
    inventory, schemes = merged.inventory(), _schemes(merged)
    stages = Definition.resolve_all(merged.repo, filter(merged.graph.defines, earlier.current))
    for name, defined in stages.items():
        entry = earlier.lock[name]
        try:
            deps = [inventory.entry(path) for path in defined.deps]
        except DataError:
            continue
        values = [item for part in defined.params.values() for item in part.items()]
        used = {scheme for key, scheme in values if key.endswith(".scheme")} or {*schemes, *earlier.schemes}
        if SCHEMES in defined.deps and any(earlier.schemes.get(scheme) != schemes.get(scheme) for scheme in used):
            continue
        outs = {out["path"]: out for out in entry.get("outs", ())}
        if set(outs) != set(defined.outs) or any(_differences(entry, deps, defined, before=earlier.params)):
            continue
        made = {
            "cmd": defined.cmd,
            "deps": deps,
            "params": dict(defined.params),
            "outs": [outs[path] for path in defined.outs],
        }
        lock[name] = {key: value for key, value in made.items() if value}
        kept.append(name)
    merged.write_lock(in_graph_order(lock))
    merged.close()
    return sorted(kept), sorted(lock.keys() - set(kept))


def _differences(
    entry: Mapping[str, Any], deps: list[dict[str, Any]], defined: Definition, *, before: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the data, parameters and versions of libraries of a stage that are not what its entry was made from."""
    digests = dependencies(entry)
    for dep in deps:
        if dep["path"].partition("/")[0] not in (*CODE, SCHEMES) and digests.get(dep["path"], dep["md5"]) != dep["md5"]:
            yield dep["path"]
    for file, values in defined.params.items():
        recorded = entry.get("params", {}).get(file, {})
        for key, value in values.items():
            # a library whose version was not recorded is no difference; the stage's revision is recorded
            there, old = _lookup(before, key) if file in FILES else (key in recorded, recorded.get(key))
            if there and json.loads(json.dumps(old)) != value:
                yield key


def _lookup(values: Any, key: str) -> tuple[bool, Any]:
    """Return whether there is a value at a dotted key, and the value."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False, None
        values = values[part]
    return True, values


def _schemes(clone: Workspace) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (clone.path / SCHEMES).glob("*.yaml")}


def _params(clone: Workspace) -> dict[str, Any]:
    return {name: section for text in texts_below(clone.path).values() for name, section in read_yaml(text).items()}
