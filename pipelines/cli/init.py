"""Define the command that creates or adopts the corpus repository, with a profile and a file of addresses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from pipelines.cli.options import option
from pipelines.cli.shared import doing, emit
from pipelines.core.config.settings import Settings, provider_variable, with_secret
from pipelines.core.errors import BadParams, ConfigError

if TYPE_CHECKING:
    from pipelines.core.config.params import Params
    from pipelines.workspace.profile import Choices

app = typer.Typer()

PER_CORPUS = "one value for all corpora, or CORPUS=VALUE for each"
# Addresses that `corpus init` writes into the file of environment variables.
FIELDS = ("home", "repo", "remote", "vault_url", "answers_url", "refresh_url", "journal_url")
ADDRESSES = {f"CORPUS_{field.upper()}": field for field in FIELDS}
# More than its slowest check may take, on a machine that is busy.
DOCTOR_SECONDS = 120
ASKED = {
    "repo": "Corpus repository: a path, or the git address of an empty repository",
    "remote": "DVC remote: a path, or an address such as s3://bucket/path",
    "vault_url": "Vault: sqlite:///FILE or postgresql+psycopg2://…",
    "answers_url": "Answers of labellers: a database address, as above",
    "refresh_url": "Refreshed posts that wait for their month: a database address, as above",
    "journal_url": "Journal of models: a database address, as above",
}


def _database(what: str, name: str) -> Any:
    return option(f"database address of {what}; with a password, set CORPUS_{name}_URL instead")


@app.command(rich_help_panel="Repository")
def init(
    *,
    profile: Annotated[
        str | None,
        option(
            "profile (parameters that differ from params.yaml): a name in profiles/ or a YAML file; --source to "
            "--budget, if given, are written to it"
        ),
    ] = None,
    source: Annotated[
        list[str] | None, option(f"the source of posts, such as dump, reddit or arctic_shift; {PER_CORPUS}")
    ] = None,
    subreddits: Annotated[
        list[str] | None, option("subreddits to collect: CORPUS=NAME,NAME; give the option once for each corpus")
    ] = None,
    first_month: Annotated[list[str] | None, option(f"first month to collect, YYYY-MM; {PER_CORPUS}")] = None,
    last_month: Annotated[list[str] | None, option(f"last month to collect, or null for no end; {PER_CORPUS}")] = None,
    labellers: Annotated[
        str | None, option("the models that label posts: names in section labellers of catalogue.yaml, by comma")
    ] = None,
    budget: Annotated[float | None, option("spending limit for remote labellers in US dollars")] = None,
    repo: Annotated[str | None, option("path or git address of the corpus repository to create or adopt")] = None,
    remote: Annotated[str | None, option("path or address of the DVC remote that stores the corpus's data")] = None,
    vault_url: Annotated[str | None, _database("the vault (encryption keys)", "VAULT")] = None,
    answers_url: Annotated[str | None, _database("the labellers' answers", "ANSWERS")] = None,
    refresh_url: Annotated[str | None, _database("refreshed posts that wait for their month", "REFRESH")] = None,
    ethics: Annotated[
        str | None,
        option(
            "the ethics approval of the sources: the board and its reference, or who decided that none is needed; "
            "without it nothing is read"
        ),
    ] = None,
    journal_url: Annotated[str | None, _database("the journal of decisions about models", "JOURNAL")] = None,
    env_file: Annotated[
        Path | None, option("write the addresses given by the other options to this file, as CORPUS_* variables")
    ] = None,
    dry_run: Annotated[bool, option("print the files that would be written; change nothing", "--dry-run")] = False,
) -> None:
    """Create the corpus repository from this checkout's HEAD, or use an existing one; without options, ask for them."""
    from pipelines.core.config.params import load
    from pipelines.workspace.git import local_path
    from pipelines.workspace.profile import Choices

    addresses = {"repo": repo, "remote": remote, "vault_url": vault_url, "answers_url": answers_url,
                 "refresh_url": refresh_url, "journal_url": journal_url}  # fmt: skip
    _refuse_passwords(addresses)
    if not Path("params.yaml").exists():
        raise ConfigError("NotARepository", path=Path.cwd().name)
    # absolute, because the file of addresses is read elsewhere
    given = {name: value for name, value in addresses.items() if value}
    for name in given.keys() & {"repo", "remote"}:
        given[name] = str(path.resolve() if (path := local_path(given[name])) else given[name])
    settings = Settings.from_env().model_copy(update=given)
    params = load()
    values = {"source": source, "subreddits": subreddits, "first_month": first_month, "last_month": last_month}
    choices = Choices(_by_corpus(values, corpora=params.corpora), _names(labellers), budget, ethics)
    begin = Beginning(settings, choices, profile=profile, env_file=env_file)
    if sys.stdin.isatty() and not (profile or given or env_file or choices.any()):
        begin = begin.ask(params)
    emit(begin.run(params, dry_run=dry_run))


