"""Show, change and merge the parameters of a corpus; a commit records who changed a value, when and why.

An upgrade merges three versions by key: the earlier code's, the corpus's and the newer code's.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config.added_corpora import complete, create_folders
from pipelines.core.config.params import (
    FILES,
    Key,
    dotted,
    find_key,
    leaves,
    load,
    parse,
    parse_all,
    put,
    read_params,
    rewrite,
    texts_below,
    validate,
)
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.workspace import dag_graph
from pipelines.workspace import profile as profiles
from pipelines.workspace.clone import BRANCH, CODE, Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import overlap
from pipelines.workspace.stages import Definition

PARAMETER, SET_BY, REASON = "Parameter", "Set-By", "Reason"


@dataclass(frozen=True)
class Layers:
    """The parameters of a corpus in three layers: the code's defaults, these with the profile, the present values."""

    defaults: Mapping[str, Any]
    profile: Mapping[str, Any]
    present: Mapping[str, Any]

    @classmethod
    def of(cls, clone: Workspace) -> Layers:
        """Read the three layers of parameters in a clone at the newest commit of the corpus branch."""
        present = read_params(clone.path)
        code = merged_code(clone)
        return cls(
            at(clone, code, profile=None),
            at(clone, code, profile=kept_profile(clone, code, present.get("profile"))),
            present,
        )


@dataclass(frozen=True)
class Record:
    """The record of who last set a parameter, when (ISO 8601) and why."""

    who: str
    when: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One parameter that differs from its default; ``record`` is ``None`` if no command changed it."""

    key: str
    default: Any
    profile: Any
    present: Any
    record: Record | None

    @property
    def by_person(self) -> bool:
        """Return whether a person set the value: it is neither the default nor the profile's value."""
        return bool(self.present != self.profile)


@dataclass(frozen=True)
class Changed:
    """A change of parameters; ``commit`` is ``None`` if it was not committed.

    ``stages`` read one of the parameters; those ``below`` them run again if the results upstream differ.
    """

    commit: str | None
    differences: tuple[Difference, ...]
    stages: tuple[str, ...]
    below: tuple[str, ...]


def show(settings: Settings, *, section: str | None) -> Any:
    """Return the present value of a parameter given by its dotted key, or all parameters."""
    with workspace(settings) as clone:
        values: Any = read_params(clone.path)
    for name in find_key(values, section) if section else ():
        if not isinstance(values, Mapping) or name not in values:
            raise ConfigError("UnknownParameter", key=section)
        values = values[name]
    return values


def diff(settings: Settings) -> list[Row]:
    """Return every parameter of the corpus that differs from the code's default, in the order of ``params.yaml``."""
    with workspace(settings) as clone:
        layers, known = Layers.of(clone), records(clone)
    default, profile, present = (dict(leaves(side)) for side in (layers.defaults, layers.profile, layers.present))
    rows = []
    for key in [*present, *(key for key in profile if key not in present)]:
        by_default, by_profile, now = (side.get(key, MISSING) for side in (default, profile, present))
        if key != ("profile",) and not by_default == by_profile == now:
            record = _record(known, key) if now != by_profile else None
            rows.append(Row(dotted(key), by_default, by_profile, now, record))
    return rows


def change(
    settings: Settings, values: Mapping[str, Any] | Mapping[Key, Any], *, reason: str, who: str, dry_run: bool = False
) -> Changed:
    """Set parameters, by key or by dotted name, on the corpus branch in one commit."""
    if "profile" in values or ("profile",) in values:
        raise BadParams(where="profile", detail="is chosen once, by `corpus init`")
    with workspace(settings) as clone:
        before = read_params(clone.path)
        after = copy.deepcopy(before)
        keys = {find_key(before, key) if isinstance(key, str) else key: value for key, value in values.items()}
        for key, value in keys.items():
            put(after, key, value)
        validate(complete(after), where=", ".join(map(dotted, keys)))
        old = _definitions(clone)
        write(clone, after)
        stages, below = _to_run(old, _definitions(clone))
        differences = tuple(_differences(before, after))
        commit = None
        if differences and not dry_run:
            names = sorted(map(dotted, keys))
            subject = f"params: set {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            # a line break would end a trailer
            record = [f"{name}: {' '.join(text.split())}" for name, text in ((SET_BY, who), (REASON, reason))]
            trailers = [*(f"{PARAMETER}: {name}" for name in names), *record]
            commit = clone.commit(subject, paths=[*FILES, rows.FILE, "annotations", "models"], trailers=trailers)
    if commit:
        dag_graph.follow(settings)
    return Changed(commit, differences, stages, below)


