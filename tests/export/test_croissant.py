"""MLCommons' own library reads an export's Croissant without errors or warnings, and gives the rows (.croissant)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.export.test_release_export import export, unlabel
from tests.release.small_release import World

pytestmark = pytest.mark.faults
ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".croissant" / "bin" / "python"
VALIDATE = Path(__file__).with_name("validate_croissant.py")


def validated(folder: Path) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.fail("there is no .croissant; `make test-croissant` installs it from croissant.lock")
    command = [str(PYTHON), str(VALIDATE), str(folder / "croissant.json")]
    done = subprocess.run(command, text=True, capture_output=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("corpus", "name"), [("posts", "p1"), ("memes", "m1")])
def test_it_is_valid_and_its_records_are_the_rows(world: World, tmp_path: Path, corpus: str, name: str) -> None:
    unlabel(world, category="figurative")
    world.approved(corpus, name)
    export(world, name, tmp_path / "out")
    found = validated(tmp_path / "out")
    assert (found["errors"], found["warnings"], found["said"]) == ([], [], [])
    assert "1.1" in found["version"] or "1_1" in found["version"]
    tables = {path.stem: pq.read_table(path).to_pylist() for path in (tmp_path / "out" / "data").iterdir()}
    assert found["rows"] == tables


def test_a_lack_is_noticed(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    export(world, "p1", tmp_path / "out")
    path = tmp_path / "out" / "croissant.json"
    told = json.loads(path.read_text())
    del told["citeAs"], told["version"]
    path.write_text(json.dumps(told))
    assert len(validated(tmp_path / "out")["warnings"]) == 2
