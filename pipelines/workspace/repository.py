"""Create, upgrade and clone the corpus repository: the project's history plus data commits on branch ``corpus``.

Code is a dependency of every stage. An upgrade keeps the results of stages whose revision is unchanged: otherwise a
renamed module or a new comment would make every stage run again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core import rows, taxonomy
from pipelines.core.config.added_corpora import complete
from pipelines.core.config.base import CORPORA
from pipelines.core.config.params import FILES, load, profile_name, read_params, texts_below, validate
from pipelines.core.config.settings import HOME_FILE, Settings
from pipelines.core.errors import ConfigError, DataError, GitFailed, NoSecret
from pipelines.core.process import now, private_home
from pipelines.store.vault.vault import Vault
from pipelines.workspace import dag_graph, trust
from pipelines.workspace.clone import BRANCH, CODE, Workspace, history, require_corpus, workspace
from pipelines.workspace.declare import require_valid
from pipelines.workspace.git import branches, git, local_path, shown
from pipelines.workspace.inventory import read_yaml
from pipelines.workspace.objects import configure
from pipelines.workspace.parameters import Layers, Merged, at, kept_profile, merge, write
from pipelines.workspace.profile import Profile, given
from pipelines.workspace.stages import Definition, dependencies, in_graph_order

SCHEMES = str(taxonomy.OWN)
# Edits of these are meant for the corpus; an upgrade that ignored them would surprise.
READ = (*FILES, "dvc.yaml", "papers", "profiles", SCHEMES, "pipelines")


def init(settings: Settings, *, checkout: Path, profile: str | None) -> str:
    """Create the corpus repository from a checkout's HEAD, with ``profile`` merged into its parameters.

    The repository is at a new path, or at the path or git address of an empty repository. A repository that has a
    corpus is adopted: nothing is written to it. ``profile`` is the name of a committed profile or the path of a YAML
    file. Returns the newest commit of the corpus branch.
    """
    names = branches(settings.repo)
    if names:
        adopt(settings, names, profile=profile)
    else:
        _create(settings, checkout=checkout, profile=profile)
    private_home(settings.home)
    if "://" not in settings.remote:
        Path(settings.remote).mkdir(parents=True, exist_ok=True)
    settings.cache.mkdir(parents=True, exist_ok=True)
    head = (branches(settings.repo) or {})[BRANCH]
    with history(settings) as git_dir:
        tracked = git("--git-dir", str(git_dir), "ls-tree", "-r", "--name-only", BRANCH, "data")
    if ".dvc" not in tracked:
        # a corpus with data has a secret and a vault already; other ones could not open its content
        Vault.create(settings).close()
    dag_graph.follow(settings)
    return head


def prepare(settings: Settings, *, checkout: Path, profile: str) -> str:
    """Commit the folder of a corpus of one's own, then create the corpus repository with it or upgrade it to it.

    Returns the newest commit of the corpus branch.
    """
    _head(checkout)
    folder = f"{CORPORA}/{profile}"
    if (checkout / folder).is_dir() and git("status", "--porcelain", "--", folder, cwd=checkout):
        require_valid(profile, root=checkout, checkout=checkout, today=now().date())
        git("add", "--", folder, cwd=checkout)
        git("commit", "--quiet", "--only", "--message", f"The corpus in {folder}", "--", folder, cwd=checkout)
        sys.stderr.write(f"Committed {folder} in this checkout.\n")
    if branches(settings.repo):
        adopt(settings, branches(settings.repo) or {}, profile=profile)
        upgrade(settings, checkout=checkout)
        return (branches(settings.repo) or {})[BRANCH]
    return init(settings, checkout=checkout, profile=profile)


def plan(settings: Settings, *, checkout: Path, profile: str | None) -> str:
    """Return what :func:`init` would do with the corpus repository, after the same checks.

    The values are ``create`` (at a new path), ``fill`` (an empty repository) and ``adopt`` (an existing corpus).
    """
    names = branches(settings.repo)
    if names:
        adopt(settings, names, profile=profile)
        return "adopt"
    _chosen(checkout, profile)
    return "create" if names is None else "fill"


@dataclass(frozen=True)
class Upgraded:
    """The result of an upgrade: the stages that keep their results, those to run again, and the merged parameters."""

    commit: str
    kept: tuple[str, ...]
    to_run: tuple[str, ...]
    params: Merged


def upgrade(
    settings: Settings, *, checkout: Path, keep: Collection[str] = (), take: Collection[str] = ()
) -> Upgraded | None:
    """Merge the checkout's HEAD into the corpus branch; return ``None`` if it was already merged.

    Parameters are merged by key (:func:`pipelines.workspace.parameters.merge`); results of stages whose revision is
    unchanged are kept (:func:`keep_results`). Where corpus and code have changed the same parameter, ``keep`` names the
    dotted keys whose present value is kept, ``take`` those whose newer value is taken.
    """
    upgraded = _upgraded(settings, checkout=checkout, keep=keep, take=take)
    # also without newer code, for a commit that was made without a command
    dag_graph.follow(settings)
    return upgraded


def _upgraded(settings: Settings, *, checkout: Path, keep: Collection[str], take: Collection[str]) -> Upgraded | None:
    code = _head(checkout)
    with workspace(settings) as clone:
        if edited := list(uncommitted(checkout, profile=read_params(clone.path).get("profile"))):
            more = f" and {len(edited) - 3} more files" if len(edited) > 3 else ""
            raise ConfigError("Uncommitted", paths=", ".join(edited[:3]) + more)
        git("fetch", "--quiet", str(checkout.resolve()), "HEAD", cwd=clone.path)
        if not git("rev-list", "--max-count=1", f"HEAD..{code}", cwd=clone.path):
            # the tag of a corpus that was made before code was signed, or that was lost
            _sign(clone, code)
            return None
        if git("rev-list", "--max-count=1", f"{code}..origin/{CODE}", cwd=clone.path):
            there = git("rev-parse", f"origin/{CODE}", cwd=clone.path)[:12]
            raise ConfigError("UnknownCode", code=there, place=shown(settings.repo))
        earlier = earlier_results(clone)
        layers = Layers.of(clone)
        over = kept_profile(clone, code, layers.present.get("profile"))
        newer = at(clone, code, profile=over)
        # follows from the corpora: it is derived again, not merged
        matrix = {"matrix": newer["matrix"]}
        merged = merge({**layers.profile, **matrix}, {**layers.present, **matrix}, newer, keep=keep, take=take)
        complete(merged.values)
        validate(merged.values, where="the merged parameters")
        git("merge", "--quiet", "--no-commit", "--no-ff", "-X", "theirs", code, cwd=clone.path)
        git("checkout", "--quiet", code, "--", *FILES, cwd=clone.path)
        write(clone, merged.values)
        trust.require_equal(clone.path, code=code)
        kept, to_run = keep_results(clone, earlier)
        message = f"corpus: upgrade to {code[:12]}"
        if earlier.lock:
            message += f"\n\nKept the results of {len(kept)} stages; {len(to_run)} have to run again."
        # first, so that no task meets the new commit without it
        _sign(clone, code)
        commit = clone.commit(message, code=code)
        return Upgraded(commit, tuple(kept), tuple(to_run), merged) if commit else None


def without_ethics(settings: Settings) -> list[str]:
    """Return the sources that the corpora of the corpus branch read and that have no ethics approval on record."""
    with workspace(settings) as clone:
        params = load(clone.path)
    used = {name for corpus in params.corpora.values() for name in corpus.sources}
    return sorted(name for name in used if not (params.sources[name].ethics or "").strip())


def clone(settings: Settings, *, folder: Path) -> Path:
    """Clone the corpus to a user's folder: a checkout of branch ``corpus``, ready for ``dvc pull`` and ``dvc repro``.

    The clone has a home file, by which commands that run in the clone find the secret, the vault and MLflow.
    """
    require_corpus(settings)
    git("clone", "--quiet", "--no-checkout", "--branch", BRANCH, settings.repo, str(folder))
    try:
        # `dvc repro` there runs the code with the secret to which the home file leads
        with contextlib.suppress(NoSecret):
            trust.require_signed(settings, "HEAD", cwd=folder)
            trust.require_commit(settings, cwd=folder)
        git("checkout", "--quiet", BRANCH, cwd=folder)
        trust.require_pointers(folder)
        rows.check(folder)
    except ConfigError:
        _remove(folder)
        raise
    configure(folder.resolve(), settings=settings, scratch=False)
    (folder / HOME_FILE).write_text(str(settings.home))
    return folder


def adopt(settings: Settings, names: Collection[str], *, profile: str | None) -> None:
    """Check that a repository has a corpus with this profile."""
    if not {CODE, BRANCH} <= set(names):
        raise ConfigError("NotACorpus", place=shown(settings.repo), names=", ".join(sorted(names)))
    with workspace(settings) as clone:
        # no more of it: an older corpus need not fit the present code before an upgrade
        there = read_params(clone.path).get("profile")
    # a path names its profile by the file
    if profile is not None and there != profile_name(Path(profile)):
        named = "no profile" if there is None else f"profile '{there}'"
        raise ConfigError("AnotherProfile", place=shown(settings.repo), there=named, profile=f"'{profile}'")


def _create(settings: Settings, *, checkout: Path, profile: str | None) -> None:
    """Build the whole repository beside its place, then move it there or push it in one transaction."""
    chosen = _chosen(checkout, profile)
    target = local_path(settings.repo)
    new = target is not None and branches(settings.repo) is None
    partial = target.with_suffix(".partial") if target and new else settings.home / "scratch" / "corpus.partial"
    with contextlib.ExitStack() as undo:
        undo.callback(_remove, partial)
        _remove(partial)
        partial.parent.mkdir(parents=True, exist_ok=True)
        _build(partial, settings=settings, checkout=checkout, profile=chosen)
        if target and new:
            # last, because a repository without its profile would be taken for a finished one
            partial.rename(target)
        else:
            signed = [f"refs/tags/{tags}*:refs/tags/{tags}*" for tags in (trust.TAGS, trust.COMMITS)]
            git("--git-dir", str(partial), "push", "--quiet", "--atomic", settings.repo, CODE, BRANCH, *signed)


def _build(bare: Path, *, settings: Settings, checkout: Path, profile: Profile | None) -> None:
    git("clone", "--quiet", "--bare", str(checkout), str(bare))
    for branch in (CODE, BRANCH):
        git("--git-dir", str(bare), "branch", "--force", branch, _head(checkout))
    git("--git-dir", str(bare), "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    git("--git-dir", str(bare), "config", "receive.denyNonFastForwards", "true")
    with workspace(settings.model_copy(update={"repo": str(bare.resolve())}), signed=False) as clone:
        if profile:
            write(clone, profile.over(read_params(clone.path)))
            (clone.path / profile.path).parent.mkdir(parents=True, exist_ok=True)
            (clone.path / profile.path).write_text(profile.text)
        if "://" in settings.remote:
            # fail before the repository exists, not in the first task
            clone.check_remote({})
        settings.create_secret()
        clone.commit(f"corpus: begin with profile {profile.name if profile else 'none'}")
        trust.sign(settings, f"origin/{CODE}", who="corpus init", why="the operator's checkout", cwd=clone.path)


def _chosen(checkout: Path, profile: str | None) -> Profile | None:
    _head(checkout)
    return given(profile, checkout=checkout) if profile else None


def _head(checkout: Path) -> str:
    try:
        return git("rev-parse", "HEAD", cwd=checkout)
    except (GitFailed, OSError):
        raise ConfigError("NotARepository", path=checkout.name) from None


def uncommitted(checkout: Path, *, profile: str | None) -> Iterator[str]:
    """Yield the paths of uncommitted edits and new files in a checkout that an upgrade of its corpus would need.

    Folders in ``corpora/`` are independent of each other: only the one with the corpus's profile counts.
    """
    # a path that exists neither in the tree nor in the commit is no error for `git status`
    read = (*READ, *([f"{CORPORA}/{profile}"] if profile else []))
    listed = git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *read, cwd=checkout)
    for entry in filter(None, listed.split("\0")):
        yield entry.lstrip().partition(" ")[2].lstrip()


def _sign(clone: Workspace, code: str) -> None:
    trust.sign(clone.settings, code, who="corpus upgrade", why="the operator's checkout", cwd=clone.path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


CODE_FOLDERS = ("pipelines", "crisis_corpus")


@dataclass(frozen=True)
class EarlierResults:
    """The lock of a corpus before an upgrade, its stages that match it, the parameters and the team's schemes."""

    lock: Mapping[str, Any]
    current: frozenset[str]
    params: Mapping[str, Any]
    schemes: Mapping[str, bytes]


def earlier_results(clone: Workspace) -> EarlierResults:
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
    return EarlierResults(lock, frozenset(current), _params(clone), _schemes(clone))


def keep_results(clone: Workspace, earlier: EarlierResults) -> tuple[list[str], list[str]]:
    """Rewrite ``dvc.lock`` after newer code was merged, so that unchanged stages keep their results.

    Returns the names of the stages whose results were kept, and of those that must run again.

    An entry is rewritten for the newer command, dependencies and parameters if it was current, and none of the
    parameters, data, revisions and libraries' versions that the stage depends on differs. All other entries stay
    unchanged, and DVC runs their stages.
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
        if (
            dep["path"].partition("/")[0] not in (*CODE_FOLDERS, SCHEMES, CORPORA)
            and digests.get(dep["path"], dep["md5"]) != dep["md5"]
        ):
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
    return {name: path.read_bytes() for name, path in taxonomy.own(clone.path).items()}


def _params(clone: Workspace) -> dict[str, Any]:
    return {name: section for text in texts_below(clone.path).values() for name, section in read_yaml(text).items()}
