"""Render a report page of prose, tables and plots as self-contained HTML, Markdown or LaTeX, its tables also as CSV.

The HTML has no scripts and no external addresses, follows the reader's light or dark theme, and adapts to phones. Every
plot has its numbers in a table below it; Markdown has only the table. The same page always gives the same bytes.

Files of tables are named ``<number>-<words of the title>``, in the order of the page. A cell with an interval, such as
``12.3 [11.0, 13.9]``, has three columns in the CSV. The LaTeX of a table needs ``array`` and ``booktabs`` only; the
document, with all text of the page and the numbers of a plot in its place, needs what every TeX distribution has.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pipelines.metrics.label_tables import UNDEFINED, Sheet

# a browser breaks a line at spaces and after a hyphen within a word, and with `_breakable` after an underscore and not
# within an interval
UNBROKEN = re.compile(r"\[[^\[\]]*\]|[^\s_-]+[_-]?|[_-]")
INTERVAL = re.compile(r"\[[-−–.,\d\s]+\]")
FIGURE = re.compile(r"^(?:to|[-−–+±<>=≈≠.,\d\s%()\[\]/;:→·|×])*$")


@dataclass(frozen=True)
class Points:
    """A bullet list of sentences in the report."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Notice:
    """A notice in the report that readers must see before the numbers."""

    text: str


Block: TypeAlias = str | Points | Notice | Sheet


