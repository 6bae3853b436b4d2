"""Generate and read the passwords of the embedded Airflow and MLflow."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from pipelines.core.process import create_private

# The administrator of Airflow, a user of Airflow who may answer questions of tasks, and the user of MLflow.
ADMIN, APPROVER, TRACKING = "admin", "approver", "mlflow"


def passwords_file(home: Path) -> Path:
    """Return the path of the file with the passwords by user, which the embedded Airflow reads, too."""
    return home / "run" / "passwords.json"


def create(home: Path) -> Path:
    """Write the file of the embedded services' passwords (mode 600) unless it exists, and return its path."""
    path = passwords_file(home)
    create_private(path, json.dumps({user: secrets.token_urlsafe(24) for user in (ADMIN, APPROVER, TRACKING)}) + "\n")
    return path


def password(home: Path, user: str) -> str:
    """Return the password of a user of the embedded services; empty if it is missing or may not be read."""
    try:
        return str(json.loads(passwords_file(home).read_text())[user])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
