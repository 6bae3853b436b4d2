"""Tell a corpus repository on this host from one at a git address, and list the branches of either."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.core.errors import BadParams, ConfigError, GitFailed
from pipelines.workspace.git import git


def local_path(repo: str) -> Path | None:
    """Return the path of a git repository on this host, or ``None`` for a git address.

    As in git, ``scheme://…`` and ``host:path`` are addresses.
    """
    return None if "://" in repo or ":" in repo.partition("/")[0] else Path(repo)


def shown(repo: str) -> str:
    """Return a repository's address for messages, with user name and password removed."""
    return re.sub(r"//[^/@]*@", "//", repo)


def branches(repo: str) -> dict[str, str] | None:
    """Return the commit of each branch of a repository, or ``None`` if a path contains no repository yet.

    An address with a password is refused, because git would show it in the list of processes.
    """
    path = local_path(repo)
    if path is None and "://" in repo and urlsplit(repo).password:
        raise BadParams(where="CORPUS_REPO", detail="contains a password; use a git credential helper or an SSH key")
    if path is not None and (not path.exists() or (path.is_dir() and not any(path.iterdir()))):
        return None
    try:
        heads = git("ls-remote", "--heads", repo)
    except GitFailed as error:
        raise ConfigError("RepositoryUnreachable", place=shown(repo), detail=error.fields["detail"]) from None
    found = (line.split("\t") for line in heads.splitlines())
    return {name.removeprefix("refs/heads/"): commit for commit, name in found}
