"""Prepare an existing Airflow through its REST API: set pools and connections, have Dags parsed again, start runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path

import requests

from crisis_corpus.home import password_of
from pipelines.core.config.settings import ADMIN, provider_variable
from pipelines.core.errors import ConfigError
from pipelines.operate.services.airflow_api import Airflow, AirflowUnavailable, Login, named, prefix

# A person waits; `airflow_api.PATIENCE` is for a server that starts.
PATIENCE, SECONDS = 2.0, 8.0
Environment = Mapping[str, str]
# Which variable each field of each connection has, by connection.
Fields = Mapping[str, Mapping[str, str]]


def address(home: Path) -> str | None:
    """Return the configured address of Airflow's API, or the embedded server's, or ``None`` if there is neither."""
    base = os.environ.get("CORPUS_AIRFLOW_URL")
    return base.rstrip("/") if base else _embedded(home)


def _embedded(home: Path) -> str | None:
    try:
        return f"http://127.0.0.1:{int(json.loads((home / 'ports.json').read_text())['airflow'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def parse_again(home: Path, *, root: Path, environment: Environment) -> int | None:
    """Ask Airflow to parse the Dags of ``root`` now; return how many of them it knows, or ``None`` without Airflow."""
    base = address(home)
    try:
        if base is None:
            return None
        airflow = connect(base, environment=environment, home=home)
        return sum(airflow.parse(named(path.stem)) for path in (root / "dags").glob("*.py"))
    except (AirflowUnavailable, requests.RequestException):
        return None


def connect(url: str, *, environment: Environment, home: Path) -> Airflow:
    """Return a client with the credentials in ``CORPUS_AIRFLOW_*``, else those of the embedded Airflow."""
    names = ("TOKEN", "USER", "PASSWORD")
    token, user, password = (environment.get(f"CORPUS_AIRFLOW_{name}", "") for name in names)
    if not (token or user) and url == _embedded(home) and (password := password_of(home, ADMIN)):
        user = ADMIN
    with _answering(url):
        return Airflow(url, patience=PATIENCE, seconds=SECONDS, login=Login(token, user, password))


def setup(
    airflow: Airflow, *, root: Path, providers: Iterable[str], environment: Environment, dry_run: bool, reset: bool
) -> Iterator[str]:
    """Create missing Airflow pools, and set the connections whose variables have values; yield a line of text for each.

    A second call changes nothing further: a pool keeps the slots that a person gave it, and a connection is written
    again with the same values, because Airflow does not return passwords. ``reset`` sets the slots of existing pools.
    """
    with _answering(airflow.base):
        yield from _pools(airflow, root=root, providers=providers, dry_run=dry_run, reset=reset)
        fields = connections(root, providers=providers)
        yield from _connections(airflow, fields=fields, environment=environment, dry_run=dry_run)


def trigger(airflow: Airflow, dag: str, *, key: str | None) -> tuple[str, str]:
    """Start a run of a Dag, with a partition key if one is given; return the Dag's id and the run's id.

    `airflow dags trigger` of Airflow 3.3 takes no partition key. The name may include this deployment's prefix; a Dag
    whose own name begins with the prefix is found first.
    """
    with _answering(airflow.base):
        names = [named(dag), *([dag] if dag.startswith(prefix()) else ())]
        for dag_id in names:
            if airflow.find(f"/dags/{dag_id}"):
                return dag_id, airflow.trigger(dag_id, partition_key=key)
        listed = airflow.get("/dags", limit=100, dag_id_pattern=f"{prefix()}%")["dags"]
        known = ", ".join(sorted(entry["dag_id"] for entry in listed))
    raise ConfigError("UnknownName", kind="Dag", name=names[-1], known=known)


def wait(airflow: Airflow, dag_id: str, run: str) -> None:
    """Unpause a Dag, and wait for its run, however long it takes, to succeed."""
    # the tasks of the run keep the server busy
    patient = Airflow(airflow.base, login=airflow.login)
    with _answering(airflow.base):
        patient.unpause(dag_id)
        patient.finish(dag_id, run, within=inf)


def connections(root: Path, *, providers: Iterable[str]) -> Fields:
    """Return the environment variable for each field of each Airflow connection.

    Providers that ``profiles/connections.json`` does not list get a variable for the address and one for the key.
    """
    known: dict[str, dict[str, str]] = json.loads((root / "profiles" / "connections.json").read_text())
    for name in providers:
        variable = provider_variable(name)
        known.setdefault(name, {"host": f"{variable}_URL", "password": f"{variable}_KEY"})
    return known


def _pools(airflow: Airflow, *, root: Path, providers: Iterable[str], dry_run: bool, reset: bool) -> Iterator[str]:
    wanted = json.loads((root / "profiles" / "pools.json").read_text())
    for name in providers:
        wanted.setdefault(name, wanted["openai"])
    changed, would = {}, "would be " if dry_run else ""
    for name, pool in wanted.items():
        existing = airflow.find(f"/pools/{named(name)}")
        if existing is None:
            changed[named(name)] = pool
            yield f"pool {named(name)}: {would}created with {pool['slots']} slots"
        elif existing["slots"] == pool["slots"]:
            yield f"pool {named(name)}: unchanged"
        elif reset:
            changed[named(name)] = pool
            yield f"pool {named(name)}: {would}changed from {existing['slots']} to {pool['slots']} slots"
        else:
            yield f"pool {named(name)}: kept with {existing['slots']} slots; --reset-slots sets {pool['slots']}"
    if changed and not dry_run:
        airflow.set_pools(changed)


def _connections(airflow: Airflow, *, fields: Fields, environment: Environment, dry_run: bool) -> Iterator[str]:
    would = "would be " if dry_run else ""
    for name, variables in fields.items():
        conn_id = (prefix() or "corpus_") + name
        values = {field: environment[variable] for field, variable in variables.items() if environment.get(variable)}
        existing = airflow.find(f"/connections/{conn_id}")
        if not values:
            state = "exists" if existing else f"not created: {', '.join(variables.values())} not set"
            yield f"connection {conn_id}: {state}"
            continue
        if not dry_run:
            airflow.set_connections({conn_id: {"conn_type": "generic", "description": "Crisis Corpus", **values}})
        names = ", ".join(variables[field] for field in values)
        yield f"connection {conn_id}: {would}{'set again' if existing else 'created'} from {names}"


@contextmanager
def _answering(address: str) -> Iterator[None]:
    try:
        yield
    except (requests.RequestException, ValueError, KeyError) as error:
        # the text of an error may repeat the address with a password
        answer = getattr(error, "response", None)
        detail = "it does not answer as Airflow 3 does" if answer is None else f"it answered {answer.status_code}"
        raise AirflowUnavailable(address=address.rpartition("@")[2], detail=detail) from None
