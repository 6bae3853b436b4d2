"""Collect, label and model a corpus of crises on Reddit.

Stages and steps print counts and digests as one JSON object on their last line. Exit status: 64 bad argument, 65 bad
data, 69 source unavailable, 74 input or output, 75 try again later, 77 refused, 78 bad configuration,
79 waits for labels.
"""

from __future__ import annotations

import errno
import gc
import os
import sqlite3
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer._click.exceptions import NoArgsIsHelpError
from typer.core import TyperGroup
from typer.main import get_group

from pipelines.cli.options import STAGES, STEPS, AsJson, CorpusName, option
from pipelines.cli.shared import doing, emit, entry_points, require_mlflow
from pipelines.core.config.params import Params, checks
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, StepFailed
from pipelines.core.process import DIES_WITH_PARENT, die_with_parent, private_files, report
from pipelines.core.telemetry import sent

# New objects between two collections; with Python's 700, imports of torch and transformers spend a tenth collecting.
GC_THRESHOLD = 50_000
LAST = (STAGES, STEPS)
# The entry points by which extensions add commands.
COMMANDS = "crisis_corpus.commands"
# Faults of the machine or of a path that a person can correct; sysexits.h: 74, an error of input or output.
FORESEEN = {errno.EACCES, errno.EISDIR, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}
BAD_ARGUMENT, INPUT_OUTPUT = 64, 74
DISK_FULL = "A file system is full, or a disk fails. Stored data is intact: free some space, then repeat the command."


# Module -> its commands: a command imports no other module. `stages` has a command for each stage; one that another
# module has, such as `report`, takes the place of the stage's.
MODULES = {
    "stages": "",
    "new": "new",
    "init": "init",
    "repository": "params upgrade trust clone",
    "backup": "backup restore housekeeping vault",
    "collect": "collect refresh images texts partition shared-pictures scrub-score try compile",
    "annotate": "annotate import agreement-report round",
    "train": "label votes-report report errors",
    "registry": "register gate promote reject rollback withdraw registry subscribe deliver",
    "takedown": "access sweep retention takedown",
    "doctor": "doctor plan",
    "deployment": "up down",
    "run": "run",
    "release": "release export answers",
    "airflow": "airflow",
    "task": "task",
}
OWNER = {name: module for module, names in MODULES.items() for name in names.split()}


class UserCommandsFirst(TyperGroup):
    """A group of commands whose help lists those for people before those that DVC and Airflow run.

    Commands of extensions are imported for the help and for a name that is none of the package's own.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of this package or of an extension, or ``None``."""
        if cmd_name not in self.commands:
            self.commands.update(_commands(OWNER.get(cmd_name, "stages")))
        if cmd_name not in self.commands:
            self.commands.update(_extensions())
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of their panels."""
        for module in MODULES:
            self.commands.update(_commands(module))
        self.commands.update(_extensions())

        def rank(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return LAST.index(panel) + 1 if panel in LAST else 0

        return sorted(self.commands, key=rank)


def _commands(module: str) -> dict[str, Any]:
    """Return the commands of a module."""
    named = get_group(import_module(f"pipelines.cli.{module}").app).commands
    return {name: command for name, command in named.items() if OWNER.get(name, "stages") == module}


def _extensions() -> dict[str, TyperGroup]:
    return {entry.name: get_group(entry.load()) for entry in entry_points(COMMANDS)}


def _check_parts(params: Params) -> list[str]:
    from pipelines.cli.parts import check_parts

    return check_parts(params)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"crisis-corpus {version('crisis-corpus')}")
        raise typer.Exit


app = typer.Typer(cls=UserCommandsFirst, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


@app.callback()
def corpus(
    version: Annotated[bool, option("print the version", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Define the options of `corpus` itself."""
    checks.add(_check_parts)


@app.command(rich_help_panel="Repository")
def track(corpus: CorpusName) -> None:
    """Log the numbers of `corpus status` to MLflow, in one run for each commit of the corpus branch."""
    from pipelines.operate import status as numbers
    from pipelines.workspace.scratch import temporary_files

    settings = Settings.from_env()
    require_mlflow(settings)
    with temporary_files(settings.home):
        logged = numbers.track(settings, corpus=corpus)
    numbers.remember(settings, corpus=corpus, logged=logged)
    emit(logged)


@app.command(rich_help_panel="Repository")
def status(
    as_json: AsJson = False,
    write: Annotated[
        bool, option("write the summary that the Corpus page of Airflow reads, and print its time instead", "--write")
    ] = False,
) -> None:
    """Show how many items are collected, labelled and split, and the models' scores, at the newest commit."""
    from pipelines.operate import status as numbers

    if write:
        from pipelines.operate import summary

        emit({"written": summary.write(Settings.from_env())["written"]})
        return
    with doing("reading the corpus repository"):
        gathered = numbers.gather(Settings.from_env())
    if as_json:
        emit(gathered)
        return
    from rich.console import Console

    Console().print(numbers.table(gathered))


def main() -> None:
    """Run a command; print an expected error as one line on stderr and exit with the error's exit status."""
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    # progress bars for many small artifact files are noise
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    if os.environ.pop(DIES_WITH_PARENT, None):
        die_with_parent()
    status: int | None = None
    try:
        private_files()
        with sent():
            status = app(standalone_mode=False)
    except CorpusError as error:
        _fail(error.code, str(error), status=_exit_code(error), retry_after=error.fields.get("retry_after"))
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(BAD_ARGUMENT)
    except typer.TyperException as error:
        _fail("UsageError", _usage(error), status=BAD_ARGUMENT)
    except typer.Abort:
        _fail("Aborted", "The command was interrupted.", status=130)
    except ModuleNotFoundError:
        raise  # `run` names the extra that is not installed
    except Exception as error:
        if (message := _foreseen(error)) is None:
            report(error)
            sys.exit(1)
        _fail(type(error).__name__, message, status=INPUT_OUTPUT)
    if status:
        sys.exit(status)


def _foreseen(error: Exception) -> str | None:
    if isinstance(error, OSError) and error.errno in FORESEEN and error.filename:
        return f"{error.filename}: {error.strerror}."
    return DISK_FULL if disk_full(error) else None


def disk_full(error: BaseException | None) -> bool:
    """Tell whether an exception of a library was caused by a full file system, which SQLite may report as a fault."""
    while error is not None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF if isinstance(error, sqlite3.Error) else 0
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(name: str, message: str, *, status: int, retry_after: float | None = None) -> NoReturn:
    """Print an error as one line on stderr, and for programs as a JSON line on stdout; exit."""
    sys.stderr.write(f"{name}: {message}\n")
    if not sys.stdout.isatty():
        emit({"error": name, "retry_after": retry_after})
    sys.exit(status)


def _usage(error: typer.TyperException) -> str:
    # pydantic's name for a value that a function refuses
    """Return the message of a wrong argument as one line, and the command that explains it."""
    message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".?")
    context: typer.Context | None = getattr(error, "ctx", None)
    if context is None:
        return f"{message}."
    command = context.command_path.replace(context.find_root().info_name or "", "corpus", 1)
    return f"{message}; see `{command} --help`."


def _exit_code(error: CorpusError) -> int:
    """Return the exit status of an error: that of the failed step, or 75 (try later) if the step was killed."""
    if type(error) is StepFailed:
        returned = error.fields["returncode"]
        return returned if isinstance(returned, int) and returned > 0 else 75
    return error.exit_code
