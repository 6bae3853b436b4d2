"""A module, function or class that a docstring refers to by its full name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"pipelines": ROOT, "crisis_corpus": ROOT, "dvc_airflow": ROOT / "plugins"}
REFERENCE = re.compile(rf":[a-z]+:`((?:{'|'.join(PACKAGES)})[\w.]*)`")


def exists(reference: str) -> bool:
    """Whether a reference is a module or a name at the top level of one; members of classes are not checked."""
    parts = reference.split(".")
    for length in range(len(parts), 0, -1):
        path = PACKAGES[parts[0]].joinpath(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return length == len(parts) or parts[length] in names(file)
    return False


@cache
def names(file: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            inner = list(ast.walk(node))
            found |= {one.id for one in inner if isinstance(one, ast.Name)}
            found |= {one.asname or one.name for one in inner if isinstance(one, ast.alias)}
    return frozenset(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_references_lead_to_what_exists(package: str) -> None:
    files = (PACKAGES[package] / package).rglob("*.py")
    wrong = [(str(file), one) for file in files for one in REFERENCE.findall(file.read_text()) if not exists(one)]
    assert not wrong, "correct the name in these docstrings"
