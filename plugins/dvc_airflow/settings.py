"""What the plugin reads from the environment, each with its fallback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(os.environ.get("CORPUS_ROOT", Path(__file__).resolve().parents[2]))
"""The project's checkout: commands start there, and ``dvc.yaml`` is read from there."""

PYTHON = os.environ.get("CORPUS_PYTHON", sys.executable)
"""The interpreter that has the pipelines; Airflow's own may then stay free of torch."""

PROFILE = os.environ.get("CORPUS_PROFILE") or None
"""The profile whose parameters shape the graph (matrix entries and the like)."""

HOME = Path(os.environ.get("CORPUS_HOME", ROOT / "var"))
"""Where everything that is not code lives."""
