"""Read a task's addresses and secrets from Airflow connections, where environment variables are not set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dvc_airflow import settings


def environment() -> dict[str, str]:
    """Return the environment variables that are not set and for which a connection of this Airflow has a value.

    The variables are only for the environment of a child process; Airflow masks the values in the task's log. Airflow
    also answers "not found" while its database does not answer, and a command without an address would use another
    database or skip a step. So connections that were not found are asked for again, after a request that fails then.
    """
    wanted = {
        name: unset
        for name, fields in _fields().items()
        if (unset := {field: variable for field, variable in fields.items() if not os.environ.get(variable)})
    }
    found, missing = _read(wanted)
    if missing and (task := _running_task()) is not None:
        task.get_dagrun_state(task.dag_id, task.run_id)
        found |= _read(missing)[0]
    return found


def _read(wanted: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    found: dict[str, str] = {}
    missing: dict[str, Mapping[str, str]] = {}
    for name, fields in wanted.items():
        connection = _connection(connection_id(name))
        if connection is None:
            missing[name] = fields
        found |= {variable: str(value) for f, variable in fields.items() if (value := getattr(connection, f, None))}
    return found, missing


def _running_task() -> Any:
    from airflow.sdk import get_current_context

    try:
        return get_current_context()["ti"]
    except RuntimeError:
        return None


def connection_id(name: str) -> str:
    """Return the id of an Airflow connection, such as ``corpus_reddit``; the prefix of Dags replaces ``corpus_``."""
    return (settings.PREFIX or "corpus_") + name


def _fields() -> dict[str, dict[str, str]]:
    """Return the variables by field by connection; a name that is not in the file is that of a provider."""
    if settings.CONNECTIONS == "":
        return {}
    known: dict[str, dict[str, str]] = json.loads((settings.ROOT / "profiles" / "connections.json").read_text())
    if settings.CONNECTIONS is None:
        return known
    return {name: known.get(name) or _provider(name) for name in settings.CONNECTIONS.replace(" ", "").split(",")}


def _provider(name: str) -> dict[str, str]:
    variable = f"CORPUS_{name.upper().replace('-', '_')}"
    return {"host": f"{variable}_URL", "password": f"{variable}_KEY"}


def _connection(conn_id: str) -> Any:
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException:
        return None
