"""Write the metrics of a stage in a form that gives the same bytes for the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.core.config.base import nested


def write_metrics(metrics: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write the metrics of a stage to a file as JSON with sorted keys, and return them unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return metrics


def read_metrics(path: Path) -> dict[str, Any]:
    """Return the metrics of a stage, which are empty if it wrote none."""
    return dict(json.loads(path.read_bytes())) if path.is_file() else {}


def rounded(value: Any) -> Any:
    """Round every float in a nested value to six decimals, so that different machines give equal metrics."""
    return nested(value, lambda inner: round(inner, 6) if isinstance(inner, float) else inner)
