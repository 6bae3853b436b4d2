"""Kernels that one clone has compiled serve every clone whose file says the same, and no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.workspace.scratch import step_environment
from tests.curate.small_corpus import REPO

CODE = """
from pipelines.curate.kernels import compiled

@compiled
def more(x: int) -> int:
    return x + {added}
"""
TOLD = """
import importlib.util, json, sys
told = []
for file in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("kernel", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = module.more(1)
    told.append([answer, sum(module.more.stats.cache_hits.values())])
print(json.dumps(told))
"""


def test_clones_share_what_is_compiled_by_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    environment = step_environment(Settings.from_env())
    files = []
    for clone, added in {"one": 1, "two": 1, "three": 2}.items():
        files.append(tmp_path / clone / "kernel.py")
        files[-1].parent.mkdir()
        files[-1].write_text(CODE.format(added=added))
    told = subprocess.run(
        [sys.executable, "-c", TOLD, *map(str, files)],
        cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(told) == [[2, 0], [2, 1], [3, 0]]
    assert list((tmp_path / "kernels").rglob("*.nbi"))