@dataclass(frozen=True)
class PageSection:
    """A section of the report page; ``key`` is its anchor for links."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """The report page; ``blocks`` precede the table of contents."""

    title: str
    blocks: tuple[Block, ...]
    sections: tuple[PageSection, ...]


STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
# Ours: letters that a printed line of a table takes, on an upright A4 page and on its side
UPRIGHT, ON_ITS_SIDE = 112, 190


def html(page: Page) -> str:
    """Return the page as one HTML document without external files."""
    contents = "".join(f'<li><a href="#{escape(s.key)}">{escape(s.title)}</a></li>' for s in page.sections)
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        # nothing is fetched or run, whatever the names of labels and models contain
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(page.title)}</title><style>\n{STYLE}</style></head>",
        f"<body><main><h1>{escape(page.title)}</h1>",
        *(_html(block) for block in page.blocks),
        f'<nav aria-label="Contents"><strong>Contents</strong><ol>{contents}</ol></nav>',
    ]
    for section in page.sections:
        lines.append(f'<section id="{escape(section.key)}"><h2>{escape(section.title)}</h2>')
        lines.extend(_html(block) for block in section.blocks)
        lines.append("</section>")
    return "\n".join([*lines, "</main></body></html>"]) + "\n"


def markdown(page: Page) -> str:
    """Return the page as Markdown; a plot is replaced by a table of its numbers."""
    parts = [f"# {_plain(page.title)}", *(_markdown(block) for block in page.blocks)]
    parts.append("\n".join(f"- [{_plain(s.title)}](#{_anchor(s.title)})" for s in page.sections))
    for section in page.sections:
        parts.append(f"## {_plain(section.title)}")
        parts.extend(_markdown(block) for block in section.blocks)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _html(block: Block) -> str:
    match block:
        case Points(items):
            shown = f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
        case Notice(text):
            shown = f'<p class="notice" role="note">{escape(text)}</p>'
        case Sheet(title, svg=svg) if svg:
            numbers = f"<details><summary>The numbers</summary>{_table(block)}</details>"
            shown = f'<figure class="drawing"><figcaption>{escape(title)}</figcaption>{svg}{numbers}</figure>'
        case Sheet(title, form="folded"):
            shown = f"<details><summary>{escape(title)}</summary>{_table(block)}</details>"
        case Sheet(title):
            shown = f"<figure><figcaption>{escape(title)}</figcaption>{_table(block)}</figure>"
        case str():
            shown = f"<p>{escape(block)}</p>"
    return shown


def _table(sheet: Sheet) -> str:
    places, prose = range(len(sheet.columns)), sheet.form == "prose"
    numeric = [not prose and i > 0 and _numbers([row[i] for row in sheet.rows]) for i in places]
    # an empty corner is no header of anything
    head = "".join(
        f'<th scope="col"{_kind(numeric[i])}>{_breakable(sheet.columns[i])}</th>' if sheet.columns[i] else "<td></td>"
        for i in places
    )
    # what a table cannot be narrower than without breaking words
    rows = [row for row in sheet.rows if any(row[1:])]
    words = ([UNBROKEN.findall(cell) for cell in column] for column in zip(sheet.columns, *rows, strict=True))
    letters = sum(2 + max((len(word) for cell in column for word in cell), default=0) for column in words)
    kinds = ["wide", "prose" * prose, "broad" * (letters > UPRIGHT), "huge" * (letters > ON_ITS_SIDE)]
    lines = [
        f'<div class="{" ".join(filter(None, kinds))}" role="region" tabindex="0" aria-label="{escape(sheet.title)}">',
        f"<table><thead><tr>{head}</tr></thead><tbody>",
    ]
    for place, row in enumerate(sheet.rows):
        if not any(row[1:]) and len(row) > 1:
            lines.append(f'<tr class="g"><th scope="rowgroup" colspan="{len(row)}">{escape(row[0])}</th></tr>')
            continue
        cells = [f'<th scope="row">{_breakable(row[0])}</th>']
        for i in places[1:]:
            named = f' data-column="{escape(sheet.columns[i])}"' if prose else ""
            figure = numeric[i] and FIGURE.match(row[i]) is not None
            shade = sheet.values[place][i - 1] if sheet.values else None
            kind = _kind(figure) if shade is None else f' class="n h" style="--h:{round(100 * shade)}"'
            cells.append(f"<td{kind}{named}>{_breakable(row[i])}</td>")
        lines.append(f"<tr{_kind(_heads(row, numeric), name='g')}>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _breakable(cell: str) -> str:
    text = INTERVAL.sub(lambda match: f'<span class="i">{match[0]}</span>', escape(cell))
    return text.replace("_", "_<wbr>")


def _kind(applies: bool, *, name: str = "n") -> str:
    return f' class="{name}"' if applies else ""


def _numbers(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return len(filled) > 0 and 4 * sum(FIGURE.match(cell) is not None for cell in filled) >= 3 * len(filled)


def _heads(row: Sequence[str], numeric: Sequence[bool]) -> bool:
    cells = [cell for cell, number in zip(row, numeric, strict=True) if number]
    return "" in cells and not any(re.search(r"\d", cell) and FIGURE.match(cell) for cell in cells)


def _markdown(block: Block) -> str:
    match block:
        case Points(items):
            shown = "\n".join(f"- {_plain(item)}" for item in items)
        case Notice(text):
            shown = f"> {_plain(text)}"
        case Sheet():
            columns, *rows = [tuple(map(_plain, row)) for row in (block.columns, *block.rows)]
            shown = Sheet(_plain(block.title), columns, tuple(rows)).markdown()
            shown = shown.replace("---:|", "---|") if block.form == "prose" else shown
        case str():
            shown = _plain(block)
    return shown


def _plain(text: str) -> str:
    return re.sub(r"([\\|*`<]|(?<=\])\()", r"\\\1", " ".join(text.split()))


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@cache
def _texts() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8"))
    return content


def text(name: str, **values: Any) -> str:
    return str(_texts()[name]).format(**values)


def points(name: str, *first: str, noun: str = "items") -> Points:
    """Return a list of sentences, after further ones."""
    return Points((*first, *(sentence.format(noun=noun) for sentence in _texts()[name])))


NUMBER = r"[-−–]?\d[\d,]*(?:\.\d+)?|[-−–]?\.\d+"
CELL_INTERVAL = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]")
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


def write_tables(page: Page, folder: Path) -> list[str]:
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
    split = [any(CELL_INTERVAL.fullmatch(row[i]) for row in sheet.rows) for i in range(len(sheet.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    names = [(name, f"{name} low", f"{name} high") for name in sheet.columns]
    writer.writerow([name for each, three in zip(names, split, strict=True) for name in each[: 3 if three else 1]])
    for row in sheet.rows:
        writer.writerow([c for cell, three in zip(row, split, strict=True) for c in _cells(cell, three=three)])
    return out.getvalue()


def _cells(cell: str, *, three: bool) -> Sequence[str]:
    if interval := CELL_INTERVAL.fullmatch(cell):
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
    yield f"\\begin{{tabular}}{{{''.join(_column_type(sheet, i) for i in range(width))}}}"
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


def _column_type(sheet: Sheet, place: int) -> str:
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
