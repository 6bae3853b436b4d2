"""Open what commands work with, print what they return, ask before something is destroyed, and tell who decides."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipelines.core.config.base import CORPORA
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.process import login

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pipelines.metrics.label_tables import Sheet
    from pipelines.registry import candidate
    from pipelines.store.stage import Context
    from pipelines.store.vault.vault import Vault

# The distributions that may add commands, and components of a deployment.
EXTENSIONS = ("crisis-corpus-sandbox",)
# A server that takes longer to answer is treated as down.
PROBE_SECONDS = 5.0


def project_root() -> Path:
    """Return the folder with dags/ and dvc.yaml: ``CORPUS_ROOT``, else this checkout, else the wheel's copy."""
    if root := os.environ.get("CORPUS_ROOT"):
        return Path(root).resolve()
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "dvc.yaml").is_file() else Path(sysconfig.get_path("data")) / "share/crisis-corpus"


def own_corpora() -> list[str]:
    """Return the names of the corpora that folders of the checkout declare."""
    return sorted(path.parent.name for path in (project_root() / CORPORA).glob("*/profile.yaml"))


def unknown_corpus(name: str) -> ConfigError:
    """Return the refusal of a corpus that neither a folder nor the home has."""
    known = ", ".join(own_corpora()) or "none (`corpus new NAME` declares one)"
    return ConfigError("UnknownName", kind="corpus", name=name, known=known)


def entry_points(group: str) -> Iterator[EntryPoint]:
    """Yield what the installed distributions of :data:`EXTENSIONS` offer in a group of entry points."""
    from importlib.metadata import PackageNotFoundError, distribution

    for name in EXTENSIONS:
        with suppress(PackageNotFoundError):
            yield from distribution(name).entry_points.select(group=group)


def emit(value: Any) -> None:
    """Print ``value`` (counts and digests only) as one line of JSON, the last line of a step's output."""
    sys.stdout.write(json.dumps(value) + "\n")


def show(value: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print ``value`` as one JSON object, or the lines that describe it to a person."""
    if as_json:
        emit(value)
    else:
        typer.echo("\n".join(lines))


def say(part: str) -> None:
    """Print on stderr that a part of a long command is done."""
    typer.echo(f"{part} …", err=True)


def show_sheets(sheets: Sequence[Sheet], *, as_json: bool, note: str = "") -> None:
    """Print tables, fitted to the terminal and followed by a note, or print them as one JSON object."""
    if as_json:
        emit({"tables": [{"title": s.title, "columns": s.columns, "rows": s.rows} for s in sheets]})
        return
    from rich.console import Console

    console = Console()
    for sheet in sheets:
        console.print(*sheet.parts(console.width), "", sep="\n")
    if note:
        console.print(note)


def run_step(run: Callable[..., Any], corpus: str, *, needs_settings: bool = True, **arguments: Any) -> None:
    """Run a step on a corpus with parameters, vault and, if needed, settings; print what it returns as JSON."""
    with opened() as (settings, vault):
        arguments |= {"settings": settings} if needs_settings else {}
        emit(run(corpus, params=load(), vault=vault, **arguments))


@contextmanager
def context(corpus: str, *, row: str = "") -> Iterator[Context]:
    """Yield what a stage of a corpus runs with, here; the vault is opened when it is needed."""
    from pipelines.store.stage import Context

    settings = Settings.from_env()
    with ExitStack() as stack:
        yield Context(corpus, load(), settings, cache(lambda: stack.enter_context(open_vault(settings))), row=row)


def open_vault(settings: Settings) -> Vault:
    """Open the existing vault; only `corpus init` creates a vault."""
    from pipelines.store.vault.vault import Vault

    return Vault.existing(settings)


@contextmanager
def opened() -> Iterator[tuple[Settings, Vault]]:
    """Yield the settings of the environment and the existing vault."""
    settings = Settings.from_env()
    with open_vault(settings) as vault:
        yield settings, vault


def confirm(what: str, *, count: int, yes: bool) -> None:
    """Print what a command destroys, such as "destroys 2 keys"; without ``--yes``, ask a person to type the count."""
    if not yes and not sys.stdin.isatty():
        raise ConfigError("NotConfirmed", what=what)
    typer.echo(f"This {what}.", err=True)
    if not yes and typer.prompt(f"Type {count} to continue", err=True).strip() != str(count):
        raise ConfigError("NotConfirmed", what=what)


def empty_folder(folder: Path, *, name: str) -> None:
    """Refuse a folder to write to that contains something, or is a file; ``name``: the argument."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} exists already; name a new or empty folder", param_hint=f"'{name}'")


def records(count: int) -> str:
    """Return a number of records as text, such as "2 records"."""
    return "1 record" if count == 1 else f"{count:,} records"


def require_mlflow(settings: Settings) -> None:
    """Check that the MLflow server answers, because MLflow's client would repeat its request for minutes."""
    import urllib.error
    import urllib.request

    address = settings.mlflow_tracking_uri or ""
    if not address.startswith(("http://", "https://")):
        return
    try:
        urllib.request.urlopen(address, timeout=PROBE_SECONDS).close()  # noqa: S310 - its scheme is checked
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        from crisis_corpus.versions import RegistryUnavailable

        cause = getattr(error, "reason", error)
        raise RegistryUnavailable(detail=f"no answer from {address} ({type(cause).__name__})") from None


@contextmanager
def open_registry(settings: Settings, **options: Any) -> Iterator[candidate.Context]:
    """Yield a clone of the corpus with registry, journal and vault; create nothing if a service is down."""
    from pipelines.registry import transitions
    from pipelines.registry.candidate import opened
    from pipelines.registry.versions import Registry
    from pipelines.workspace.clone import require_corpus

    require_corpus(settings)
    Registry.open(settings)
    require_mlflow(settings)
    with (
        open_vault(settings) as vault,
        doing("working on a clone of the corpus"),
        opened(settings, vault=vault, **options) as context,
    ):
        # here and not for takedowns: an altered journal must not stop a deletion
        transitions.check_anchors(context.journal, settings=settings, cwd=context.root)
        yield context


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Show a spinner with the elapsed time on a terminal while a command of unknown length runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(f"{what} …"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("", total=None)
        yield


def _not_empty(value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise typer.BadParameter("it is empty")
    return value


def _person(value: str | None) -> str | None:
    return value if _not_empty(value) is None else f"{value} ({login()})"


@dataclass(frozen=True)
class Decider:
    """The person who decides and their reason.

    ``asked_by``: the user who started the Airflow run that asked for the decision, empty if unknown; ``None`` for a
    decision on the command line.
    """

    who: str
    why: str
    asked_by: str | None = None

    @classmethod
    def from_options(
        cls, who: str | None, why: str | None, *, approval: str | None, run: str, subject: str, yes: bool = True
    ) -> Decider:
        """Return person and reason from ``approval``, the token of a decision in Airflow, else ``who`` and ``why``."""
        if approval is not None:
            from pipelines.registry.journal import ApprovalRecord

            text, secret = sys.stdin.read() if approval == "-" else approval, Settings.from_env().secret()
            approved = ApprovalRecord.verified(text, secret, run=run, subject=subject, yes=yes)
            return cls(approved.who, approved.why, approved.asked_by or "")
        return cls(*decided(who, why))


def decided(who: str | None, why: str | None) -> tuple[str, str]:
    """Return the person and the reason of a decision on the command line; both options are required."""
    for name, value in {"--who": who, "--why": why}.items():
        if value is None:
            raise typer.BadParameter("is missing", param_hint=f"'{name}'")
    return str(who), str(why)