@dataclass(frozen=True)
class Beginning:
    """Everything that `corpus init` writes: the profile, the repository, and the file of environment variables."""

    settings: Settings
    choices: Choices
    profile: str | None
    env_file: Path | None

    def ask(self, params: Params) -> Beginning:
        """Ask the person at the terminal for each value, and return the values; an empty answer keeps the default."""
        from pipelines.workspace.git import branches
        from pipelines.workspace.profile import Choices, labelled

        update = {"repo": typer.prompt(ASKED["repo"], default=self.settings.repo)}
        settings = self.settings.model_copy(update=update)
        if branches(settings.repo):
            return replace(self, settings=settings)
        if not typer.confirm("Write a profile of your own? (no: the values of params.yaml)", default=True):
            return replace(self, settings=settings)
        name = typer.prompt("Name of the profile", default="team")
        corpora = {}
        for corpus, known in params.corpora.items():
            asked = {
                "source": (
                    f"source ({', '.join(params.sources)}, or several joined by commas)",
                    ",".join(known.sources),
                ),
                "subreddits": ("subreddits, joined by commas", ",".join(known.subreddits)),
                "first_month": ("first month", known.first_month),
                "last_month": ("last month, or null", known.last_month or "null"),
            }
            corpora[corpus] = {
                key: _value(key, typer.prompt(f"{corpus}: {text}", default=old)) for key, (text, old) in asked.items()
            }
        board = "Ethics approval: the board and its reference, or who decided that none is needed"
        ethics = typer.prompt(board, default="").strip() or None
        corpora_labelled = labelled(params)
        voting = dict.fromkeys(name for corpus in corpora_labelled for name in params.votes.labellers[corpus])
        labellers = typer.prompt(f"Labellers of {', '.join(corpora_labelled)}", default=",".join(voting))
        budget = typer.prompt("Budget for remote labellers in US dollars", default=params.votes.budget_usd, type=float)
        fields = [field for field in ASKED if field != "repo"]
        others = {field: typer.prompt(ASKED[field], default=getattr(settings, field)) for field in fields}
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        env = typer.prompt("File for these addresses", default=str(folder / "crisis-corpus" / "corpus.env"))
        choices = Choices(corpora, _names(labellers), budget, ethics)
        return Beginning(settings.model_copy(update=others), choices, name, Path(env))

    def run(self, params: Params, *, dry_run: bool) -> dict[str, Any]:
        """Write profile, repository and file of variables, or in a dry run print them; return the command's output."""
        from pipelines.workspace import profile as profiles
        from pipelines.workspace import repository
        from pipelines.workspace.git import shown

        checkout, profile, text = Path.cwd(), self.profile, None
        env = self._env(params)
        if self.env_file:
            _check_env_file(self.env_file, checkout=checkout)
        if self.choices.any():
            if profile is None:
                raise BadParams(where="--profile", detail="is needed: the name of the profile to write")
            path = Path(profile if profile.endswith((".yaml", ".yml")) else f"profiles/{profile}.yaml")
            text, profile = profiles.profile_text(self.choices, params=params), str(path)
        if dry_run:
            for file, content in ((profile, text), (self.env_file, shown(env) if self.env_file else None)):
                if content is not None:
                    typer.echo(f"--- {file}\n{content}")
            action = repository.plan(self.settings, checkout=checkout, profile=None if text else profile)
            return {"commit": None, "would": action}
        with ExitStack() as undo:
            if text and profile:
                if not Path(profile).exists():
                    undo.callback(Path(profile).unlink)
                profiles.write_profile(Path(profile), text)
            commit = repository.init(self.settings, checkout=checkout, profile=profile)
            undo.pop_all()
        if self.env_file:
            profiles.write_env(self.env_file, env)
        edited = [path for path in repository.uncommitted(checkout) if not text or path != profile]
        self._next_steps(edited=edited)
        return {"commit": commit}

    def _env(self, params: Params) -> str:
        from pipelines.collect.sources import source_of
        from pipelines.workspace import profile as profiles

        labellers = [params.labellers[name] for name in self.choices.labellers if name in params.labellers]
        keys = {f"{provider_variable(labeller.provider)}_KEY" for labeller in labellers if labeller.kind == "remote"}
        for source in profiles.sources(self.choices):
            keys.update(source_of(source, params).variables)
        values = {name: str(getattr(self.settings, field)) for name, field in ADDRESSES.items()}
        return profiles.env_text(values, secrets=sorted(keys))

    def _next_steps(self, *, edited: Sequence[str]) -> None:
        """Print what `corpus doctor` finds in the new deployment, and what to do next."""
        from pipelines.workspace import parameters

        if edited:
            more = "" if len(edited) < 4 else f" and {len(edited) - 3} more"
            typer.echo(f"Not in the corpus, because uncommitted: {', '.join(edited[:3])}{more}.", err=True)
        if findings := _examined(self.settings):
            typer.echo("\n".join(["Findings of `corpus doctor`, to fix before the first month:", *findings]), err=True)
        chosen = (name for name, fields in self.choices.corpora.items() if "subreddits" in fields)
        corpora = parameters.show(self.settings, section="corpora")
        corpus = next(chosen, next(iter(corpora)))
        month = corpora[corpus]["first_month"]
        steps = [f"set -a; . {self.env_file}; set +a"] if self.env_file else []
        # a trial reads a dump to its last byte, which may take hours, so it is left to the person
        steps += ["corpus params diff", "corpus doctor", f"corpus try --corpus {corpus} --day {month}-01"]
        typer.echo("Next:\n" + "\n".join(f"  {step}" for step in steps), err=True)


