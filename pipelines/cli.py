"""``corpus``: one command a step, in the order of the house; every step is also ``python -m pipelines <step>``.

Steps print one JSON line of counts and digests as their last line. Modules are imported when their command runs.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.errors import ConfigError, CorpusError, StepFailed
from pipelines.params import Sandbox, Settings, load

if TYPE_CHECKING:
    from pipelines.privacy.vault import Vault

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
sandbox_app = typer.Typer(no_args_is_help=True, help="An offline Reddit with its truth beside it.")
task_app = typer.Typer(no_args_is_help=True, help="What an Airflow task runs: a step or a stage in a clone of its own.")
app.add_typer(sandbox_app, name="sandbox", rich_help_panel="Sandbox")
app.add_typer(task_app, name="task", rich_help_panel="For Airflow")

CorpusName = Annotated[str, typer.Argument(help="memes")]
Month = Annotated[str, typer.Option(help="the partition, YYYY-MM")]


class NotInRunCache(ConfigError):
    """A replay met a stage whose result is not there."""

    message = "Stage '{stage}' is not in the run-cache, and a publish never runs anything."
    remedy = "Clear the stage's own task in Airflow (or run `dvc repro` in a clone and push with --run-cache)."


def _emit(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _vault(settings: Settings) -> Vault:
    from pipelines.privacy.vault import Vault

    return Vault.open(settings.vault_url, secret=settings.secret())


def _now() -> datetime:
    return datetime.now(UTC)


# -- the repository -------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Repository")
def init(profile: Annotated[str | None, typer.Option(help="a file of profiles/, such as sandbox")] = None) -> None:
    """Make the corpus repository on top of this checkout's HEAD; nothing happens where it exists."""
    from pipelines.store import repository

    _emit({"commit": repository.init(Settings.from_env(), checkout=Path.cwd(), profile=profile)})


@app.command(rich_help_panel="Repository")
def upgrade() -> None:
    """Merge this checkout's HEAD into the corpus branch."""
    from pipelines.store import repository

    _emit({"commit": repository.upgrade(Settings.from_env(), checkout=Path.cwd())})


@app.command(rich_help_panel="Repository")
def clone(folder: Path) -> None:
    """Clone the corpus for yourself: then `dvc pull`, `dvc repro` as on any laptop."""
    from pipelines.store import repository

    repository.clone(Settings.from_env(), folder=folder)
    typer.echo(f"cd {folder} && dvc pull && dvc repro")


@app.command(rich_help_panel="Repository")
def track(corpus: CorpusName) -> None:
    """Log the numbers of the last publish to MLflow, beside the commit they belong to."""
    from pipelines import status as numbers

    _emit(numbers.track(Settings.from_env(), corpus=corpus))


@app.command(rich_help_panel="Repository")
def status(as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False) -> None:
    """Show the numbers of the last publish."""
    from pipelines import status as numbers

    gathered = numbers.gather(Settings.from_env())
    if as_json:
        _emit(gathered)
    else:
        numbers.show(gathered)


# -- collect --------------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Collect")
def collect(corpus: CorpusName, month: Month) -> None:
    """Scan the source for one month; scrub and seal its submissions."""
    from pipelines.collect import collect as step
    from pipelines.collect.window import Window

    settings = Settings.from_env()
    with _vault(settings) as vault:
        _emit(
            step.run(corpus, window=Window.from_key(month), params=load(), settings=settings, vault=vault, now=_now())
        )


@app.command(rich_help_panel="Collect")
def images(corpus: CorpusName, month: Month, shard: int = 0) -> None:
    """Fetch, decode, read and fingerprint the pictures of one shard of a month."""
    from pipelines.collect import images as step
    from pipelines.collect.window import Window

    settings = Settings.from_env()
    with _vault(settings) as vault:
        _emit(
            step.run(
                corpus,
                window=Window.from_key(month),
                shard=shard,
                params=load(),
                vault=vault,
                contact=settings.contact,
                progress=step.report,
            )
        )


@app.command(rich_help_panel="Collect")
def partition(corpus: CorpusName, month: Month) -> None:
    """Join the shards of a month into its tables."""
    from pipelines.collect import partition as step
    from pipelines.collect.window import Window

    with _vault(Settings.from_env()) as vault:
        _emit(step.run(corpus, window=Window.from_key(month), vault=vault))


# -- curate: stages of dvc.yaml -------------------------------------------------------------------------------------


def _not_in_a_replay(stage: str) -> None:
    if os.environ.get("CORPUS_REPLAY"):
        raise NotInRunCache(stage=stage)


@app.command(rich_help_panel="Curate")
def dedupe(corpus: CorpusName) -> None:
    """Find near-duplicates by picture and caption; keep the earliest."""
    _not_in_a_replay("dedupe")
    from pipelines.curate import dedupe as stage

    with _vault(Settings.from_env()) as vault:
        _emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def sample(corpus: CorpusName) -> None:
    """Draw the seeded sample."""
    _not_in_a_replay("sample")
    from pipelines.curate import sample as stage

    with _vault(Settings.from_env()) as vault:
        _emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def split(corpus: CorpusName) -> None:
    """Split into train, validation and test; nothing straddles, nothing moves."""
    _not_in_a_replay("split")
    from pipelines.curate import split as stage

    with _vault(Settings.from_env()) as vault:
        _emit(stage.run(corpus, params=load(), vault=vault))


@app.command(rich_help_panel="Curate")
def score(corpus: CorpusName) -> None:
    """Count the snapshot, and compare it with the truth where one exists."""
    _not_in_a_replay("score")
    from pipelines.curate import score as stage

    settings = Settings.from_env()
    with _vault(settings) as vault:
        _emit(stage.run(corpus, params=load(), settings=settings, vault=vault))


