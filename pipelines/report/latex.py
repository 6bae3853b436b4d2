"""Render a report page as a LaTeX document with all of its text and tables; a plot is the table of its numbers.

The document needs what every TeX distribution has (``array``, ``booktabs``, ``graphicx``, ``hyperref``). Tables that
are wider or higher than the page are scaled down, and long ones are continued. Tables for a paper are the files of
:mod:`pipelines.report.export`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.metrics.label_tables import Sheet
from pipelines.report.export import escaped, tabular
from pipelines.report.page import Block, Drawing, Folded, Heat, Notice, Page, Points, Prose

MOST_ROWS = 50  # ours: of a table on one page, or it would be scaled down too far
HEAD = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{array,booktabs,graphicx}
\usepackage[hidelinks]{hyperref}
\setlength{\parindent}{0pt}
\setlength{\parskip}{.5em}
\newsavebox{\sheet}
% a table, scaled down to the width and the height of the page
\newcommand{\fitted}[1]{\sbox{\sheet}{#1}%
  \ifdim\wd\sheet>\linewidth\sbox{\sheet}{\resizebox{\linewidth}{!}{\usebox{\sheet}}}\fi
  \ifdim\dimexpr\ht\sheet+\dp\sheet>.9\textheight\sbox{\sheet}{\resizebox*{!}{.9\textheight}{\usebox{\sheet}}}\fi
  \usebox{\sheet}}
"""


def latex(page: Page) -> str:
    """Return the page as one LaTeX document that is compiled by itself."""
    lines = [HEAD, f"\\title{{{escaped(page.title)}}}", r"\date{}", r"\begin{document}", r"\maketitle"]
    lines += [line for block in page.blocks for line in _lines(block)]
    lines.append(r"\tableofcontents")
    for section in page.sections:
        lines.append(f"\\section{{{escaped(section.title)}}}")
        lines += [line for block in section.blocks for line in _lines(block)]
    return "\n".join([*lines, r"\end{document}", ""])


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Points(items):
            # an item that began with [ would be read as its label
            yield from (r"\begin{itemize}", *(rf"\item {{}}{escaped(item)}" for item in items), r"\end{itemize}")
        case Notice(text):
            yield from (r"\begin{quote}", rf"\textbf{{Note.}} {escaped(text)}", r"\end{quote}")
        case Sheet():
            yield from _table(block, caption=block.title)
        case Drawing(caption, _, sheet):
            yield from _table(sheet, caption=caption)
        case Prose(sheet) | Folded(sheet) | Heat(sheet, _):
            yield from _table(sheet, caption=sheet.title)
        case str():
            yield from (escaped(block), "")


def _table(sheet: Sheet, *, caption: str) -> Iterator[str]:
    for start in range(0, max(len(sheet.rows), 1), MOST_ROWS):
        title = f"{caption} (continued)" if start else caption
        yield from ("", r"\textbf{" + escaped(title) + r"}\nopagebreak", "", r"\fitted{%")
        yield from tabular(Sheet(title, sheet.columns, sheet.rows[start : start + MOST_ROWS]))
        yield from ("}", "")
