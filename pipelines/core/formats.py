"""State and check the version of what a deployment keeps beyond one run; ``formats.toml`` lists all formats."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from crisis_corpus.formats import require

# A file of every corpus, which states the format of its layout.
ROWS = "rows.yaml"
STATED = re.compile(rb"^format: (\d+)$", re.MULTILINE)


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


def require_corpus(root: Path) -> None:
    """Refuse a clone of a corpus whose layout this release does not read."""
    if (root / ROWS).is_file():
        # a line, because reading all rows takes seconds
        stated = STATED.search((root / ROWS).read_bytes())
        require(int(stated[1]) if stated else None, name="corpus", known=version("corpus"))
