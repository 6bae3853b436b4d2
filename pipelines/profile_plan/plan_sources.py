"""Read the parameters and the tracked files of the corpus branch, if there is one."""

from __future__ import annotations

from pathlib import Path

from pipelines.config.params import FILES, Params, load, parse_all, validate
from pipelines.config.settings import Settings
from pipelines.workspace.address import branches
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git
from pipelines.workspace.profile import texts_at


def parameters(profile: str, *, settings: Settings, root: Path) -> Params:
    """Return the parameters of a corpus that was created with the profile, else those of ``root`` with the profile.

    Raises:
        BadParams: a file is invalid.
        UnknownName: there is no such profile.
    """
    own = load(root, profile=profile)
    if BRANCH not in (branches(settings.repo) or {}):
        return own
    with history(settings, depth=1) as repository:
        published = validate(parse_all(texts_at(BRANCH, cwd=repository)), where=FILES[0])
    return published if published.profile == profile else own


def tracked(settings: Settings) -> frozenset[str] | None:
    """Return the files of the corpus branch below ``annotations``, or ``None`` without a corpus repository."""
    if BRANCH not in (branches(settings.repo) or {}):
        return None
    with history(settings, depth=1) as repository:
        listed = git("--git-dir", str(repository), "ls-tree", "-r", "--name-only", BRANCH, "annotations")
    return frozenset(listed.splitlines())
