"""Read a task's addresses and secrets from Airflow connections, where environment variables are not set."""

from __future__ import annotations

import json
import os
from typing import Any

from dvc_airflow import settings


def environment() -> dict[str, str]:
    """Return the environment variables that are not set and for which a connection of this Airflow has a value.

    The variables are only for the environment of a child process; Airflow masks the values in the task's log.
    """
    found: dict[str, str] = {}
    for name, fields in _fields().items():
        wanted = {field: variable for field, variable in fields.items() if not os.environ.get(variable)}
        connection = _connection(connection_id(name)) if wanted else None
        for field, variable in wanted.items():
            if value := getattr(connection, field, None):
                found[variable] = str(value)
    return found


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
