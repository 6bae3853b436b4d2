"""Run only code of the corpus branch that an operator has signed, and use only commits of it that a task has made.

A person who may push to the corpus repository can change its code, and tasks run that code with the project secret. The
code that tasks may run is therefore signed: a tag ``code/<fingerprint>`` under a key that is derived from the secret.
The fingerprint covers every file of a commit that Python can import or DVC obeys. `corpus init` and `corpus upgrade`
sign the code of the operator's checkout.

Digests of tables, and metrics, are data: each commit of a task is signed under another key, and with it all its files
and parents. An operator vouches for other commits by a tag ``commit/<id>``.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, NoSecret
from pipelines.store.vault.keyring import Signer
from pipelines.workspace.git import git, is_signed_commit, read_signed_tag, sign_commit, write_signed_tag
from pipelines.workspace.inventory import pointed

# All of these, also their data files; and of the rest, what Python imports from the folder in which a command starts.
FOLDERS = ("pipelines/", "crisis_corpus/", "client/", ".dvc/")
FILES = ("dvc.yaml", ".dvcignore", ".gitattributes", ".gitmodules")
PLAIN = "100644"
TAGS, COMMITS = "code/", "commit/"


def require_pointers(folder: Path) -> None:
    """Check that all ``.dvc`` files in a working tree are plain pointers."""
    for path in sorted(folder.rglob("*.dvc")):
        if path.is_file() and pointed(path.read_text()) != path.name.removesuffix(".dvc"):
            raise ConfigError("StageInPointer", path=path.relative_to(folder))


def require_signed(settings: Settings, commit: str, *, cwd: Path) -> None:
    """Check that an operator has signed the code of a commit."""
    tag = f"{TAGS}{_fingerprint(_code(commit, cwd=cwd))}"
    if read_signed_tag(tag, signer=_signer(settings), cwd=cwd) is None:
        raise ConfigError("CodeNotSigned", commit=git("rev-parse", "--short=12", commit, cwd=cwd))


def require_commit(settings: Settings, name: str = "HEAD", *, cwd: Path) -> None:
    """Check that a task or an operator has signed a commit.

    Without the secret nothing is checked: such a process publishes nothing.
    """
    with suppress(NoSecret):
        commit, signer = git("rev-parse", f"{name}^{{commit}}", cwd=cwd), _committer(settings)
        if is_signed_commit(commit, signer=signer, cwd=cwd):
            return
        if read_signed_tag(f"{COMMITS}{commit}", signer=_signer(settings), cwd=cwd) is None:
            raise ConfigError("CommitNotSigned", commit=commit[:12])


def sign_head(settings: Settings, *, cwd: Path) -> None:
    """Replace the commit that is checked out by a signed one."""
    git("update-ref", "HEAD", sign_commit("HEAD", signer=_committer(settings), cwd=cwd), cwd=cwd)


def sign(settings: Settings, commit: str, *, who: str, why: str, cwd: Path, to: str = "origin") -> str:
    """Sign the code of a commit, and the commit; push the tags to the remote ``to`` and return that of the code."""
    signer = _signer(settings)
    tag = f"{TAGS}{_fingerprint(_code(commit, cwd=cwd))}"
    for name in (tag, f"{COMMITS}{git('rev-parse', f'{commit}^{{commit}}', cwd=cwd)}"):
        if read_signed_tag(name, signer=signer, cwd=cwd) is None:
            made = write_signed_tag(name, commit=commit, message=f"{who}: {why}", signer=signer, cwd=cwd)
            # over a tag of this name that is not ours
            git("push", "--quiet", to, f"+{made}:refs/tags/{name}", cwd=cwd)
    return tag


def require_equal(clone: Path, *, code: str) -> None:
    """Check that the code in the git index of a clone is exactly that of the commit ``code``."""
    different = sorted(_code(code, cwd=clone) ^ _code(None, cwd=clone))
    if different:
        paths = sorted({entry.partition("\t")[2] for entry in different})
        raise ConfigError("CodeAltered", count=len(paths), path=paths[0])


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret(), purpose="code")


def _committer(settings: Settings) -> Signer:
    return Signer(settings.secret(), purpose="commit")


def _code(commit: str | None, *, cwd: Path) -> set[str]:
    """Return ``<mode> <digest><tab><path>`` of each file of code in a commit, or in the index for ``None``."""
    listed = git(*(["ls-tree", "-r", "--full-tree", "-z", commit] if commit else ["ls-files", "-s", "-z"]), cwd=cwd)
    code = set()
    for entry in filter(None, listed.split("\0")):
        about, _, path = entry.partition("\t")
        mode, digest = about.split()[0], about.split()[2 if commit else 1]
        if (
            mode != PLAIN
            or path.startswith(FOLDERS)
            or path.rpartition("/")[2] in FILES
            or path.endswith(tuple(all_suffixes()))
        ):
            code.add(f"{mode} {digest}\t{path}")
    return code


def _fingerprint(code: set[str]) -> str:
    return hashlib.sha256("\0".join(sorted(code)).encode()).hexdigest()
