"""Write every table and every plot's numbers of a report page as CSV and LaTeX, or the page as a LaTeX document.

Names are ``<number>-<words of the title>``; the numbers are in the order of the page. A cell with an interval, such as
``12.3 [11.0, 13.9]``, has three columns in the CSV. The LaTeX of a table needs ``array`` and ``booktabs`` only; the
document, with all text of the page and the numbers of a plot in its place, needs what every TeX distribution has.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.evaluate.report.page import Block, Notice, Page, Points
from pipelines.metrics.label_tables import UNDEFINED, Sheet

NUMBER = r"[-−–]?\d[\d,]*(?:\.\d+)?|[-−–]?\.\d+"
INTERVAL = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]")
PLAIN = re.compile(rf"({NUMBER})")
# Ours: the longest cell without a line break, and the width of a column with breaks, in letters and in em
SENTENCE, EM, WIDEST = 36, 0.4, 18.0
SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "–": "--", "—": "---", "−": "$-$", "±": r"$\pm$", "≈": r"$\approx$", "≠": r"$\neq$",
    "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "·": r"$\cdot$", "→": r"$\rightarrow$", "²": r"$^2$",
    "α": r"$\alpha$", "κ": r"$\kappa$", "η": r"$\eta$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "χ": r"$\chi$",
    "…": r"\ldots{}", "“": "``", "”": "''", "’": "'", "‘": "`", "\u2009": r"\,", "\u00a0": "~", "§": r"\S{}",
}  # fmt: skip


def write(page: Page, folder: Path) -> list[str]:
    """Write the files of a page into an emptied folder, and return the names without their suffixes."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    names = []
    for place, sheet in enumerate(sheets(page), start=1):
        names.append(f"{place:02d}-{_slug(sheet.title)}")
        (folder / f"{names[-1]}.csv").write_bytes(to_csv(sheet).encode())
        (folder / f"{names[-1]}.tex").write_bytes(to_latex(sheet, label=names[-1]).encode())
    return names


def sheets(page: Page) -> Iterator[Sheet]:
    """Yield the tables of a page and of its plots, in order."""
    sections = (block for section in page.sections for block in section.blocks)
    yield from (block for block in (*page.blocks, *sections) if isinstance(block, Sheet))


def to_csv(sheet: Sheet) -> str:
    """Return a table as CSV (RFC 4180) with numbers that programs read; an undefined value is empty.

    A row that is a heading has its words in the first column, and nothing else.
    """
    split = [any(INTERVAL.fullmatch(row[i]) for row in sheet.rows) for i in range(len(sheet.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    names = [(name, f"{name} low", f"{name} high") for name in sheet.columns]
    writer.writerow([name for each, three in zip(names, split, strict=True) for name in each[: 3 if three else 1]])
    for row in sheet.rows:
        writer.writerow([c for cell, three in zip(row, split, strict=True) for c in _cells(cell, three=three)])
    return out.getvalue()


def _cells(cell: str, *, three: bool) -> Sequence[str]:
    if interval := INTERVAL.fullmatch(cell):
        return [_machine(part) for part in interval.groups()]
    # a spreadsheet would read other words as a formula
    inert = f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
    value = "" if cell == UNDEFINED else _machine(cell) if PLAIN.fullmatch(cell) else inert
    return [value, "", ""] if three else [value]


def _machine(number: str) -> str:
    return re.sub("[−–]", "-", number).replace(",", "")


def to_latex(sheet: Sheet, *, label: str) -> str:
    """Return a table as LaTeX, with the first column to the left and numbers to the right."""
    head = ("% \\usepackage{array,booktabs}", "\\begin{table}", f"\\caption{{{escaped(sheet.title)}}}")
    return "\n".join([*head, f"\\label{{tab:{label}}}", "\\centering", *tabular(sheet), "\\end{table}", ""])


def tabular(sheet: Sheet) -> Iterator[str]:
    """Yield the lines of a table without its float; a column of sentences has lines that break."""
    width = len(sheet.columns)
    yield f"\\begin{{tabular}}{{{''.join(_kind(sheet, i) for i in range(width))}}}"
    yield "\\toprule"
    yield " & ".join(map(escaped, sheet.columns)) + r" \\"
    yield "\\midrule"
    for row in sheet.rows:
        if width > 1 and not any(row[1:]):
            yield f"\\multicolumn{{{width}}}{{l}}{{\\textit{{{escaped(row[0])}}}}} \\\\"
        else:
            # a row that began with [ would be read as an option of the row before
            yield "{}" * row[0].startswith("[") + " & ".join(map(escaped, row)) + r" \\"
    yield "\\bottomrule"
    yield "\\end{tabular}"


def _kind(sheet: Sheet, place: int) -> str:
    cells = [row[place] for row in sheet.rows if place == 0 or any(row[1:])]
    longest = max(map(len, cells), default=0)
    if longest > SENTENCE:
        return rf">{{\raggedright\arraybackslash}}p{{{min(longest * EM, WIDEST):.0f}em}}"
    filled = [cell for cell in cells if cell not in ("", UNDEFINED)]
    return "r" if place and filled and all(re.match(r"[-−<≈]?\.?\d", cell) for cell in filled) else "l"


def escaped(text: str) -> str:
    """Return text for LaTeX; a character that it cannot set without further packages is left out."""
    return "".join(SPECIAL.get(c, c if c.isascii() or "À" <= c <= "ÿ" else "") for c in text)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].rstrip("-")


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
            for start in range(0, max(len(block.rows), 1), MOST_ROWS):
                title = f"{block.title} (continued)" if start else block.title
                yield from ("", r"\textbf{" + escaped(title) + r"}\nopagebreak", "", r"\fitted{%")
                yield from tabular(Sheet(title, block.columns, block.rows[start : start + MOST_ROWS]))
                yield from ("}", "")
        case str():
            yield from (escaped(block), "")
