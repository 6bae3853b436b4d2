"""Find the profile of a corpus (named parameter values) in a checkout, in a file or on the corpus branch."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import (
    FILES,
    known_profiles,
    overlay,
    parse,
    parse_all,
    profile_name,
    profile_places,
    validate,
)
from pipelines.core.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Profile:
    """A profile: parameter values that replace the defaults, its name, and its path in the corpus repository."""

    name: str
    text: str
    path: str

    def over(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the default values replaced by those of this profile, with the profile's name."""
        return complete(overlay(values, parse(self.text, where=self.path))) | {"profile": self.name}


def given(profile: str, *, checkout: Path) -> Profile:
    """Read and validate a profile, given as a name (committed in the checkout) or as the path of a YAML file."""
    is_path = "/" in profile or profile.endswith((".yaml", ".yml"))
    name = profile_name(Path(profile)) if is_path else profile
    in_commit = at("HEAD", name, root=checkout)
    committed = in_commit.text if in_commit else None
    there = [path for path in profile_places(name) if (checkout / path).is_file()]
    place = in_commit.path if in_commit else str([*there, profile_places(name)[-1]][0])
    found = Path(profile) if is_path else checkout / place
    text = found.read_text() if found.is_file() else None
    if text is None and (is_path or committed is None):
        raise ConfigError("UnknownProfile", profile=profile, known=known_profiles(checkout))
    if not NAME.fullmatch(name):
        raise ConfigError("BadProfileName", name=name)
    if text is not None and text != committed and (committed is not None or not is_path):
        raise ConfigError("UncommittedProfile", name=name, path=place)
    chosen = Profile(name, text if text is not None else str(committed), place)
    validate(chosen.over(parse_all(texts_at("HEAD", cwd=checkout))), where=chosen.path)
    return chosen


def at(revision: str, name: str | None, *, root: Path) -> Profile | None:
    """Return the profile of this name at a commit, or ``None`` if the commit has no such profile."""
    for place in map(str, profile_places(name)) if name else ():
        if (text := shown(revision, place, cwd=root)) is not None:
            return Profile(str(name), text, place)
    return None


def texts_at(revision: str, *, cwd: Path) -> dict[str, str]:
    """Return the texts of the files of the parameters at a commit by name."""
    return {name: text for name in FILES if (text := shown(revision, name, cwd=cwd)) is not None}


def shown(revision: str, path: str, *, cwd: Path) -> str | None:
    """Return the text of a file at a commit, or ``None`` if it does not exist there."""
    done = subprocess.run(["git", "show", f"{revision}:{path}"], cwd=cwd, text=True, capture_output=True, check=False)
    return None if done.returncode else done.stdout
