"""Write and read signed git tags of the corpus repository."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import GitFailed
from pipelines.process import now
from pipelines.vault.signing import Signer
from pipelines.workspace.git import IDENTITY, git


def write(name: str, *, commit: str, message: str, signer: Signer, cwd: Path) -> str:
    """Create a signed git tag object for a commit and return its id; the caller pushes it."""
    who = f"{IDENTITY['GIT_COMMITTER_NAME']} <{IDENTITY['GIT_COMMITTER_EMAIL']}> {int(now().timestamp())} +0000"
    head = git("rev-parse", f"{commit}^{{commit}}", cwd=cwd)
    text = f"object {head}\ntype commit\ntag {name}\ntagger {who}\n\n{message}\n"
    return git("mktag", cwd=cwd, given=signer.sign_text(text))


def read(name: str, *, signer: Signer, cwd: Path) -> str | None:
    """Return the message of the git tag ``name``, or ``None`` if ``signer`` has not signed a tag of this name."""
    try:
        text = git("cat-file", "tag", f"refs/tags/{name}", cwd=cwd)
    except GitFailed:
        return None
    head, _, message = (signer.signed_text(text) or "").partition("\n\n")
    # a signed tag can be copied to another name
    return message.rstrip("\n") if f"tag {name}" in head.split("\n") else None
