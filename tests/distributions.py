"""Install a distribution with one part for the length of a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.core import parts
from pipelines.core.config.base import Distribution


@contextmanager
def installed(site: Path, code: str, *, group: str, name: str, kind: str) -> Iterator[dict[str, Distribution]]:
    """Yield what a deployment writes into ``params.yaml`` to allow the distribution with the part ``name``."""
    info = site / f"{name}_part-1.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}_part.py").write_text(code)
    (info / "METADATA").write_text(f"Name: {name}-part\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[crisis_corpus.{group}]\n{name} = {name}_part:{kind}\n")
    (info / "RECORD").write_text(f"{name}_part.py,sha256=AAAA,1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        parts.installed.cache_clear()
        version, sha256 = parts.installed(f"{name}-part")
        yield {f"{name}-part": Distribution(version=version, sha256=sha256)}
    parts.installed.cache_clear()
    sys.modules.pop(f"{name}_part", None)