# -- sandbox --------------------------------------------------------------------------------------------------------


@sandbox_app.command("build")
def sandbox_build(
    profile: str = "sandbox",
    scale: Annotated[int | None, typer.Option(help="instead: one text-only dump of this many rows")] = None,
) -> None:
    """Draw the offline Reddit under CORPUS_HOME/sandbox."""
    from pipelines.sandbox.build import build

    settings = Settings.from_env()
    _emit(build(settings.sandbox, sandbox=_sandbox(profile, settings=settings), scale=scale))


@sandbox_app.command("serve")
def sandbox_serve(profile: str = "sandbox") -> None:
    """Serve it on loopback: Reddit's OAuth API, Arctic Shift, images."""
    from pipelines.sandbox.server import serve

    settings = Settings.from_env()
    serve(settings.sandbox, port=_sandbox(profile, settings=settings).port)


@sandbox_app.command("up")
def sandbox_up(profile: str = "sandbox") -> None:
    """Start the sandbox's server, MLflow and Airflow's four components on loopback, each with its pid file."""
    from pipelines.sandbox import services

    settings = Settings.from_env()
    port = _sandbox(profile, settings=settings).port
    services.Deployment(settings, root=Path.cwd(), profile=profile, sandbox_port=port).up(say=typer.echo)


@sandbox_app.command("down")
def sandbox_down() -> None:
    """Stop what `up` started."""
    from pipelines.sandbox import services

    for name in services.down(Settings.from_env()):
        typer.echo(f"stopped {name}")


@sandbox_app.command("demo")
def sandbox_demo(profile: str = "sandbox") -> None:
    """Build, start, backfill two months, follow the runs, and print what came out."""
    from pipelines.sandbox import demo

    settings = Settings.from_env()
    demo.run(settings, root=Path.cwd(), profile=profile, sandbox=_sandbox(profile, settings=settings))


def _sandbox(profile: str, *, settings: Settings) -> Sandbox:
    sandbox = load(profile=profile).sandbox
    if sandbox is None:
        raise ConfigError(detail=f"Profile {profile} has no section sandbox.")
    return sandbox.model_copy(update={"port": settings.sandbox_port or sandbox.port})


# -- what an Airflow task runs --------------------------------------------------------------------------------------


Pointers = Annotated[str, typer.Option(help="JSON: data file -> text of its .dvc file")]


@task_app.command("step", context_settings={"ignore_unknown_options": True})
def task_step(
    argv: list[str], pointers: Pointers = "{}", out: Annotated[list[str] | None, typer.Option()] = None
) -> None:
    """Run a step in a clone of its own; hand over pointers to what it wrote under the --out globs."""
    from pipelines.store.workspace import workspace

    _die_with_parent()
    with workspace(Settings.from_env()) as clone:
        clone.place(json.loads(pointers))
        result = json.loads(clone.step(*argv))
        written = [path for pattern in out or [] for path in clone.path.glob(pattern) if path.is_file()]
        _emit({"result": result, "pointers": clone.add(written)})


@task_app.command("pin")
def task_pin() -> None:
    """Answer the tip of the corpus branch: all stages of one run work on the same commit."""
    from pipelines.store.publish import head

    _emit({"commit": head(Settings.from_env())})


@task_app.command("stage")
def task_stage(stage: str, base: Annotated[str, typer.Option(help="the commit to work on")]) -> None:
    """Reproduce one stage of dvc.yaml in a clone of its own and push its result."""
    from pipelines.store.workspace import workspace

    _die_with_parent()
    with workspace(Settings.from_env(), revision=base) as clone:
        clone.repro(stage)
        _emit({"stage": stage, "base": clone.head})


@task_app.command("publish-partition")
def task_publish_partition(corpus: CorpusName, month: Month, pointers: Pointers) -> None:
    """Commit a month's pointers."""
    from pipelines.store.publish import publish_partition

    _die_with_parent()
    _emit(publish_partition(Settings.from_env(), corpus=corpus, month=month, pointers=json.loads(pointers)))


@task_app.command("publish-snapshot")
def task_publish_snapshot(
    corpus: CorpusName, targets: list[str], base: Annotated[str, typer.Option(help="the commit the stages worked on")]
) -> None:
    """Commit dvc.lock, replayed from the run-cache."""
    from pipelines.curate import split as stage
    from pipelines.store.publish import publish_snapshot

    def remember(root: Path) -> None:
        with _vault(settings) as vault:
            stage.remember(corpus, params=load(root), vault=vault, now=_now(), root=root)

    _die_with_parent()
    settings = Settings.from_env()
    _emit(publish_snapshot(settings, corpus=corpus, targets=targets, base=base, remember=remember))


def _die_with_parent() -> None:
    """Ask Linux to end this process when the Airflow worker that started it dies."""
    if sys.platform == "linux":
        import ctypes
        import signal

        pr_set_pdeathsig = 1

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGTERM)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def main() -> None:
    """Run a command; an expected error is one line on stderr and its own exit status."""
    try:
        app()
    except CorpusError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        _emit({"error": type(error).__name__, "retry_after": error.fields.get("retry_after")})
        sys.exit(_exit_code(error))


def _exit_code(error: CorpusError) -> int:
    """A failed step's own exit status is passed on; a step that was killed may be tried again."""
    if isinstance(error, StepFailed):
        return error.fields["returncode"] if error.fields["returncode"] > 0 else 75
    return error.exit_code
