"""Remember the last journal row of each model that was seen on this machine: a journal without it was cut."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# In the folder of verified models.
FILE = "journal_seen.json"


def known(path: Path, *, key: str) -> dict[str, str]:
    """Return the digest of the last row that was seen, by model, of the journal that has this public key."""
    return dict(_read(path).get(key, {}))


def remember(path: Path, rows: Mapping[str, str], *, key: str) -> None:
    """Store the digests of last rows by model; a folder that cannot be written is no error: it may not be kept."""
    stored = _read(path)
    now = stored | {key: {**stored.get(key, {}), **rows}}
    if now == stored:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps(now))
        half.replace(path)


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
