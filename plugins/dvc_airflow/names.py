"""Name Dags, pools, assets and tags with the prefix CORPUS_AIRFLOW_PREFIX, which only this module adds."""

from __future__ import annotations

import re
from typing import Any

from airflow.sdk import Asset, AssetAlias

from dvc_airflow import settings

# The Dags of one corpus, after the corpus's name.
OF_CORPUS = ("collect", "refresh", "dataset", "label", "finetune", "benchmark", "scoring")
# Where a docstring names a Dag as a heading or as the argument of a command.
MENTION = re.compile(r"(^### |dags trigger |--dag-id )(?=\w)", re.MULTILINE)


def named(name: str) -> str:
    """Return the name of a Dag, a pool, an asset or a tag with this deployment's prefix."""
    return settings.PREFIX + name


def asset(name: str) -> Any:
    """Return the Airflow asset with this name, such as ``memes/dataset``, and the deployment's prefix."""
    return Asset(named(name))


def alias(name: str) -> Any:
    """Return the Airflow asset alias with this name, such as ``gold``, and the deployment's prefix."""
    return AssetAlias(named(name))


def mentioned(doc: str) -> str:
    """Return a Dag's documentation with the deployment's prefix before the names of Dags."""
    return MENTION.sub(lambda match: match[0] + settings.PREFIX, doc)


def description(doc: str) -> str:
    """Return the first sentence of a Dag's documentation, up to its first colon, without markup."""
    text = re.sub(r"^### .*", "", doc.strip()).strip().partition("\n\n")[0]
    return re.split(r"[:.;](?:\s|$)", re.sub(r"[*`]", "", " ".join(text.split())), maxsplit=1)[0]
