"""Render a report page of prose, tables and plots as self-contained HTML or as Markdown.

The HTML has no scripts and no external addresses, follows the reader's light or dark theme, and adapts to phones. Every
plot has its numbers in a table below it; Markdown has only the table. The same page always gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pipelines.metrics.label_tables import Sheet

# a browser breaks a line at spaces and after a hyphen within a word, and with `_breakable` after an underscore and not
# within an interval
UNBROKEN = re.compile(r"\[[^\]]*\]|[^\s_-]+[_-]?|[_-]")
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
    """Return a sentence or paragraph."""
    return str(_texts()[name]).format(**values)


def points(name: str, *first: str, noun: str = "items") -> Points:
    """Return a list of sentences, after further ones."""
    return Points((*first, *(sentence.format(noun=noun) for sentence in _texts()[name])))
