"""Refuse staged files that are large or hold a private key; run by pre-commit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST_BYTES = 500_000
KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----|\bsk-[A-Za-z0-9_-]{32,}|\bAKIA[0-9A-Z]{16}\b")


def large(path: Path) -> str | None:
    """Return why a file is refused for its size, if it is."""
    size = path.stat().st_size
    return f"{path}: {size:,} bytes; keep data in DVC" if size > MOST_BYTES else None


def keys(path: Path) -> str | None:
    """Return why a file is refused for a key in it, if it is; the key is not quoted."""
    return f"{path}: holds a private key or an API key; remove and revoke it" if KEY.search(path.read_bytes()) else None


def main() -> int:
    """Check the files of the command line; return 1 if one is refused."""
    check = {"large": large, "keys": keys}[sys.argv[1]]
    refused = [found for name in sys.argv[2:] if Path(name).is_file() and (found := check(Path(name)))]
    sys.stdout.write("".join(f"{line}\n" for line in refused))
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
