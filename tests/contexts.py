"""What stages run with in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.core.config.params import Params
from pipelines.store.stage import Context


def context_of(
    corpus: str, *, params: Params, settings: Any = None, vault: Any = None, root: Path = Path(), row: str = ""
) -> Context:
    """Return a context; without settings or vault, a stage that needs them fails."""
    return Context(corpus, params, settings, lambda: vault, root, row)
