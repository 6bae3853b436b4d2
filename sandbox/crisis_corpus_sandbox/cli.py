"""Define the commands of the sandbox: an offline Reddit with ground truth, and a local deployment around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import emit
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings

app = typer.Typer(
    name="sandbox",
    rich_help_panel="Sandbox",
    no_args_is_help=True,
    help="Generate and run a simulated Reddit with known labels, and a demo of the Dags on it.",
)

Profile = Annotated[
    str, typer.Option(help="the profile with the sandbox's settings: a file in profiles/ without .yaml")
]


@app.command("build")
def build(profile: Profile = "sandbox") -> None:
    """Generate a simulated Reddit in CORPUS_HOME/sandbox, for work without a network."""
    from crisis_corpus_sandbox.component import with_port
    from crisis_corpus_sandbox.reddit.build import build as draw

    settings = Settings.from_env()
    emit(draw(settings.sandbox, sandbox=with_port(load(profile=profile), settings)))


@app.command("serve")
def serve() -> None:
    """Serve the simulated Reddit on loopback: its API, Arctic Shift, images and three LLM vendors."""
    from crisis_corpus_sandbox import server
    from crisis_corpus_sandbox.reddit.build import drawn_port

    settings = Settings.from_env()
    server.serve(settings.sandbox, port=settings.sandbox_port or drawn_port(settings.sandbox) or 0)


@app.command("up")
def up(profile: Profile = "sandbox") -> None:
    """Start the simulated Reddit and the services of `corpus up` on loopback, in the background."""
    from crisis_corpus_sandbox.component import added
    from pipelines.cli.deployment import start

    settings = Settings.from_env()
    start(settings, root=Path.cwd(), profile=profile, added=added(settings, load(profile=profile)))


@app.command("demo")
def demo(
    profile: Profile = "sandbox",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="print a line for each task, not only for each Dag")
    ] = False,
) -> None:
    """Generate a simulated Reddit, start it with MLflow and Airflow, backfill two months, and print the results."""
    from crisis_corpus_sandbox import demo as whole

    settings = Settings.from_env()
    whole.run(settings, root=Path.cwd(), profile=profile, params=load(profile=profile), verbose=verbose)
