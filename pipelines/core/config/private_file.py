"""Write files that only their owner may read, such as secrets and passwords; every write is atomic."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    _half(path, text).replace(path)


def create_private(path: Path, text: str) -> str:
    """Write a private file unless it exists, and return its content; if several processes write, the first one wins."""
    if not path.exists():
        half = _half(path, text)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(half)
        half.unlink()
    return path.read_text()


def _half(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    half.touch(mode=0o600)
    half.write_text(text)
    return half
