"""The procedures of docs/privacy.md, run exactly as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from tests.refusals import refused

ROOT = Path(__file__).parents[2]
NOW = datetime(2023, 1, 5, tzinfo=UTC)


def test_backup_restore_replay_and_rotation_work_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "privacy.md").read_text()
    commands = [line.strip() for line in re.findall(r" +corpus vault .*", page) if "reseal" not in line]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CORPUS_")}

    def follow(line: str) -> str:
        command = line.replace("corpus ", f"{sys.executable} -m pipelines ", 1)
        where = environment | {"CORPUS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True, env=where)
        return done.stdout

    export, replay, rotate = commands
    with monkeypatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(tmp_path))
        patch.delenv("CORPUS_SECRET", raising=False)
        Vault.create(Settings.from_env()).close()
    follow(export)
    assert json.loads((tmp_path / "tombstones.json").read_text()) == {"format": 1, "records": {}}
    secret = bytes.fromhex((tmp_path / "secret").read_text())
    url, file, backup = f"sqlite:///{tmp_path}/vault.sqlite", tmp_path / "vault.sqlite", tmp_path / "backup"
    with Vault.open(url, secret=secret) as vault:
        ids = [vault.record_id(str(n)) for n in range(3)]
        vault.admit([(i, "t3_x") for i in ids], corpus="memes", month="2022-12", now=NOW)
    shutil.copy(file, backup)
    with Vault.open(url, secret=secret) as vault:
        vault.destroy(ids[:1], reason="takedown", now=NOW)
    follow(export)
    shutil.copy(backup, file)
    assert '"destroyed": 1' in follow(replay)
    with Vault.open(url, secret=secret) as vault:
        assert vault.tombstoned(ids) == set(ids[:1])
        keys = vault.keys(ids)

    assert '"rewrapped": 2' in follow(rotate)
    assert (tmp_path / "new-secret").stat().st_mode & 0o077 == 0
    fresh = bytes.fromhex((tmp_path / "new-secret").read_text())
    for other, address in ((secret, url), (fresh, f"sqlite:///{backup}"), (fresh[:32], f"sqlite:///{backup}")):
        with refused("VaultMismatch"):
            Vault.open(address, secret=other)
    with Vault.open(url, secret=fresh) as vault:
        assert vault.keys(ids) == keys
