"""Find the address of Airflow's database, which Airflow 3 hides from the processes of tasks."""

from __future__ import annotations

import os

# Airflow's own option, and the variable by which a task's process gets the address.
OPTION, OURS = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "CORPUS_AIRFLOW_DATABASE_URL"
# What Airflow sets in the process of a task (``block_orm_access`` of its supervisor).
BLOCKED = "airflow-db-not-allowed:"


def address() -> str | None:
    """Return ``CORPUS_AIRFLOW_DATABASE_URL``, else the address in Airflow's option; ``None`` if neither has one."""
    found = os.environ.get(OURS) or os.environ.get(OPTION) or ""
    return found if found and not found.startswith(BLOCKED) else None
