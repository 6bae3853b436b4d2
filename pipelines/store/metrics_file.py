"""Write the metrics of a stage in a form that gives the same bytes for the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_metrics(metrics: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write the metrics of a stage to a file as JSON with sorted keys, and return them unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return metrics


def rounded(value: Any) -> Any:
    """Round every float in a nested value to six decimals, so that different machines give equal metrics."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value
