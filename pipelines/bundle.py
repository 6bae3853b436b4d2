"""Find the Dags, the plugin, ``dvc.yaml``, ``params.yaml`` and the profiles: in a checkout or in an installed copy."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path


def root() -> Path:
    """Return ``CORPUS_ROOT``, else the checkout of this package, else the copy that its wheel installed."""
    if given := os.environ.get("CORPUS_ROOT"):
        return Path(given).resolve()
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "dvc.yaml").is_file() else Path(sysconfig.get_path("data")) / "share/crisis-corpus"
