"""Show and change the parameters of a corpus; a commit records who changed a value, when and why."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config import params_text
from pipelines.core.config.added_corpora import complete, create_folders
from pipelines.core.config.params import FILES, load, parse, parse_all, read_params, texts_below, validate
from pipelines.core.config.params_text import Key, dotted
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.workspace import dag_graph
from pipelines.workspace import profile as profiles
from pipelines.workspace.clone import BRANCH, CODE, Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import overlap
from pipelines.workspace.merge import MISSING, Difference
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
    """A change of parameters in a corpus; ``commit`` is ``None`` if it was not committed.

    Args:
        differences: the parameters whose values were changed.
        stages: the DVC stages that read one of these parameters.
        below: the stages downstream of those; they run again if the results upstream differ.
    """

    commit: str | None
    differences: tuple[Difference, ...]
    stages: tuple[str, ...]
    below: tuple[str, ...]


def show(settings: Settings, *, section: str | None) -> Any:
    """Return the present value of a parameter given by its dotted key, or all parameters."""
    with workspace(settings) as clone:
        values: Any = read_params(clone.path)
    for name in params_text.find(values, section) if section else ():
        if not isinstance(values, Mapping) or name not in values:
            raise ConfigError("UnknownParameter", key=section)
        values = values[name]
    return values


def diff(settings: Settings) -> list[Row]:
    """Return every parameter of the corpus that differs from the code's default, in the order of ``params.yaml``."""
    with workspace(settings) as clone:
        layers, known = Layers.of(clone), records(clone)
    default, profile, present = (
        dict(params_text.leaves(side)) for side in (layers.defaults, layers.profile, layers.present)
    )
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
    """Set parameters on the corpus branch in one commit.

    Args:
        values: new values, by key or by dotted name.
    """
    if "profile" in values or ("profile",) in values:
        raise BadParams(where="profile", detail="is chosen once, by `corpus init`")
    with workspace(settings) as clone:
        before = read_params(clone.path)
        after = copy.deepcopy(before)
        keys = {params_text.find(before, key) if isinstance(key, str) else key: value for key, value in values.items()}
        for key, value in keys.items():
            params_text.put(after, key, value)
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
    return {key: value for key, value in params_text.leaves(values) if key}


def write(clone: Workspace, values: Mapping[str, Any]) -> None:
    """Write parameters into a clone's files, with their comments, and the rows and folders that follow from them."""
    for name, text in params_text.rewrite(texts_below(clone.path), values).items():
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
    old, new = dict(params_text.leaves(before)), dict(params_text.leaves(after))
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
