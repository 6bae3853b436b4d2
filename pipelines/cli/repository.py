"""Define the commands that upgrade, sign and clone the corpus repository, and show and change its parameters."""

from __future__ import annotations

import getpass
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.airflow import tell_airflow
from pipelines.cli.options import AsJson, Person, Reason, argument, group, option
from pipelines.cli.shared import doing, emit, empty_folder
from pipelines.core.config.params import Key
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, CorpusError

if TYPE_CHECKING:
    from pipelines.workspace.parameters import Difference


app = typer.Typer()
params = group("Show and change the parameters of the corpus: params.yaml on the corpus branch.")
app.add_typer(params, name="params", rich_help_panel="Repository")

ChangeReason = Annotated[str, option("the reason for the change; written to its commit")]
By = Annotated[str | None, option("the person who makes the change; default: git's user.name and user.email")]
DryRun = Annotated[bool, option("check and print the change of parameters without committing it", "--dry-run")]


@params.command()
def show(
    section: Annotated[str | None, argument("print only this section or parameter, such as sample.forum")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the parameters of the corpus branch, or those of one section."""
    from ruamel.yaml import YAML

    from pipelines.workspace import parameters

    values = parameters.show(Settings.from_env(), section=section)
    if as_json:
        emit(values)
    else:
        yaml = YAML(typ="safe")
        yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
        yaml.dump({section: values} if section else values, sys.stdout)


@params.command()
def diff(as_json: AsJson = False) -> None:
    """List the parameters that differ from the code's defaults, and whether a profile or a person set them."""
    from rich.console import Console
    from rich.table import Column, Table

    from pipelines.workspace import parameters
    from pipelines.workspace.parameters import MISSING

    rows = parameters.diff(Settings.from_env())
    if as_json:
        emit(
            [
                {name: value for name, value in vars(row).items() if value is not MISSING and name != "record"}
                | {"by_person": row.by_person, "record": row.record and asdict(row.record)}
                for row in rows
            ]
        )
        return
    parameter = Column("Parameter", overflow="fold", min_width=24)
    table = Table(parameter, "Default", "Profile", "Set", "By", "When", "Reason")
    for row in rows:
        record, unknown = row.record, "not recorded" if row.by_person else ""
        history = (record.who, record.when[:10], record.reason) if record else (unknown, "", "")
        cells = (row.default, row.profile, row.present if row.by_person else "")
        table.add_row(row.key, *(cell if isinstance(cell, str) else repr(cell) for cell in cells), *history)
    Console().print(table)


@params.command("set")
def set_value(
    key: Annotated[str, argument("the parameter's dotted name, such as sample.forum.size")],
    value: Annotated[str, argument("the new value as YAML: 900, true, null, [a, b], {member: 1}")],
    reason: ChangeReason,
    by: By = None,
    dry_run: DryRun = False,
) -> None:
    """Set one parameter in a commit on the corpus branch; later upgrades and profiles keep the value."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        parsed = YAML(typ="safe").load(value)
    except YAMLError:
        raise BadParams(where=key, detail="the value is not YAML; a text with a colon needs quotes within") from None
    if isinstance(parsed, dict) and "\n" not in value and not value.lstrip().startswith("{"):
        # "Board: reference" is a text
        parsed = value
    _change({key: parsed}, reason=reason, by=by, dry_run=dry_run)


@params.command()
def apply(
    file: Annotated[Path, argument("a YAML file of parameters by section, like the files in profiles/")],
    reason: ChangeReason,
    by: By = None,
    dry_run: DryRun = False,
) -> None:
    """Set all parameters that a file lists on the corpus branch, in one commit."""
    from pipelines.workspace import parameters

    _change(parameters.from_file(file), reason=reason, by=by, dry_run=dry_run)


def _change(values: Mapping[str, Any] | Mapping[Key, Any], *, reason: str, by: str | None, dry_run: bool) -> None:
    from pipelines.workspace import parameters

    if not reason.strip():
        raise BadParams(where="--reason", detail="is empty")
    settings = Settings.from_env()
    changed = parameters.change(settings, values, reason=reason, who=by or _who(), dry_run=dry_run)
    tell("set", changed.differences)
    below = f"; if their results differ, also {', '.join(changed.below)}" if changed.below else ""
    unread = "No stage reads it; it applies from the next collected month, annotation round or deletion sweep."
    told = f"Stages that run again: {', '.join(changed.stages)}{below}." if changed.stages else unread
    typer.echo(told if changed.differences else "Nothing differs.", err=True)
    if changed.commit:
        tell_airflow(settings)
    keys = [difference.key for difference in changed.differences]
    emit({"commit": changed.commit, "changed": keys, "to_run": changed.stages, "below": changed.below})


def tell(word: str, differences: Iterable[Difference]) -> None:
    """Print changed parameters on stderr, after a word such as ``set``."""
    for difference in differences:
        typer.echo(f"{word}: {difference}", err=True)


def _who() -> str:
    import subprocess

    def configured(name: str) -> str:
        done = subprocess.run(["git", "config", name], text=True, capture_output=True, check=False)
        return done.stdout.strip()

    name, address = configured("user.name") or getpass.getuser(), configured("user.email")
    return f"{name} <{address}>" if address else name


@app.command(rich_help_panel="Repository")
def upgrade(
    keep: Annotated[
        list[str] | None,
        option("a parameter's dotted name: if corpus and newer code both changed it, keep the corpus's value"),
    ] = None,
    take: Annotated[
        list[str] | None,
        option("a parameter's dotted name: if corpus and newer code both changed it, take the code's value"),
    ] = None,
) -> None:
    """Upgrade the corpus branch to this checkout's HEAD: merge the code, and params.yaml parameter by parameter."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    upgraded = repository.upgrade(settings, checkout=Path.cwd(), keep=keep or (), take=take or ())
    tell_airflow(settings)
    if lacking := repository.without_ethics(settings):
        # a deployment of an earlier release has none on record, and refuses to read until it has
        typer.echo("Before the next month, state the ethics approval of each source that is read:", err=True)
        for name in lacking:
            typer.echo(f'  corpus params set sources.{name}.ethics "BOARD, REFERENCE" --reason …', err=True)
    if upgraded is None:
        emit({"commit": None})
        return
    keys = {}
    words = {"kept": "kept, set by a person", "protected": "kept, an upgrade never changes approvals and budgets"}
    for name in ("changed", "kept", "protected"):
        differences = getattr(upgraded.params, name)
        tell(words.get(name, name), differences)
        keys[f"params_{name}"] = [difference.key for difference in differences]
    emit({"commit": upgraded.commit, "kept": len(upgraded.kept), "to_run": upgraded.to_run, **keys})


@app.command(rich_help_panel="Repository")
def trust(
    commit: Annotated[str, argument("the commit of the corpus repository to sign")], who: Person, why: Reason
) -> None:
    """Sign a commit of the corpus repository as trusted; tasks run its code, which can read the project secret."""
    from pipelines.workspace import trust as signatures
    from pipelines.workspace.clone import workspace

    settings = Settings.from_env()
    with workspace(settings, revision=commit, signed=False) as opened:
        emit({"tag": signatures.sign(settings, opened.head, who=who, why=why, cwd=opened.path)})


@app.command(rich_help_panel="Repository")
def clone(
    folder: Annotated[Path, argument("the folder to clone to, which must be new or empty")],
    revision: Annotated[
        str | None, option("check out this older commit of the corpus, without records that were deleted since")
    ] = None,
) -> None:
    """Clone the corpus to a folder, ready for `dvc pull` and `dvc repro`."""
    from pipelines.workspace import repository

    settings = Settings.from_env()
    empty_folder(folder, name="FOLDER")
    with doing("cloning"):
        repository.clone(settings, folder=folder)
    if revision:
        from pipelines.takedown.rewrite import check_out_version

        try:
            check_out_version(folder, revision=revision, settings=settings)
        except CorpusError:
            shutil.rmtree(folder)
            raise
    typer.echo(f"cd {folder} && dvc pull --allow-missing  # then `dvc repro quality@CORPUS`, or another stage")
