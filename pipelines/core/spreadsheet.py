"""Write text into tables for people so that no spreadsheet program takes it for a formula."""

from __future__ import annotations

import re
from collections.abc import Callable

# A program with another separator or quotes than ours sees further cells, so it is every place where one may begin.
BEGINS, FORMULA = frozenset(";,|\"'\t\r\n"), frozenset("=+-@＝＋－＠")
RUN = re.compile(r"[;,|\"'\s]+")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def cell(value: object) -> str:
    """Return the text of a cell, with an apostrophe before each place where a formula could begin."""
    given = CONTROLS.sub(" ", str(value))
    return ("'" if given.lstrip()[:1] in FORMULA else "") + _before_formulas(given, _marked)


def text(cell: str) -> str:
    """Return the text of which :func:`cell` made this cell."""
    mark = cell[:1] == "'" and cell.lstrip("' \t\r\n")[:1] in FORMULA
    return _before_formulas(cell[mark:], _unmarked)


def _before_formulas(given: str, change: Callable[[str], str]) -> str:
    """Change each run of separators, quotes and spaces that a formula follows; one pass, however long the runs are."""
    return RUN.sub(lambda run: change(run[0]) if given[run.end() : run.end() + 1] in FORMULA else run[0], given)


def _marked(run: str) -> str:
    last = max(len(run.rstrip()) - 1, 0)
    return run[:last] + "".join(f"{c}'" if c in BEGINS else c for c in run[last:])


def _unmarked(run: str) -> str:
    at = max(len(run.rstrip("' \t\r\n")) - 1, 0)
    kept = [run[:at]]
    while at < len(run):
        kept.append(run[at])
        at += 2 if run[at] in BEGINS and run[at + 1 : at + 2] == "'" else 1
    return "".join(kept)
