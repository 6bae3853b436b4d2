"""A distribution ``foreign`` with parts, installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.core import parts


@contextmanager
def installed(folder: Path, patch: pytest.MonkeyPatch, *, files: Mapping[str, str], points: str) -> Iterator[None]:
    """Write modules and entry points below ``folder`` and make them importable; forget them afterwards."""
    info, before = "foreign-2.dist-info", set(sys.modules)
    recorded = "".join(f"{name},sha256=AAAA,1\n" for name in files)
    about = {"METADATA": "Name: foreign\nVersion: 2\n", "entry_points.txt": points, "RECORD": recorded}
    for name, text in {**files, **{f"{info}/{name}": text for name, text in about.items()}}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    patch.syspath_prepend(str(folder))
    parts.installed.cache_clear()
    yield
    parts.installed.cache_clear()
    for name in [name for name, module in sys.modules.items() if name not in before and _below(module, folder)]:
        del sys.modules[name]


def _below(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", "")).startswith(str(folder))


def entry() -> dict[str, str]:
    """Return the entry of section ``distributions`` that allows it."""
    version, sha256 = parts.installed("foreign")
    return {"version": version, "sha256": sha256}
