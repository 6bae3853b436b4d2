"""Declare the arguments and options of commands, those that several share among them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.shared import _not_empty, _person
from pipelines.core.config.params import FILES, section_names, texts_below
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError

# Help panels of the commands that people rarely run; the others come before them.
STAGES = "Stages of dvc.yaml, run by DVC and Airflow"
STEPS = "Steps, run by Airflow"

# Of a file that must exist.
EXISTING = {"exists": True, "dir_okay": False}


def group(text: str) -> typer.Typer:
    """Return a group of commands, which prints its help without a command; ``text`` is the help."""
    return typer.Typer(no_args_is_help=True, help=text)


def option(text: str, *names: str, **limits: Any) -> Any:
    """Declare an option of a command; ``text`` is its help, ``names`` are needed if the parameter's is another."""
    return typer.Option(*names, help=text, **limits)


def argument(text: str, metavar: str | None = None, **limits: Any) -> Any:
    """Declare an argument of a command; ``text`` is its help."""
    return typer.Argument(metavar=metavar, help=text, **limits)


def checked(kind: str, *, section: str | None = None) -> dict[str, Any]:
    """Return what checks names of this kind, and completes them in the shell: those of a section of the parameters."""
    if kind == "row":
        return {"autocompletion": lambda incomplete: [name for name in _rows() if name.startswith(incomplete)]}
    section = section or ("corpora" if kind == "corpus" else f"{kind}s")

    def check(context: typer.Context, value: Any) -> Any:
        known: list[str] = []
        names = {value} if isinstance(value, str) else {*(value or ())}
        # those of the working directory's parameters, then of the corpus repository's
        for read in (_texts_here, _texts_published) if not context.resilient_parsing and names else ():
            known += section_names(read(), section)
            if names <= {*known}:
                return value
        if known:
            name = min(names - {*known})
            raise ConfigError("UnknownName", kind=kind, name=name, known=", ".join(dict.fromkeys(known)))
        return value

    return {"callback": check, **completed(section)}


def completed(section: str) -> dict[str, Any]:
    """Return what completes a name in the shell: one of a section of the parameters."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in section_names(_texts_here(), section) if name.startswith(incomplete)]

    return {"autocompletion": complete}


def _rows() -> list[str]:
    from pipelines.core import rows

    here = rows.read() if Path(rows.FILE).is_file() else None
    return [row.name for row in here.answers.values()] if here else []


def _texts_here() -> dict[str, str]:
    return texts_below(Path()) if Path(FILES[0]).is_file() else {}


def _texts_published() -> dict[str, str]:
    from pipelines.workspace.clone import BRANCH, history
    from pipelines.workspace.git import branches
    from pipelines.workspace.profile import texts_at

    settings = Settings.from_env()
    if BRANCH not in (branches(settings.repo) or {}):
        return {}
    # every task of an added corpus comes here: of a repository at a git address, only the last commit is copied
    with history(settings, depth=1) as repository:
        return texts_at(BRANCH, cwd=repository)


def month_of(value: str) -> str:
    """Return a calendar month after a check of its form, YYYY-MM."""
    from pipelines.collect.month import Window

    return Window.from_key(value).key


CorpusName = Annotated[
    str, argument("the corpus: a name in section corpora of params.yaml", "CORPUS", **checked("corpus"))
]
Month = Annotated[str, option("the calendar month to process, YYYY-MM", callback=month_of)]
Shard = Annotated[int, option("the shard (numbered part of the posts) to process, from 0", min=0)]
_PERSON = option("the person who decides; stored with the decision and your login", "--who", callback=_person)
_REASON = option("the reason for the decision; stored with it", "--why", callback=_not_empty)
Person = Annotated[str, _PERSON]
Reason = Annotated[str, _REASON]
# not needed with an Approval
PersonIfAny = Annotated[str | None, _PERSON]
ReasonIfAny = Annotated[str | None, _REASON]
Approval = Annotated[
    str | None,
    option(
        "the token of a decision made in Airflow (`corpus task approve`), in place of --who and --why; - reads stdin",
        "--approval",
    ),
]
RunOfApproval = Annotated[str, option("the id of the Dag run in which the decision of --approval was made", "--run")]
AsJson = Annotated[bool, option("print the output as one JSON object", "--json")]
Yes = Annotated[bool, option("do not ask for confirmation", "--yes")]
