"""AGENTS.md fits one screen, its packages are the layers of the import contract, and the paths that it names exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "AGENTS.md").read_text()


def test_it_fits_one_screen() -> None:
    assert len(TEXT.splitlines()) <= 60, "move text to docs/architecture.md"


def test_the_table_has_the_layers_in_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    table = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`[^|]*) \|", TEXT, re.MULTILINE)]
    names = [name for row in table for name in row]
    assert sorted(names) == sorted(name for layer in layers for name in layer.split(" | "))
    depth = {name: n for n, layer in enumerate(layers) for name in layer.split(" | ")}
    assert [depth[name] for name in names] == sorted(depth.values())


def test_the_paths_of_the_flow_exist() -> None:
    folder = ROOT / "pipelines"
    for line in re.findall(r"^\d+\. .*", TEXT, re.MULTILINE):
        previous = folder
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", line):
            places = [path for path in (ROOT / name, folder / name, previous / name) if path.exists()]
            assert places, f"AGENTS.md names {name}, which does not exist"
            previous = places[0].parent
