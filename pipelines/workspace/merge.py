"""Merge three versions of ``params.yaml`` by key: the earlier code's, the corpus's and the newer code's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from pipelines.core.config.params_text import Key, dotted
from pipelines.core.errors import ConfigError

# Only a person changes these, with `corpus params set`.
SOURCE = ("live", "access_basis", "approval", "expires", "retention_days")
PROTECTED = (*(f"sources.*.{name}" for name in SOURCE), "consents", "consents.*", "*.budget_usd")


class _Missing:
    def __repr__(self) -> str:
        return "(none)"


MISSING = _Missing()


def _blank(value: Any) -> Any:
    return {name: _blank(below) for name, below in value.items()} if isinstance(value, Mapping) else None


@dataclass(frozen=True)
class Difference:
    """A parameter with two values; :data:`MISSING` as ``before`` or ``after`` means that it is absent."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.before!r} -> {self.after!r}"


@dataclass
class Merged:
    """The result of merging parameters: the values and how they were decided.

    Args:
        values: the parameters.
        changed: the parameters that differ from those of the corpus before the merge.
        kept: values set by a person; ``before`` is the person's, ``after`` the newer code's.
        protected: approvals and budgets that the newer code would have changed, in the same form.
    """

    values: dict[str, Any] = field(default_factory=dict)
    changed: list[Difference] = field(default_factory=list)
    kept: list[Difference] = field(default_factory=list)
    protected: list[Difference] = field(default_factory=list)


def merge(
    base: Mapping[str, Any],
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    keep: Collection[str] = (),
    take: Collection[str] = (),
) -> Merged:
    """Merge parameters: return the newer code's parameters, with the corpus's value wherever the corpus has changed it.

    Args:
        base: the parameters of the earlier code, with its profile.
        ours: the parameters of the corpus.
        theirs: the parameters of the newer code, with its profile.
        keep: dotted keys, or sections, whose value in the corpus wins a conflict.
        take: dotted keys, or sections, whose newer value wins a conflict.
    """
    merger = _Merger(keep, take)
    values = merger.mapping(base, ours, theirs, ())
    if merger.conflicts:
        raise ConfigError("ParameterConflict", keys=", ".join(sorted(merger.conflicts)))
    merger.merged.values = values
    return merger.merged


class _Merger:
    def __init__(self, keep: Collection[str], take: Collection[str]) -> None:
        self.merged = Merged()
        self.conflicts: list[str] = []
        self._keep, self._take = keep, take

    @staticmethod
    def _named(name: str, keys: Collection[str]) -> bool:
        return any(name == key or name.startswith(f"{key}.") for key in keys)

    def mapping(self, base: Any, ours: Mapping[str, Any], theirs: Mapping[str, Any], key: Key) -> dict[str, Any]:
        known = base if isinstance(base, Mapping) else {}
        merged = {}
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            three = (side.get(name, MISSING) for side in (known, ours, theirs))
            value = self.value(*three, key=(*key, name))
            if value is not MISSING:
                merged[name] = value
        return merged

    def value(self, base: Any, ours: Any, theirs: Any, *, key: Key) -> Any:
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            return self.mapping(base, ours, theirs, key)
        name, merged = dotted(key), self.merged
        if any(fnmatch(name, p) for p in PROTECTED) and (MISSING not in (ours, theirs) or key[0] == "consents"):
            return self._protected(name, base, ours, theirs)
        if ours == theirs:
            return theirs
        if ours == base or (theirs != base and self._named(name, self._take)):
            merged.changed.append(Difference(name, ours, theirs))
            return theirs
        if theirs == base or self._named(name, self._keep):
            merged.kept.append(Difference(name, ours, theirs))
            return ours
        self.conflicts.append(name)
        return ours

    def _protected(self, name: str, base: Any, ours: Any, theirs: Any) -> Any:
        if ours is MISSING:
            return _blank(theirs)  # newer code may add a provider, and never a consent
        if theirs not in (ours, base):
            self.merged.protected.append(Difference(name, ours, theirs))
        elif ours != theirs:
            self.merged.kept.append(Difference(name, ours, theirs))
        return ours
