"""Define the commands of the sandbox: an offline Reddit with ground truth, and a local deployment around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.shared import emit
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams

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
    from crisis_corpus_sandbox.reddit.build import build as draw

    settings = Settings.from_env()
    emit(draw(settings.sandbox, sandbox=_sandbox(profile, settings=settings)))


@app.command("serve")
def serve(profile: Profile = "sandbox") -> None:
    """Serve the simulated Reddit on loopback: its API, Arctic Shift, images and three LLM vendors."""
    from crisis_corpus_sandbox import server

    settings = Settings.from_env()
    server.serve(settings.sandbox, port=_sandbox(profile, settings=settings).port)


@app.command("up")
def up(profile: Profile = "sandbox") -> None:
    """Start the simulated Reddit, MLflow and Airflow's four components on loopback, in the background."""
    from pipelines.operate.services import services

    settings = Settings.from_env()
    port = _sandbox(profile, settings=settings).port
    deployment = services.LocalDeployment(settings, root=Path.cwd(), profile=profile, sandbox_port=port)
    deployment.up(say=typer.echo)
    typer.echo(f"users and passwords of Airflow and MLflow: {deployment.passwords}")


@app.command("down")
def down() -> None:
    """Stop the services that `corpus sandbox up` started."""
    from pipelines.core import components

    for name in components.down(Settings.from_env()):
        typer.echo(f"stopped {name}")


@app.command("demo")
def demo(profile: Profile = "sandbox") -> None:
    """Generate a simulated Reddit, start it with MLflow and Airflow, backfill two months, and print the counts."""
    from crisis_corpus_sandbox import demo as whole

    settings = Settings.from_env()
    whole.run(settings, root=Path.cwd(), profile=profile, sandbox=_sandbox(profile, settings=settings))


def _sandbox(profile: str, *, settings: Settings) -> Sandbox:
    sandbox = load(profile=profile).sandbox
    if sandbox is None:
        raise BadParams(where=f"profiles/{profile}.yaml", detail="has no section sandbox")
    return sandbox.model_copy(update={"port": settings.sandbox_port or sandbox.port})
