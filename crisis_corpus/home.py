"""Find the services of a home (``CORPUS_HOME``) on this machine: its variables, and the address of its MLflow."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

from crisis_corpus.errors import BadParams

# In a home: variables that the environment need not have.
HOME_ENV = "corpus.env"
HOME_NAMES = re.compile(r"(?!CORPUS_HOME$|CORPUS_SECRET$)(CORPUS|MLFLOW|AWS)_[A-Z0-9_]+")
# In a home: the database of the embedded MLflow; its files are in the folder `mlflow`, to which this variable of MLflow
# leads where no server does.
MLFLOW_FILE, MLFLOW_ROOT = "mlflow.sqlite", "_MLFLOW_SERVER_ARTIFACT_ROOT"
# The user of the embedded MLflow.
TRACKING = "mlflow"


def of_home(home: Path) -> dict[str, str]:
    """Return the variables of ``corpus.env`` in the home; a line is NAME=value, quoted as in a shell, or a comment."""
    values, path = {}, home / HOME_ENV
    for number, line in enumerate(lines(path), start=1):
        name, equals, text = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        try:
            value, *more = shlex.split(text) or [""]
        except ValueError:
            more = [text]
        if more or not equals or not HOME_NAMES.fullmatch(name):
            detail = "needs NAME=value, with a name CORPUS_*, MLFLOW_* or AWS_* that is not the home's or the secret's"
            raise BadParams(where=f"{path} line {number}", detail=detail)
        values[name] = value
    return values


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none if there is no file."""
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadParams(where=str(path), detail=f"cannot be read ({type(error).__name__})") from None


def mlflow_address(home: Path) -> str | None:
    """Return ``MLFLOW_TRACKING_URI``, else the address of the embedded MLflow, or its database if that is not started.

    MLflow's clients read their login from the environment: that of the embedded server is set there.
    """
    try:
        ports = json.loads((home / "ports.json").read_bytes())
        embedded = f"http://127.0.0.1:{int(ports['mlflow'])}"
    except (OSError, ValueError, KeyError, TypeError):
        embedded = None
    uri = os.environ.get("MLFLOW_TRACKING_URI") or embedded
    if not uri and (home / MLFLOW_FILE).exists():
        uri = f"sqlite:///{home / MLFLOW_FILE}"
        os.environ.setdefault(MLFLOW_ROOT, str(home / "mlflow"))
    if uri and uri == embedded and (password := password_of(home, TRACKING)):
        os.environ |= {"MLFLOW_TRACKING_USERNAME": TRACKING, "MLFLOW_TRACKING_PASSWORD": password}
    return uri


def passwords_file(home: Path) -> Path:
    """Return the path of the file with the passwords by user, which the embedded Airflow reads, too."""
    return home / "run" / "passwords.json"


def password_of(home: Path, user: str) -> str:
    """Return the password of a user of the embedded services; empty if it is missing or may not be read."""
    try:
        return str(json.loads(passwords_file(home).read_text())[user])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
