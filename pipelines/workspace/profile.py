"""Find the profile of a corpus (named parameter values): in a checkout, in a file, or on the corpus branch."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import FILES, overlay, parse, parse_all, validate
from pipelines.core.errors import ConfigError
from pipelines.workspace.git import git

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Profile:
    """A profile: parameter values that replace the defaults, and its name in the corpus."""

    name: str
    text: str

    @property
    def path(self) -> str:
        """Return the path of the profile in the corpus repository."""
        return f"profiles/{self.name}.yaml"

    def over(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the default values replaced by those of this profile, with the profile's name."""
        return complete(overlay(values, parse(self.text, where=self.path))) | {"profile": self.name}


def given(profile: str, *, checkout: Path) -> Profile:
    """Read and validate a profile, given as a name (committed in the checkout) or as the path of a YAML file.

    Raises:
        UnknownProfile: there is neither a committed profile nor a file of this name.
        UncommittedProfile: the profile's file in the checkout differs from the committed one.
        BadParams: the profile is invalid; the error names every faulty key.
    """
    is_path = "/" in profile or profile.endswith((".yaml", ".yml"))
    name = Path(profile).stem if is_path else profile
    committed = shown("HEAD", f"profiles/{name}.yaml", cwd=checkout)
    found = Path(profile) if is_path else checkout / "profiles" / f"{name}.yaml"
    text = found.read_text() if found.is_file() else None
    if text is None and (is_path or committed is None):
        known = git("ls-tree", "--name-only", "HEAD", "profiles/", cwd=checkout).split()
        names = ", ".join(Path(path).stem for path in known if path.endswith(".yaml"))
        raise ConfigError("UnknownProfile", profile=profile, known=names or "none")
    if not NAME.fullmatch(name):
        raise ConfigError("BadProfileName", name=name)
    if text is not None and text != committed and (committed is not None or not is_path):
        raise ConfigError("UncommittedProfile", name=name)
    chosen = Profile(name, text if text is not None else str(committed))
    validate(chosen.over(parse_all(texts_at("HEAD", cwd=checkout))), where=chosen.path)
    return chosen


def at(revision: str, name: str | None, *, root: Path) -> Profile | None:
    """Return the profile of this name at a commit, or ``None`` if the commit has no such profile."""
    text = shown(revision, f"profiles/{name}.yaml", cwd=root) if name else None
    return None if name is None or text is None else Profile(name, text)


def texts_at(revision: str, *, cwd: Path) -> dict[str, str]:
    """Return the texts of the files of the parameters at a commit by name."""
    return {name: text for name in FILES if (text := shown(revision, name, cwd=cwd)) is not None}


def shown(revision: str, path: str, *, cwd: Path) -> str | None:
    """Return the text of a file at a commit, or ``None`` if it does not exist there."""
    done = subprocess.run(["git", "show", f"{revision}:{path}"], cwd=cwd, text=True, capture_output=True, check=False)
    return None if done.returncode else done.stdout
