"""The audit of writes and connections: what is outside the registered stores is noted, whatever process does it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from crisis_corpus_sandbox import audit
from pipelines.core.config.settings import Settings

# each plants a store that no takedown knows
PLANTED = {
    "a file elsewhere": "open('{other}/a', 'w')",
    "a folder in the home": "import os; os.mkdir('{home}/pages')",
    "a file in the home": "open('{home}/pages.jsonl', 'a')",
    "a table at home": "import pyarrow as a, pyarrow.parquet as p; p.write_table(a.table({{'a': [1]}}), '{home}/t')",
    "a database": "import sqlite3; sqlite3.connect('{other}/a.sqlite')",
    "a rename": "import os; os.rename('{home}/logs/seen', '{other}/seen')",
    "a service": "import socket; socket.create_connection(('127.0.0.1', {port})).close()",
    "a child": "import subprocess, sys; subprocess.run([sys.executable, '{other}.py'], env={{'PYTHONPATH': ''}})",
    "a forked child": "import os\nif not os.fork(): open('{other}/a', 'w'); os._exit(0)\nos.wait()",
}  # fmt: skip
# what belongs to stores, and no store
KNOWN = {
    "stores": "import os; os.makedirs('{home}/train/memes'); open('{home}/.followed.new', 'w').close(); "
    "os.rename('{home}/.followed.new', '{home}/followed')",
    "reads": "open('{home}/logs/seen').read(); open('/dev/null', 'w')",
    "a service of the deployment": "import socket; socket.create_connection(('127.0.0.1', {known})).close()",
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    (tmp_path / "other").mkdir()
    (tmp_path / "var" / "logs").mkdir(parents=True)
    (tmp_path / "var" / "logs" / "seen").touch()
    return Settings.from_env()


def noted(code: str, *, settings: Settings, folder: Path) -> list[str]:
    with socket.create_server(("127.0.0.1", 0)) as service, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"http://127.0.0.1:{service.getsockname()[1]}"
        variables = audit.begin(settings, environment={"CORPUS_REDDIT_URL": address}, root=folder)
        names = {"home": settings.home, "other": folder / "other", "port": other.getsockname()[1],
                 "known": service.getsockname()[1]}  # fmt: skip
        (folder / "other.py").write_text(f"open('{folder}/other/a', 'w')")
        argv = [sys.executable, "-c", code.format(**names)]
        subprocess.run(argv, env=os.environ | variables, check=True, cwd=folder)
    return [audit.told(each) for each in audit.outside(settings)]


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_store_is_noted(what: str, settings: Settings, tmp_path: Path) -> None:
    assert noted(PLANTED[what], settings=settings, folder=tmp_path)


@pytest.mark.parametrize("what", KNOWN)
def test_what_belongs_to_a_store_is_not(what: str, settings: Settings, tmp_path: Path) -> None:
    assert noted(KNOWN[what], settings=settings, folder=tmp_path) == []
