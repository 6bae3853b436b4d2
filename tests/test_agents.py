"""AGENTS.md fits one screen and names what exists, and a class or module name of the tree is used once."""

from __future__ import annotations

import ast
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


# Each package has its view of a subject under the subject's name, and each paper's report its own parts.
SAME_NAME = {"cli", "config", "crisis_corpus", "dags", "dvc_airflow", "figsim", "cradle"}


def modules() -> list[Path]:
    folders = ("pipelines", "crisis_corpus", "plugins", "dags")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.strip("_"), []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "rename the less prominent class to the field's term"


def test_a_module_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        if path.stem != "__init__" and path.parent.name not in SAME_NAME:
            places.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "rename the less prominent module to the field's term"
