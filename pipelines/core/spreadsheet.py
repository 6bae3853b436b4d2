"""Write text into tables for people so that no spreadsheet program takes it for a formula."""

from __future__ import annotations

import re

# A program with another separator or quotes than ours sees further cells, so it is every place where one may begin.
BEGINS = r"""(^|[;,|"'\t\r\n])"""
FORMULA = re.compile(rf"{BEGINS}(?=\s*[=+\-@＝＋－＠])")
MARKED = re.compile(rf"{BEGINS}'(?=[\s']*[=+\-@＝＋－＠])")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def cell(value: object) -> str:
    """Return the text of a cell, with an apostrophe before each place where a formula could begin."""
    return FORMULA.sub(r"\1'", CONTROLS.sub(" ", str(value)))


def text(cell: str) -> str:
    """Return the text of which :func:`cell` made this cell."""
    return MARKED.sub(r"\1", cell)
