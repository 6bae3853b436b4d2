"""Read the figures that the papers print, and their discrepancies, from YAML files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def printed(name: str) -> Any:
    """Return the content of ``<name>.yaml``: the figures in a paper's tables, or a list of discrepancies."""
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
