"""Find the profile of a corpus (named parameter values) in a checkout, in a file or on the corpus branch; write one."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.core.config.added_corpora import complete
from pipelines.core.config.collect import Corpus
from pipelines.core.config.params import (
    FILES,
    Params,
    known_profiles,
    overlay,
    parse,
    parse_all,
    profile_name,
    profile_places,
    put,
    validate,
)
from pipelines.core.errors import ConfigError
from pipelines.core.process import create_private

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


COMMENTS = {
    "source": "where posts come from: an entry of section sources, such as dump (files in CORPUS_DUMPS), or a list",
    "subreddits": "the subreddits that are read",
    "first_month": "the first month that is collected, YYYY-MM",
    "last_month": "the last month that is collected; null: every month that ends from now on",
    "ethics": "the ethics board that approved research with these posts, and its reference, or why none is needed",
    "access_basis": "the terms on which the source may be read, such as the name of an agreement",
    "approval": "the decision of your ethics board or data protection officer, such as its number",
    "expires": 'the day from which the source may no longer be read, in quotes: "YYYY-MM-DD"',
    "retention_days": "the number of days for which content is kept",
    "labellers": "who labels the posts; remote ones need a key (CORPUS_<PROVIDER>_KEY) and a budget",
    "budget_usd": "US dollars that all remote labellers together may cost; `corpus plan cost CORPUS` computes the need",
    "ensembles": "ensembles whose votes are aggregated to silver labels; all members must be labellers above",
    "ensemble": "the ensemble on whose silver labels models are fitted",
    "rows": "models that are evaluated without a fit on the corpus",
}


@dataclass(frozen=True)
class Choices:
    """A person's choices for a new corpus; an empty field keeps the default of ``params.yaml``.

    ``corpora`` has fields of that section by corpus, ``labellers`` label the corpora that are :func:`labelled`,
    ``ethics`` is the approval of every source that is read.
    """

    corpora: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labellers: Sequence[str] = ()
    budget_usd: float | None = None
    ethics: str | None = None

    def any(self) -> bool:
        """Return whether the person made any choice."""
        return bool(self.corpora or self.labellers or self.budget_usd is not None or self.ethics)


def labelled(params: Params) -> list[str]:
    """Return the corpora that labellers label by default."""
    return [corpus for corpus, names in params.votes.labellers.items() if names]


def sources(choices: Choices) -> set[str]:
    """Return the names of all sources that were chosen."""
    given = [fields["source"] for fields in choices.corpora.values() if "source" in fields]
    return {name for source in given for name in ([source] if isinstance(source, str) else source)}


def profile_text(choices: Choices, *, params: Params) -> str:
    """Return the text of a profile with these choices, each value under a comment that explains it."""
    values: dict[str, Any] = {}
    for corpus, fields in choices.corpora.items():
        for name in (name for name in Corpus.model_fields if name in fields):
            put(values, ("corpora", corpus, name), fields[name])
    chosen = sources(choices)
    if choices.ethics or chosen:
        others = {name for corpus, known in params.corpora.items() for name in known.sources
                  if "source" not in choices.corpora.get(corpus, {})}  # fmt: skip
        for source in sorted(name for name in chosen | others if name in params.sources):
            put(values, ("sources", source, "ethics"), choices.ethics)
    for source in sorted(name for name in chosen if name in params.sources and params.sources[name].live):
        for name in ("access_basis", "approval", "expires", "retention_days"):
            put(values, ("sources", source, name), None)
    if choices.labellers:
        _put_labellers(values, choices.labellers, params=params)
    if choices.budget_usd is not None:
        put(values, ("votes", "budget_usd"), choices.budget_usd)
    return "# Written by `corpus init`; every other value is the default in params.yaml.\n" + _block(values)


def write_profile(path: Path, text: str) -> None:
    """Write the text of a parameter profile to a file unless the file already has this content."""
    if path.exists():
        if path.read_text() != text:
            raise ConfigError("FileExists", path=path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def env_text(values: Mapping[str, str], *, secrets: Iterable[str]) -> str:
    """Return the text of an environment file for shells and systemd; ``secrets`` are variables left to fill in."""
    lines = ["# Addresses of the corpus, written by `corpus init`; in a shell: set -a; . FILE; set +a"]
    lines += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    left = [f"#{name}=" for name in secrets]
    return "\n".join([*lines, *(["# To be filled in:", *left] if left else [])]) + "\n"


def write_env(path: Path, text: str) -> None:
    """Write the file of environment variables, readable only by its owner."""
    if create_private(path, text) != text:
        raise ConfigError("FileExists", path=path)


def _put_labellers(values: dict[str, Any], labellers: Sequence[str], *, params: Params) -> None:
    fitting = [name for name, ensemble in params.ensembles.items() if set(ensemble.members) <= set(labellers)]
    if not fitting:
        listed = "; ".join(f"{name}: {', '.join(ensemble.members)}" for name, ensemble in params.ensembles.items())
        raise ConfigError("EnsembleMissing", labellers=", ".join(labellers), ensembles=listed)
    models = [name for name, model in params.models.items() if model.silver in fitting]
    for corpus in labelled(params):
        put(values, ("votes", "labellers", corpus), list(labellers))
        put(values, ("silver", "ensembles", corpus), fitting)
        if corpus in params.train.rows:
            put(values, ("train", "rows", corpus, "ensemble"), fitting[0])
        put(values, ("predict", "rows", corpus), models)


def _block(values: Mapping[str, Any], *, indent: str = "", about: str = "") -> str:
    """Return values as YAML; a value by corpus has the comment of the section ``about`` that has it."""
    text = ""
    for name, value in values.items():
        if isinstance(value, dict):
            text += f"{indent}{name}:\n{_block(value, indent=indent + '  ', about=name)}"
        else:
            text += f"{indent}# {COMMENTS[name if name in COMMENTS else about]}\n{indent}{name}: {json.dumps(value)}\n"
    return text
