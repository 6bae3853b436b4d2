"""Write the metrics of a stage in a form that gives the same bytes for the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_metrics(metrics: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write metrics as JSON with sorted keys; return them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return metrics