def from_file(path: Path) -> dict[Key, Any]:
    """Read parameter values from a YAML file, such as a profile, and return them by key."""
    try:
        values = parse(path.read_text(), where=path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadParams(where=path.name, detail=f"cannot be read ({type(error).__name__})") from None
    return {key: value for key, value in leaves(values) if key}


def write(clone: Workspace, values: Mapping[str, Any]) -> None:
    """Write parameters into a clone's files, with their comments, and the rows and folders that follow from them."""
    for name, text in rewrite(texts_below(clone.path), values).items():
        (clone.path / name).write_text(text)
    params = load(clone.path)
    (clone.path / rows.FILE).write_text(rows.text(params, root=clone.path))
    create_folders(clone.path, params.corpora)


def merged_code(clone: Workspace) -> str:
    """Return the newest commit of the branch ``code`` that was merged into the corpus branch."""
    return git("merge-base", "HEAD", f"origin/{CODE}", cwd=clone.path)


def at(clone: Workspace, revision: str, *, profile: profiles.Profile | None) -> dict[str, Any]:
    """Return the parameters at a commit of the code, replaced by those of a profile if one is given."""
    values = parse_all(profiles.texts_at(revision, cwd=clone.path))
    return profile.over(values) if profile else values


def kept_profile(clone: Workspace, code: str, name: str | None) -> profiles.Profile | None:
    """Return the corpus's profile from a commit of the code; a profile given as a file is only on the corpus branch."""
    if name is None:
        return None
    profile = profiles.at(code, name, root=clone.path)
    if profile is None and profiles.at(merged_code(clone), name, root=clone.path) is None:
        profile = profiles.at(clone.head, name, root=clone.path)
    if profile is None:
        raise ConfigError("ProfileMissing", name=name)
    return profile


def records(clone: Workspace) -> dict[str, Record]:
    """Return who last set each parameter, when and why, by dotted key, from the commits of the corpus branch."""
    line = (
        f"%(trailers:key={SET_BY},valueonly,separator=%x2C)%x00%aI%x00%(trailers:key={REASON},valueonly,separator=%x2C)"
    )
    form = f"{line}%x00%(trailers:key={PARAMETER},valueonly,separator=%x00)%x01"
    log = git("log", "--first-parent", f"--grep=^{PARAMETER}: ", f"--format={form}", BRANCH, cwd=clone.path)
    last: dict[str, Record] = {}
    for entry in filter(None, (part.strip() for part in log.split("\x01"))):
        who, when, reason, *keys = entry.split("\x00")
        for key in keys:
            last.setdefault(key, Record(who, when, reason))
    return last


def _record(known: Mapping[str, Record], key: Key) -> Record | None:
    return next((known[name] for n in range(len(key), 0, -1) if (name := dotted(key[:n])) in known), None)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    old, new = dict(leaves(before)), dict(leaves(after))
    for key in [*old, *(key for key in new if key not in old)]:
        earlier, later = old.get(key, MISSING), new.get(key, MISSING)
        if earlier != later:
            yield Difference(dotted(key), earlier, later)


def _definitions(clone: Workspace) -> dict[str, Definition]:
    """Return every stage of a clone with its present parameters."""
    opened = Workspace(clone.path, settings=clone.settings)
    try:
        return Definition.resolve_all(opened.repo, opened.graph.names())
    finally:
        opened.close()


def _to_run(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stages whose definition differs, and those below them."""
    stages = {name for name, stage in new.items() if stage != old.get(name)}
    reached, waiting = set(stages), list(stages)
    while waiting:
        outs = new[waiting.pop()].outs
        for name, stage in new.items():
            if name not in reached and any(overlap(out, dep) for out in outs for dep in stage.deps):
                reached.add(name)
                waiting.append(name)
    return tuple(sorted(stages)), tuple(sorted(reached - stages))


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
    """The result of merging parameters: the values, those that ``changed``, and how the others were decided.

    ``kept`` are values set by a person (``before``) instead of the newer code's (``after``), ``protected`` approvals
    and budgets that the newer code would have changed, in the same form.
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
    """Merge parameters: return the newer code's, with the corpus's value wherever the corpus has changed it.

    ``base`` are those of the earlier code; this and ``theirs`` are with the profile. Of a conflict in one of these keys
    or sections, ``keep`` names those where the corpus wins, ``take`` those where the newer code does.
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
