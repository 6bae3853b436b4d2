"""State and check the version of what a deployment keeps beyond one run; ``formats.toml`` lists all formats."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from crisis_corpus.formats import require


@cache
def formats() -> dict[str, dict[str, Any]]:
    """Return version, content, place of the version, writers and readers of each format."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def version(name: str) -> int:
    """Return the version of a format that this code writes."""
    return int(formats()[name]["version"])


def stamped(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file with the version of its format."""
    return {"format": version(name), **values}


def opened(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file without the version of its format; ``UnknownFormat`` if this code cannot read it."""
    rest = dict(values)
    require(rest.pop("format", None), name=name, known=version(name))
    return rest
