"""Hooks of pre-commit refuse large files and private keys."""

from __future__ import annotations

from pathlib import Path

from tests import hooks


def test_large_files_and_keys_are_refused(tmp_path: Path) -> None:
    small, big, key = (tmp_path / name for name in ("small", "big", "key"))
    small.write_bytes(b"x")
    big.write_bytes(b"x" * (hooks.MOST_BYTES + 1))
    key.write_text("-----BEGIN RSA " + "PRIVATE KEY-----\n")
    assert [hooks.large(small), hooks.keys(small)] == [None, None]
    assert hooks.large(big) and hooks.keys(key)