def _by_corpus(values: Mapping[str, list[str] | None], *, corpora: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the fields of corpora that options give, such as ``memes=dump`` or ``dump``."""
    fields_of: dict[str, dict[str, Any]] = {}
    names = list(corpora)
    for field, options in values.items():
        for text in options or ():
            corpus, equals, value = text.partition("=")
            if equals and corpus not in names:
                raise BadParams(where=f"--{field.replace('_', '-')}", detail=f"names no corpus of {', '.join(names)}")
            for name in [corpus] if equals else names:
                fields_of.setdefault(name, {})[field] = _value(field, value if equals else text)
    return fields_of


def _value(field: str, text: str) -> Any:
    if field == "subreddits" or (field == "source" and "," in text):
        return _names(text)
    return None if text in ("", "null") else text


def _names(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]


def _refuse_passwords(addresses: Mapping[str, str | None]) -> None:
    for name, value in addresses.items():
        if value and "://" in value and urlsplit(value).password:
            option = f"--{name.replace('_', '-')}"
            detail = f"contains a password, which other users see in the list of processes; set CORPUS_{name.upper()}"
            raise BadParams(where=option, detail=detail)


def _check_env_file(path: Path, *, checkout: Path) -> None:
    if path.resolve().is_relative_to(checkout.resolve()):
        detail = "is inside the checkout; give a path outside, as it may hold passwords"
        raise BadParams(where="--env-file", detail=detail)
    if path.exists():
        raise ConfigError("FileExists", path=path)


def _examined(settings: Settings) -> list[str]:
    """Return a line for each finding that is not ok.

    The doctor runs in a process of its own: whatever it finds, and even if it hangs, the corpus is created.
    """
    addresses = {name: str(getattr(settings, field)) for name, field in ADDRESSES.items()}
    argv = [sys.executable, "-m", "pipelines", "doctor", "--json"]
    try:
        with doing("examining the deployment"):
            done = subprocess.run(
                argv, env=with_secret() | addresses, capture_output=True, text=True, timeout=DOCTOR_SECONDS, check=False
            )
        checks = json.loads(done.stdout.strip().rpartition("\n")[2])["checks"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return ["  the doctor did not end; run `corpus doctor`"]
    return [f"  {c['status']} {c['check']}: {c['found']}. {c['fix']}" for c in checks if c["status"] != "ok"]
