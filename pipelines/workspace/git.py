"""Run git with the author name of the project's data commits, sign commits and tags, and tell paths from addresses."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipelines.core.errors import BadParams, ConfigError, GitFailed
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.store.vault.keyring import Signer

IDENTITY = {
    "GIT_AUTHOR_NAME": "Crisis Corpus",
    "GIT_AUTHOR_EMAIL": "corpus@localhost",
    "GIT_COMMITTER_NAME": "Crisis Corpus",
    "GIT_COMMITTER_EMAIL": "corpus@localhost",
}
# In the head of a commit, as git writes it: the lines of a value begin with a space.
SIGNATURE = re.compile(r"\ngpgsig (.*(?:\n .*)*)")
# The name and password in an address.
CREDENTIALS = re.compile(r"//[^/@\s]+@")


def git(*argv: str, cwd: Path | None = None, given: str | None = None) -> str:
    """Run git in the folder ``cwd`` with ``given`` as its input; return its output without surrounding white space."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        env={**os.environ, **IDENTITY},
        input=given,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        command = next(arg for arg in argv if not arg.startswith("-") and "/" not in arg)
        lines = CREDENTIALS.sub("//", done.stderr).splitlines()
        said = next((line for line in lines if line.startswith("fatal: ")), lines[-1] if lines else "")
        detail = said.removeprefix("fatal: ").rstrip(".") or f"exit status {done.returncode}"
        raise GitFailed(command=f"git {command}", returncode=done.returncode, detail=detail)
    return done.stdout.strip()


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


def commit_of(root: Path) -> str:
    """Return the commit that is checked out in a folder, or ``none`` if the folder is not in a repository."""
    try:
        return git("rev-parse", "HEAD", cwd=root)
    except GitFailed:
        return "none"


def sign_commit(commit: str, *, signer: Signer, cwd: Path) -> str:
    """Create a copy of a commit with a signature, which `git verify-commit` can verify; return its id."""
    text = git("cat-file", "commit", commit, cwd=cwd) + "\n"
    head, _, message = text.partition("\n\n")
    signature = signer.sign_text(text).removeprefix(text).strip().replace("\n", "\n ")
    signed = f"{head}\ngpgsig {signature}\n\n{message}"
    return git("hash-object", "-t", "commit", "-w", "--stdin", cwd=cwd, given=signed)


def is_signed_commit(commit: str, *, signer: Signer, cwd: Path) -> bool:
    """Return whether ``signer`` has signed this commit: its files, its parents and its message."""
    head, _, message = (git("cat-file", "commit", commit, cwd=cwd) + "\n").partition("\n\n")
    text, signature = f"{SIGNATURE.sub('', head)}\n\n{message}", SIGNATURE.search(head)
    return signature is not None and signer.signed_text(text + signature[1].replace("\n ", "\n") + "\n") == text


def write_signed_tag(name: str, *, commit: str, message: str, signer: Signer, cwd: Path) -> str:
    """Create a signed git tag object for a commit and return its id; the caller pushes it."""
    who = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}> {int(now().timestamp())} +0000"
    head = git("rev-parse", f"{commit}^{{commit}}", cwd=cwd)
    text = f"object {head}\ntype commit\ntag {name}\ntagger {who}\n\n{message}\n"
    return git("mktag", cwd=cwd, given=signer.sign_text(text))


def read_signed_tag(name: str, *, signer: Signer, cwd: Path) -> str | None:
    """Return the message of the git tag ``name``, or ``None`` if ``signer`` has not signed a tag of this name."""
    try:
        text = git("cat-file", "tag", f"refs/tags/{name}", cwd=cwd)
    except GitFailed:
        return None
    head, _, message = (signer.signed_text(text) or "").partition("\n\n")
    # a signed tag can be copied to another name
    return message.rstrip("\n") if f"tag {name}" in head.split("\n") else None
