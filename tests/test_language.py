"""Prose is plain technical English: words of the project's former dialect do not return."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import hooks
from tests.language import ALLOWED, dialect

ROOT = Path(__file__).resolve().parents[1]


def test_no_tracked_file_has_words_of_the_dialect() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file() or name.startswith(ALLOWED):
            continue
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{number}: {', '.join(words)}" for number, line in enumerate(lines, 1)
                  if (words := dialect(line))]  # fmt: skip
    assert not found, "rewrite in plain English, or allow the file in tests/language.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["Whom a takedown is about", "who is gone", "it is no champion to go back to", "taken as it is", "runs by hand"],
)
def test_the_dialect_is_recognized(line: str) -> None:
    assert dialect(line)


@pytest.mark.parametrize("line", ["Resolve takedown criteria to record ids", "a standalone server", "nobodys"])
def test_plain_english_is_not(line: str) -> None:
    assert not dialect(line)


def test_large_files_and_keys_are_refused(tmp_path: Path) -> None:
    small, big, key = (tmp_path / name for name in ("small", "big", "key"))
    small.write_bytes(b"x")
    big.write_bytes(b"x" * (hooks.MOST_BYTES + 1))
    key.write_text("-----BEGIN RSA " + "PRIVATE KEY-----\n")
    assert [hooks.large(small), hooks.keys(small)] == [None, None]
    assert hooks.large(big) and hooks.keys(key)
