"""docs/security.md: every row names an attack, a control, tests that exist, and what remains."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "security.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| attack |")
]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_tests_that_exist(row: list[str]) -> None:
    attack, control, tests, remains = row
    assert attack and control and remains
    named = re.findall(r"`([^`]+)`", tests)
    assert named, "a control without a test is a claim"
    for name in named:
        file, _, function = name.partition("::")
        assert function in functions(file), name
