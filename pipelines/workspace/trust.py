"""Run only code of the corpus branch that an operator has signed.

A person who may push to the corpus repository can change its code, and tasks run that code with the project secret. The
code that tasks may run is therefore signed: a tag ``code/<fingerprint>`` under a key that is derived from the secret.
The fingerprint covers every file of a commit that Python can import or DVC obeys. `corpus init` and `corpus upgrade`
sign the code of the operator's checkout.
"""

from __future__ import annotations

import hashlib
from importlib.machinery import all_suffixes
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.store.vault.keyring import Signer
from pipelines.workspace.git import git, read_signed_tag, write_signed_tag
from pipelines.workspace.inventory import pointed

# All of these, also their data files; and of the rest, what Python imports from the folder in which a command starts.
FOLDERS = ("pipelines/", "crisis_corpus/", "client/", ".dvc/")
FILES = ("dvc.yaml", ".dvcignore", ".gitattributes", ".gitmodules")
PLAIN = "100644"
TAGS = "code/"


class CodeNotSigned(ConfigError):
    """The code of a commit is not signed, so it may be that of an attacker; it was not run."""


class StageInPointer(ConfigError):
    """A ``.dvc`` file of the corpus branch is not a pointer; `dvc repro` would run the command in it."""


def require_pointers(folder: Path) -> None:
    """Check that all ``.dvc`` files in a working tree are plain pointers."""
    for path in sorted(folder.rglob("*.dvc")):
        if path.is_file() and pointed(path.read_text()) != path.name.removesuffix(".dvc"):
            raise StageInPointer(path=path.relative_to(folder))


def require_signed(settings: Settings, commit: str, *, cwd: Path) -> None:
    """Check that an operator has signed the code of a commit."""
    tag = f"{TAGS}{_fingerprint(_code(commit, cwd=cwd))}"
    if read_signed_tag(tag, signer=_signer(settings), cwd=cwd) is None:
        raise CodeNotSigned(commit=git("rev-parse", "--short=12", commit, cwd=cwd))


def sign(settings: Settings, commit: str, *, who: str, why: str, cwd: Path, to: str = "origin") -> str:
    """Sign the code of a commit and push the tag to the remote ``to``; return the tag's name."""
    tag, signer = f"{TAGS}{_fingerprint(_code(commit, cwd=cwd))}", _signer(settings)
    if read_signed_tag(tag, signer=signer, cwd=cwd) is None:
        made = write_signed_tag(tag, commit=commit, message=f"{who}: {why}", signer=signer, cwd=cwd)
        # over a tag of this name that is not ours
        git("push", "--quiet", to, f"+{made}:refs/tags/{tag}", cwd=cwd)
    return tag


def require_equal(clone: Path, *, code: str) -> None:
    """Check that the code in the git index of a clone is exactly that of the commit ``code``."""
    different = sorted(_code(code, cwd=clone) ^ _code(None, cwd=clone))
    if different:
        paths = sorted({entry.partition("\t")[2] for entry in different})
        raise ConfigError("CodeAltered", count=len(paths), path=paths[0])


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret(), purpose="code")


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
