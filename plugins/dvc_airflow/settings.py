"""Read the plugin's settings from the environment, each with a fallback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(os.environ.get("CORPUS_ROOT", Path(__file__).resolve().parents[2]))
"""The project's checkout: the working directory of commands, with ``dvc.yaml``."""

PYTHON = os.environ.get("CORPUS_PYTHON", sys.executable)
"""The interpreter with the pipelines installed; Airflow's own environment then needs no torch."""

PROFILE = os.environ.get("CORPUS_PROFILE") or None
"""The profile whose parameters shape the graph (matrix entries and the like)."""

HOME = Path(os.environ.get("CORPUS_HOME", ROOT / "var"))
"""The folder of all data and state."""
