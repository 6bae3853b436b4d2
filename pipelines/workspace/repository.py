"""Create, upgrade and clone the corpus repository: the project's history plus data commits on branch ``corpus``."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from pipelines.config import renamed
from pipelines.config.params import load, overlay
from pipelines.config.settings import Settings
from pipelines.errors import ConfigError
from pipelines.workspace import upgrade as results
from pipelines.workspace.clone import BRANCH, CODE, Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.remote import configure


class NotARepository(ConfigError):
    """A folder is not a git checkout of this project with at least one commit."""

    message = "{path} is not a git checkout of this project with at least one commit."
    remedy = "Run the command in the project's checkout, or set CORPUS_REPO to an existing corpus repository."


def init(settings: Settings, *, checkout: Path, profile: str | None) -> str:
    """Create the corpus repository from a checkout's HEAD, with ``profile`` written into its ``params.yaml``.

    Does nothing if it exists already. Returns the head of the corpus branch.
    """
    repo = Path(settings.repo)
    if not (repo / "HEAD").exists():
        with contextlib.ExitStack() as undo:
            try:
                code = git("rev-parse", "HEAD", cwd=checkout)
            except Exception:
                raise NotARepository(path=checkout.name) from None
            partial = repo.with_suffix(".partial")
            undo.callback(_remove, partial)
            _remove(partial)
            git("clone", "--quiet", "--bare", str(checkout), str(partial))
            for branch in (CODE, BRANCH):
                git("--git-dir", str(partial), "branch", "--force", branch, code)
            git("--git-dir", str(partial), "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
            git("--git-dir", str(partial), "config", "receive.denyNonFastForwards", "true")
            with workspace(settings.model_copy(update={"repo": str(partial)})) as clone:
                _apply(clone, profile=profile)
                if "://" in settings.remote:
                    # fail before the repository exists, not in the first task
                    clone.check_remote({})
                clone.commit(f"corpus: begin with profile {profile or 'none'}")
            # last, because a repository without its profile would be taken for a finished one
            partial.rename(repo)
    if "://" not in settings.remote:
        Path(settings.remote).mkdir(parents=True, exist_ok=True)
    settings.cache.mkdir(parents=True, exist_ok=True)
    return git("--git-dir", str(repo), "rev-parse", BRANCH)


@dataclass(frozen=True)
class Upgraded:
    """The merge commit of an upgrade, the stages whose results were kept, and the stages that must run again."""

    commit: str
    kept: tuple[str, ...]
    to_run: tuple[str, ...]


def upgrade(settings: Settings, *, checkout: Path) -> Upgraded | None:
    """Merge the checkout's HEAD into the corpus branch; return ``None`` when it is merged already.

    Results of stages whose revision is unchanged are kept (:mod:`pipelines.workspace.upgrade`).
    """
    code = git("rev-parse", "HEAD", cwd=checkout)
    git("push", "--quiet", "--force", settings.repo, f"{code}:refs/heads/{CODE}", cwd=checkout)
    with workspace(settings) as clone:
        clone.objects.remove_run_cache()
        profile = load(clone.path).profile
        if not git("rev-list", "--max-count=1", f"HEAD..origin/{CODE}", cwd=clone.path):
            return None
        found = results.before(clone)
        git("merge", "--quiet", "--no-commit", "--no-ff", "-X", "theirs", f"origin/{CODE}", cwd=clone.path)
        git("checkout", "--quiet", f"origin/{CODE}", "--", "params.yaml", cwd=clone.path)
        _apply(clone, profile=profile)
        kept, to_run = results.keep(clone, found)
        message = f"corpus: upgrade to {code[:12]}"
        if found.lock:
            message += f"\n\nKept the results of {len(kept)} stages; {len(to_run)} have to run again."
        commit = clone.commit(message)
        return Upgraded(commit, tuple(kept), tuple(to_run)) if commit else None


def clone(settings: Settings, *, folder: Path) -> Path:
    """Clone the corpus to a user's folder: a checkout of the branch, ready for ``dvc pull`` and ``dvc repro``."""
    git("clone", "--quiet", "--branch", BRANCH, settings.repo, str(folder))
    configure(folder.resolve(), settings=settings, scratch=False)
    return folder


def _apply(clone: Workspace, *, profile: str | None) -> None:
    """Write ``profiles/<profile>.yaml`` into ``params.yaml``, comments kept, so that DVC sees the effective values."""
    path = clone.path / "params.yaml"
    rounds = YAML()
    rounds.width, rounds.preserve_quotes = 200, True  # libyaml needs the quotes around a colon within braces
    values = rounds.load(path.read_text())
    if profile:
        over = rounds.load((clone.path / "profiles" / f"{profile}.yaml").read_text())
        overlay(values, renamed.params(over))
    values["profile"] = profile
    text = StringIO()
    rounds.dump(values, text)
    path.write_text(text.getvalue())
    load(clone.path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
