"""Read the papers' printed figures and their discrepancies from YAML files; tell whose row a figure is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

# Weights of the sandbox, which stand in every row: its page says that they are tiny.
TINY = "tiny:"


@cache
def printed(name: str) -> Any:
    """Return the content of ``<name>.yaml``: the figures in a paper's tables, or a list of discrepancies."""
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))


def stands_for(paper: str, key: str, *, base: str | None) -> bool:
    """Return whether a model with the weights ``base`` is the one that a paper's row is about.

    A successor that a vendor serves today is another model: its figures never stand under the old row's name. Weights
    that are not known (``None``: predictions from outside) are taken at the word of their entry's name.
    """
    known = printed(paper)["weights"].get(key)
    return base is None or known is None or base in known or all(part.startswith(TINY) for part in base.split(" + "))
