"""Read the settings of this Airflow plugin from environment variables, each with a fallback, and name what it makes.

Only this module adds the prefix CORPUS_AIRFLOW_PREFIX to the names of Dags, pools, assets and tags.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAlias


def _hours(variable: str, default: float) -> float:
    text = os.environ.get(variable) or str(default)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{variable} needs a number of hours, such as {default:.0f}; 0 means no deadline.") from None


ROOT = Path(os.environ.get("CORPUS_ROOT", Path(__file__).resolve().parents[2]))
"""The project's checkout: the working directory of commands, with ``dvc.yaml``."""

PYTHON = os.environ.get("CORPUS_PYTHON", sys.executable)
"""The interpreter with the pipelines installed; Airflow's own environment then needs no torch."""

PROFILE = os.environ.get("CORPUS_PROFILE") or None
"""The profile whose parameters shape the graph (matrix entries and the like)."""

HOME = Path(os.environ.get("CORPUS_HOME", ROOT / "var"))
"""The folder of all data and state."""

PREFIX = os.environ.get("CORPUS_AIRFLOW_PREFIX", "")
"""The start of the names of all Dags, pools, assets and tags, for an Airflow that also runs other projects."""

TASKS = os.environ.get("CORPUS_AIRFLOW_TASKS", "")
"""Pools, queues and limits of this deployment's tasks: the path of a YAML file, or JSON."""

NOTIFY = os.environ.get("CORPUS_AIRFLOW_NOTIFY", "")
"""What is called for a failed or late run: the path of a callable or notifier class, or JSON with path and kwargs."""

BACKUP = os.environ.get("CORPUS_VAULT_BACKUP", "")
"""The folder of the backups; without it the Dag ``backup`` does nothing."""

CONNECTIONS = os.environ.get("CORPUS_AIRFLOW_CONNECTIONS")
"""The connections that tasks read, separated by commas; default: all of ``profiles/connections.json``."""

SWEEP_HOURS = _hours("CORPUS_AIRFLOW_SWEEP_HOURS", 20)
"""Hours after which a deletion sweep that has not ended is late; 0: never. The default is before the next sweep."""

MONTH_HOURS = _hours("CORPUS_AIRFLOW_MONTH_HOURS", 168)
"""Hours after which a month that has not been collected is late; 0: never. A run of a backfill waits in the queue."""

if not re.fullmatch(r"[\w.-]*", PREFIX, re.ASCII):
    raise ValueError("CORPUS_AIRFLOW_PREFIX may only contain letters, digits, '_', '-' and '.', such as 'crisis_'.")


# The Dags of one corpus, after the corpus's name.
OF_CORPUS = ("collect", "refresh", "dataset", "label", "benchmark", "scoring")
# Where a docstring names a Dag as a heading or as the argument of a command.
MENTION = re.compile(r"(^### |dags trigger |--dag-id )(?=\w)", re.MULTILINE)


def named(name: str) -> str:
    """Return the name of a Dag, a pool, an asset or a tag with this deployment's prefix."""
    return PREFIX + name


def asset(name: str) -> Any:
    """Return the Airflow asset with this name, such as ``memes/dataset``, and the deployment's prefix."""
    return Asset(named(name))


def alias(name: str) -> Any:
    """Return the Airflow asset alias with this name, such as ``gold``, and the deployment's prefix."""
    return AssetAlias(named(name))


def mentioned(doc: str) -> str:
    """Return a Dag's documentation with the deployment's prefix before the names of Dags."""
    return MENTION.sub(lambda match: match[0] + PREFIX, doc)


def description(doc: str) -> str:
    """Return the first sentence of a Dag's documentation, up to its first colon, without markup."""
    text = re.sub(r"^### .*", "", doc.strip()).strip().partition("\n\n")[0]
    return re.split(r"[:.;](?:\s|$)", re.sub(r"[*`]", "", " ".join(text.split())), maxsplit=1)[0]
