"""Define the commands that add the Dags to an existing Airflow."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import argument, group, option
from pipelines.cli.shared import doing, emit, project_root
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings, with_secret
from pipelines.core.errors import BadParams

if TYPE_CHECKING:
    from pipelines.operate.services.airflow_api import Airflow

app = typer.Typer()
airflow = group("Prepare an existing Airflow for this corpus, and run its Dags.")
app.add_typer(airflow, name="airflow", rich_help_panel="Repository")


@airflow.command("setup")
def setup(
    profile: Annotated[
        str | None, option("the profile whose providers get pools: a file in profiles/ without .yaml")
    ] = None,
    dry_run: Annotated[
        bool, option("print the pools and connections that would be created or set; change nothing", "--dry-run")
    ] = False,
    reset_slots: Annotated[bool, option("also reset the number of slots of existing pools", "--reset-slots")] = False,
) -> None:
    """Create the pools and connections that the Dags need, through the API of Airflow at CORPUS_AIRFLOW_URL."""
    from pipelines.operate.services import airflow_setup

    folder = project_root()
    providers = load(folder, profile=profile or os.environ.get("CORPUS_PROFILE") or None).providers
    airflow = _connect()
    for line in airflow_setup.setup(
        airflow, root=folder, providers=providers, environment=with_secret(), dry_run=dry_run, reset=reset_slots
    ):
        typer.echo(line)


@airflow.command("trigger")
def trigger(
    dag: Annotated[str, argument("the Dag's id, such as forum_collect, with or without CORPUS_AIRFLOW_PREFIX", "DAG")],
    partition_key: Annotated[
        str | None, option("the partition key: YYYY-MM for a Dag of one month, snapshot for a Dag of all months")
    ] = None,
    wait: Annotated[bool, option("unpause the Dag, and wait until the run has succeeded", "--wait")] = False,
) -> None:
    """Start a run of a Dag for a partition key (such as a month), through the API of Airflow at CORPUS_AIRFLOW_URL."""
    from pipelines.operate.services import airflow_setup

    airflow = _connect()
    dag_id, run = airflow_setup.trigger(airflow, dag, key=partition_key)
    if wait:
        with doing(f"running {dag_id}"):
            airflow_setup.wait(airflow, dag_id, run)
    emit({"dag": dag_id, "run": run})


@airflow.command("path")
def path() -> None:
    """Print the folders of the Dags and of the plugin, and the variables by which Airflow 3 finds them."""
    dags, plugins = project_root() / "dags", project_root() / "plugins"
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "dags-folder", "classpath": local, "kwargs": {}},
        {"name": "crisis-corpus", "classpath": local, "kwargs": {"path": str(dags), "refresh_interval": 300}},
    ]
    typer.echo(f"Dags:   {dags}")
    typer.echo(f"plugin: {plugins}")
    typer.echo("\nEnvironment of every component of Airflow (dags-folder keeps the Dags that you have):")
    typer.echo(f"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST='{json.dumps(bundles)}'")
    typer.echo(f"PYTHONPATH={plugins}")
    typer.echo(f"CORPUS_ROOT={project_root()}")


@airflow.command("refresh")
def refresh() -> None:
    """Write the graph of the corpus branch's stages to CORPUS_HOME, and make Airflow generate the Dags from it."""
    from pipelines.workspace import dag_graph
    from pipelines.workspace.clone import require_corpus

    settings = Settings.from_env()
    require_corpus(settings)
    changed = dag_graph.refresh(settings)
    typer.echo("The graph has changed." if changed else "The graph is unchanged.")
    tell_airflow(settings)


def tell_airflow(settings: Settings) -> None:
    """Ask Airflow to parse the Dags again, and print on stderr when the changed Dags take effect."""
    from pipelines.operate.services.airflow_setup import parse_again

    parsed = parse_again(settings.home, root=project_root(), environment=os.environ)
    unreached = "No Airflow was reached: the Dags change when the host of this CORPUS_HOME next parses them."
    typer.echo(f"Airflow parses {parsed} Dags again." if parsed else unreached, err=True)


def _connect() -> Airflow:
    from pipelines.operate.services.airflow_setup import address, connect

    home = Settings.from_env().home
    if url := address(home):
        return connect(url, environment=os.environ, home=home)
    detail = "is not set; `corpus up` starts an Airflow here, and the variable names another one's API server"
    raise BadParams(where="CORPUS_AIRFLOW_URL", detail=detail)
