"""Read from a clone's ``dvc.yaml`` which stages exist and which outputs they write below a folder.

DVC resolves only the stages whose outputs can be in that folder, because resolving all costs a fifth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# What the resolver fills in stays within one name of a path.
FILLED = re.compile(r"\$\{[^}]*\}")


class Graph:
    """The stages of a clone, as DVC resolves them from ``dvc.yaml``.

    Args:
        repo: the clone, as DVC opened it.
    """

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
