"""The procedures of docs/privacy.md, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from pipelines.errors import VaultMismatch
from pipelines.vault.vault import Vault

ROOT = Path(__file__).parents[2]
NOW = datetime(2023, 1, 5, tzinfo=UTC)


def test_backup_restore_replay_and_rotation_work_as_written(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "privacy.md").read_text()
    blocks = [dedent(block) for block in re.findall(r" +```python\n(.*?)```", page, flags=re.DOTALL)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CORPUS_")}

    def follow(block: str, *, answer: str = "\n") -> str:
        command = [sys.executable, "-c", block]
        where = environment | {"CORPUS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, input=answer, capture_output=True, text=True, check=True, env=where).stdout

    write_out, replay, rotate = blocks
    assert follow(write_out) == "{}\n"
    secret = bytes.fromhex((tmp_path / "secret").read_text())
    url, file, backup = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite", tmp_path / "backup"
    with Vault.open(url, secret=secret) as vault:
        ids = [vault.record_id(str(n)) for n in range(3)]
        vault.admit([(i, "t3_x") for i in ids], corpus="memes", month="2022-12", now=NOW)
    shutil.copy(file, backup)
    with Vault.open(url, secret=secret) as vault:
        vault.destroy(ids[:1], reason="takedown", now=NOW)
    saved = follow(write_out)
    shutil.copy(backup, file)
    assert follow(replay, answer=saved).startswith("1 ")
    with Vault.open(url, secret=secret) as vault:
        assert vault.tombstoned(ids) == set(ids[:1])
        keys = vault.keys(ids)

    fresh = bytes.fromhex(re.search("[0-9a-f]{128}", follow(rotate))[0])
    for other, address in ((secret, url), (fresh, f"sqlite:///{backup}"), (fresh[:32], f"sqlite:///{backup}")):
        with pytest.raises(VaultMismatch):
            Vault.open(address, secret=other)
    with Vault.open(url, secret=fresh) as vault:
        assert vault.keys(ids) == keys
