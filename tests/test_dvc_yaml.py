"""A stage names the code it runs, so that a change of code is a change of result."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# What every stage uses and what never shapes a result: messages, the reading of values that DVC tracks itself
# (params), the vault (a record is there or it is not), how a database is opened, and the embedded deployment.
APART = (
    "pipelines/errors.py",
    "pipelines/params.py",
    "pipelines/sections.py",
    "pipelines/privacy/",
    "pipelines/sandbox/",
    "pipelines/store/engine.py",
    "__init__.py",
)
SHAPES_RESULTS = ("pipelines/privacy/scrub.py", "pipelines/curate/ocr/")


def imported(path: Path) -> set[Path]:
    """Return the files of this package that a file imports, at any level."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pipelines"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("pipelines")}
    files = {ROOT / (name.replace(".", "/") + ".py") for name in names}
    return {file for file in files if file.exists()}


def closure(path: Path) -> set[str]:
    found: set[Path] = set()
    waiting = {path}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= imported(file) - found
    return {str(file.relative_to(ROOT)) for file in found}


def named(stage: dict[str, Any]) -> set[str]:
    deps = {d for d in stage["deps"] if d.startswith("pipelines/")}
    return {str(f.relative_to(ROOT)) for d in deps for f in [ROOT / d, *(ROOT / d).rglob("*.py")] if f.is_file()}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_names_the_modules_it_runs(name: str) -> None:
    [module] = list((ROOT / "pipelines").rglob(f"{name}.py"))
    needed = {
        file
        for file in closure(module)
        if not any(part in file for part in APART) or any(file.startswith(part) for part in SHAPES_RESULTS)
    }
    assert needed <= named(STAGES[name]), f"add to deps of {name} in dvc.yaml: {sorted(needed - named(STAGES[name]))}"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_has_the_name_of_its_command_and_its_section(name: str) -> None:
    assert STAGES[name]["cmd"].startswith(f"python -m pipelines {name} ")
    assert any(param.split(".")[0] == name for param in STAGES[name]["params"])
    assert all(d for d in STAGES[name]["deps"]), "a stage without deps is never cached"
