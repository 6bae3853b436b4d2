"""Define the command that creates or adopts the corpus repository, with a profile and the addresses of its parts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from crisis_corpus.home import HOME_ENV
from pipelines.cli.options import option
from pipelines.cli.shared import doing, emit
from pipelines.core.config.settings import Settings, set_of_home, with_secret
from pipelines.core.errors import BadParams, ConfigError

app = typer.Typer()

# More than its slowest check may take, on a machine that is busy.
DOCTOR_SECONDS = 120


def _database(what: str, name: str) -> Any:
    return option(f"database address of {what}; with a password, set CORPUS_{name}_URL instead")


@app.command(rich_help_panel="Repository")
def init(
    *,
    profile: Annotated[
        str | None, option("profile (parameters that differ from params.yaml): a name in profiles/ or a YAML file")
    ] = None,
    repo: Annotated[str | None, option("path or git address of the corpus repository to create or adopt")] = None,
    remote: Annotated[str | None, option("path or address of the DVC remote that stores the corpus's data")] = None,
    vault_url: Annotated[str | None, _database("the vault (encryption keys)", "VAULT")] = None,
    answers_url: Annotated[str | None, _database("the labellers' answers", "ANSWERS")] = None,
    refresh_url: Annotated[str | None, _database("refreshed posts that wait for their month", "REFRESH")] = None,
    journal_url: Annotated[str | None, _database("the journal of decisions about models", "JOURNAL")] = None,
    dry_run: Annotated[bool, option("print what would be done; change nothing", "--dry-run")] = False,
) -> None:
    """Create the corpus repository from this checkout's HEAD, or use an existing one; note the given addresses."""
    from pipelines.core.config.params import load, profile_name
    from pipelines.workspace import parameters, repository
    from pipelines.workspace.git import local_path

    addresses = {"repo": repo, "remote": remote, "vault_url": vault_url, "answers_url": answers_url,
                 "refresh_url": refresh_url, "journal_url": journal_url}  # fmt: skip
    _refuse_passwords(addresses)
    checkout = Path.cwd()
    if not Path("params.yaml").exists():
        raise ConfigError("NotARepository", path=checkout.name)
    # absolute, because commands in other folders read them, too
    given = {name: value for name, value in addresses.items() if value}
    for name in given.keys() & {"repo", "remote"}:
        given[name] = str(path.resolve() if (path := local_path(given[name])) else given[name])
    settings, noted = Settings.from_env().model_copy(update=given), {f"CORPUS_{k.upper()}": v for k, v in given.items()}
    if dry_run:
        action = repository.plan(settings, checkout=checkout, profile=profile)
        emit({"commit": None, "would": action, HOME_ENV: noted})
        return
    commit = repository.init(settings, checkout=checkout, profile=profile)
    if noted:
        set_of_home(settings.home, noted)
    if edited := list(repository.uncommitted(checkout, profile=profile and profile_name(Path(profile)))):
        more = "" if len(edited) < 4 else f" and {len(edited) - 3} more"
        typer.echo(f"Not in the corpus, because uncommitted: {', '.join(edited[:3])}{more}.", err=True)
    if findings := _examined(noted):
        typer.echo("\n".join(["Findings of `corpus doctor`, to fix before the first month:", *findings]), err=True)
    corpora, usual = parameters.show(settings, section="corpora"), load().corpora
    corpus = next((name for name in corpora if name not in usual), next(iter(corpora)))
    # a trial reads a dump to its last byte, which may take hours, so it is left to the person
    steps = [
        "corpus params diff",
        "corpus doctor",
        f"corpus try --corpus {corpus} --day {corpora[corpus]['first_month']}-01",
    ]
    typer.echo("\n  ".join(["Next:", *steps]), err=True)
    emit({"commit": commit})


def _refuse_passwords(addresses: Mapping[str, str | None]) -> None:
    for name, value in addresses.items():
        if value and "://" in value and urlsplit(value).password:
            option = f"--{name.replace('_', '-')}"
            detail = f"contains a password, which other users see in the list of processes; set CORPUS_{name.upper()}"
            raise BadParams(where=option, detail=detail)


def _examined(addresses: dict[str, str]) -> list[str]:
    """Return a line for each finding that is not ok.

    The doctor runs in a process of its own: whatever it finds, and even if it hangs, the corpus is created.
    """
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
