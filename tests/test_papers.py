"""docs/papers.md: every row names its place in a paper, and only parameters and commands that exist."""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import read_params

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers.md"
PARAMS: dict[str, Any] = read_params(ROOT)
COLUMNS = ["paper section", "statement", "parameter", "command"]
# The sections that a paper's table may cite, in their order. Sections 1 and 2 of both papers have nothing to implement.
SECTIONS = {
    "FigSIM": [
        "3.1", "3.2", "3.3", "4", "4.1", "4.2", "4.3", "4.4", "5", "5.1", "5.2", "5.3", "6", "7", "Limitations",
        "Ethics", "A", "B", "C", "D", "E.1", "E.2", "F",
    ],
    "CRADLE": [
        "3.1", "3.2", "3.3.1", "3.3.2", "3.3.3", "3.3.4", "3.3.5", "3.4", "4.1", "4.2", "4.3", "5.1", "5.2",
        "5.3", "6", "7", "Limitations", "Ethics", "A", "B.1", "B.2", "C", "D", "E", "F",
    ],
}  # fmt: skip
# The sections without a row: they repeat statements of others.
WITHOUT = {"FigSIM": {"6", "7"}, "CRADLE": set[str]()}
NONE = "–"


@dataclass(frozen=True)
class Row:
    """A row of the page; ``where`` names it in failures."""

    where: str
    paper: str
    cells: tuple[str, ...]

    def names(self, column: str) -> list[str]:
        """Return the names in a cell: each in backticks, separated by commas; a dash is none."""
        cell = self.cells[COLUMNS.index(column)]
        names = [] if cell == NONE else re.findall(r"`([^`]+)`", cell)
        expected = ", ".join(f"`{name}`" for name in names) or NONE
        assert cell == expected, f"{self.where}: the cell '{column}' is neither a dash nor names in backticks: {cell!r}"
        return names


def table_rows() -> list[Row]:
    found, paper = [], ""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        if line.startswith("|"):
            cells = tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
            found.append(Row(f"docs/papers.md:{number} ({paper} {' '.join(cells[:2])[:60]})", paper, cells))
    return [row for row in found if row.cells != tuple(COLUMNS) and set("".join(row.cells)) != {"-"}]


ROWS = table_rows()


def has(values: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def test_both_papers_have_a_table_with_these_columns() -> None:
    heads = [line for line in PAGE.read_text().splitlines() if line == f"| {' | '.join(COLUMNS)} |"]
    assert len(heads) == len(SECTIONS)
    assert {row.paper for row in ROWS} == set(SECTIONS)


def test_no_cell_is_empty_and_no_row_is_repeated() -> None:
    wrong = [row.where for row in ROWS if len(row.cells) != len(COLUMNS) or not all(row.cells)]
    assert not wrong, "rows with an empty cell or another number of cells:\n" + "\n".join(wrong)
    keys = [(row.paper, *row.cells[:2]) for row in ROWS]
    assert not (again := [row.where for row, key in zip(ROWS, keys, strict=True) if keys.count(key) > 1]), again


@pytest.mark.parametrize("paper", SECTIONS)
def test_rows_cite_the_papers_sections_in_their_order(paper: str) -> None:
    order, last = SECTIONS[paper], 0
    for row in (row for row in ROWS if row.paper == paper):
        assert row.cells[0] in order, f"{row.where}: {paper} has no section {row.cells[0]}"
        place = order.index(row.cells[0])
        assert place >= last, f"{row.where}: belongs before the rows of section {order[last]}"
        last = place
    cited = {row.cells[0] for row in ROWS if row.paper == paper}
    assert set(order) - cited == WITHOUT[paper], f"sections of {paper} without a row"


def test_every_parameter_is_in_params_yaml() -> None:
    wrong = [f"{row.where}: {name}" for row in ROWS for name in row.names("parameter") if not has(PARAMS, name)]
    assert not wrong, "params.yaml has no such key:\n" + "\n".join(wrong)


def test_every_command_exists() -> None:
    commands = runpy.run_path(str(ROOT / "docs" / "reference.py"))["commands"]()
    known = {" ".join(path) for path in dict(commands)}
    wrong = [f"{row.where}: {name}" for row in ROWS for name in row.names("command") if name not in known]
    assert not wrong, "no such command:\n" + "\n".join(wrong)
