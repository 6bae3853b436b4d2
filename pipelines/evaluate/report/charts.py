"""Draw the report's charts as SVG with matplotlib: scores, counts and effects by label, and reliability.

A chart takes the page's colours, so that it follows the light or dark theme, and its type, and needs nothing outside
the page. Marks are below their labels, so that long labels fit a phone, and nothing is shown by colour alone. The same
numbers always give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

# matplotlib's colours -> the variables of the page's style sheet
COLOURS = {
    "#1c2128": "--ink",
    "#59636e": "--soft",
    "#ffffff": "--paper",
    "#0072b2": "--blue",
    "#c55300": "--orange",
    "#d5dae0": "--line",
}
INK, SOFT, PAPER, BLUE, ORANGE, _ = COLOURS
STYLE = Path(__file__).with_name("charts.mplstyle")
WIDTH = 460  # points; about the width of a phone, so that type of 13 points stays readable
LEFT, LETTER, TYPE = 12, 7.6, 13  # margin, width of a letter, and size of type
HEAD, LABEL, BAR, GAP = 26, 19, 17, 9  # heights: of the key, of a row's label and of each of its marks, between rows
SQUARE, TALL = 300, 150  # sides of the reliability plot, and the height of columns
MARKERS = "os^Dv*"  # of curves: at most so many
SHAPES: dict[str, dict[str, Any]] = {
    BLUE: {"marker": "s", "s": 90, "facecolor": BLUE, "alpha": 0.6},
    ORANGE: {"marker": "s", "s": 90, "facecolor": ORANGE, "alpha": 0.6},
    "filled": {"s": 60, "facecolor": BLUE, "edgecolor": BLUE, "linewidth": 2},
    "open": {"s": 60, "facecolor": PAPER, "edgecolor": BLUE, "linewidth": 2},
    "paper": {"marker": "D", "s": 80, "facecolor": ORANGE, "edgecolor": PAPER},
}
# Of what is not drawn: the rest is the page's
UNUSED = re.compile(
    r'\A<\?xml.*?<svg|<style(?:(?!</?style).)*+</style>|\s(?:xmlns:xlink|version|width|height)="[^"]*"(?=[^<]{0,400}viewBox)'
    r'| clip-path="[^"]*"|<clipPath(?:(?!</?clipPath).)*+</clipPath>'
    r"|(?<=<g) id=\"[^\"]*\"|font-[a-z]+: [^;\"]*;? ?|font: [^;\"]*;? ?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Mark:
    """A bar or dot of a row: its value (``None``: only words), its interval, and the words beside it.

    ``kind``: the colour of a bar, or ``filled`` or ``open`` for a dot; ``paper``: the paper's value, a diamond.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    words: str = ""
    kind: str = BLUE
    paper: float | None = None


@dataclass(frozen=True)
class Row:
    """A labelled row of marks."""

    label: str
    marks: tuple[Mark, ...]


def bars(rows: Sequence[Row], *, title: str, most: float | None = None, keys: Sequence[tuple[str, str]] = ()) -> str:
    """Draw a bar for each mark, from 0 to ``most``; ``keys``: colours of bars, or ``paper``, and their words."""
    return _rows(rows, title=title, most=most, keys=keys, dots=False)


def dots(rows: Sequence[Row], *, title: str, zero: bool, words: tuple[str, str] | None = None) -> str:
    """Draw a dot for each mark; ``zero``: the axis begins at 0; ``words``: on filled and open dots."""
    keys = tuple(zip(("filled", "open"), words or (), strict=False))
    return _rows(rows, title=title, keys=keys, dots=True, zero=zero)


def columns(counts: Sequence[tuple[str, int | None]], *, title: str) -> str:
    """Draw a column for each month; a hidden month has a dot, and each year's first month a label."""
    with _drawing(title, height=TALL + 46, box=(54, 10, WIDTH - 80, TALL)) as (axes, made):
        at = range(len(counts))
        axes.bar(at, [count or 0 for _, count in counts], width=0.76, color=BLUE, alpha=0.6)
        hidden = [i for i, (_, count) in enumerate(counts) if count is None]
        axes.scatter(hidden, [0] * len(hidden), clip_on=False, **SHAPES["open"])
        every = max(1, -(-len(counts) // 6))
        named = [i for i in at if counts[i][0].endswith("-01")][:: max(1, len(counts) // 84)] or list(at)[::every]
        axes.set_xticks(named, [counts[i][0] for i in named])
        _scale(axes.yaxis, max([1, *(count or 0 for _, count in counts)]))
        axes.set_ylim(0, axes.get_yticks()[-1])
        axes.set_xlim(-0.6, max(1, len(counts)) - 0.4)
        axes.tick_params(axis="x", pad=10)
        axes.grid(axis="y")
    return made[0]


def reliability(bins: Sequence[tuple[float, float, int]], *, title: str) -> str:
    """Draw observed share against predicted probability: (predicted, observed, answers); the diagonal is perfect.

    The area of a dot is proportional to its number of answers, with a minimum size.
    """
    with _drawing(title, height=SQUARE + 60, box=(56, 12, SQUARE, SQUARE)) as (axes, made):
        axes.plot([0, 100], [0, 100], color=INK, linewidth=1.5)
        most = max((n for _, _, n in bins), default=1)
        said, seen = [100 * x for x, _, _ in bins], [100 * y for _, y, _ in bins]
        sizes = [max(36.0, 784 * n / most) for _, _, n in bins]
        axes.scatter(said, seen, s=sizes, color=BLUE, alpha=0.6, linewidth=0, zorder=3, clip_on=False)
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="predicted, %", ylabel="observed, %")
        axes.grid()
    return made[0]


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], *, title: str, across: str, up: str) -> str:
    """Draw a line for each name, falling from 100 to 0; a queue in random order is the straight one."""
    with _drawing(title, height=SQUARE + 66 + 20 * len(lines), box=(56, 12, SQUARE, SQUARE)) as (axes, made):
        most = max(x for points in lines.values() for x, _ in points)
        axes.plot([0, most], [100, 0], color=INK, linewidth=1)
        for row, ((name, points), marker) in enumerate(zip(lines.items(), MARKERS, strict=False)):
            colour, low = (BLUE, ORANGE)[row % 2], -(58 + 20 * row) / SQUARE
            shape = {"color": colour, "marker": marker, "linewidth": 1.5, "clip_on": False}
            axes.plot([x for x, _ in points], [y for _, y in points], markersize=5, **shape)
            axes.plot([0.02], [low], transform=axes.transAxes, **shape)
            axes.text(0.07, low - 0.014, name, transform=axes.transAxes)
        axes.set(xlim=(0, most), ylim=(0, 100), xlabel=across, ylabel=up)
        axes.grid()
    return made[0]


def short(value: float) -> str:
    """Return a number with three significant digits, but at most three decimals."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def _rows(
    rows: Sequence[Row],
    *,
    title: str,
    dots: bool,
    most: float | None = None,
    zero: bool = True,
    keys: Sequence[tuple[str, str]] = (),
) -> str:
    marks = [mark for row in rows for mark in row.marks]
    head = HEAD if keys else LEFT
    height = head + 1 + sum(LABEL + BAR * len(row.marks) + GAP for row in rows)
    words = 10 + LETTER * max([0, *(len(mark.words) for mark in marks)])
    box = (LEFT, head, WIDTH - LEFT - max(words, 24), height - head)
    with _drawing(title, height=height + 22, box=box) as (axes, made):
        values = [x for mark in marks for x in (mark.value, mark.low, mark.high) if x is not None]
        _scale(axes.xaxis, most or max(values, default=1.0), least=0.0 if zero else min(values, default=0.0))
        axes.set(xlim=(axes.get_xticks()[0], most or axes.get_xticks()[-1]), ylim=(height, head), yticks=[])
        axes.grid(axis="x")
        _key(axes, keys)
        y = float(head)
        for row in rows:
            axes.text(0, y + TYPE, row.label, transform=axes.get_yaxis_transform())
            y += LABEL
            for mark in row.marks:
                _mark(axes, mark, y=y + BAR / 2, dot=dots)
                y += BAR
            y += GAP
    return made[0]


def _mark(axes: Any, mark: Mark, *, y: float, dot: bool) -> None:
    if mark.value is not None and dot:
        axes.scatter([mark.value], [y], zorder=4, clip_on=False, **SHAPES[mark.kind])
    elif mark.value is not None:
        axes.barh(y, mark.value, height=14, color=mark.kind, alpha=0.6, zorder=2)
    if mark.low is not None and mark.high is not None:
        axes.plot([mark.low, mark.high], [y, y], color=INK, linewidth=1.5, marker="|", zorder=3, clip_on=False)
    if mark.paper is not None:
        axes.scatter([mark.paper], [y], zorder=5, clip_on=False, **SHAPES["paper"])
    beside = {"xytext": (8, 0), "textcoords": "offset points"}
    axes.annotate(mark.words, (1, y + 4.5), xycoords=axes.get_yaxis_transform(), **beside)


def _key(axes: Any, keys: Sequence[tuple[str, str]]) -> None:
    """Write what the colours and shapes mean above the first row."""
    width, at, x = axes.get_position().width * WIDTH, axes.get_yaxis_transform(), 0.0
    for kind, words in keys:
        axes.scatter([(x + 6) / width], [10], transform=at, clip_on=False, **SHAPES[kind])
        axes.text((x + 18) / width, 14.5, words, transform=at, color=SOFT)
        x += 40 + LETTER * len(words)


def _scale(axis: Any, most: float, *, least: float = 0.0) -> None:
    """Set round ticks from ``least`` to ``most`` or beyond, at most seven."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ticks = MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(least, max(most, least + 1e-6))
    axis.set_ticks([tick for tick in ticks if tick >= least or not least])
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


@contextmanager
def _drawing(title: str, *, height: float, box: tuple[float, float, float, float]) -> Iterator[tuple[Any, list[str]]]:
    """Yield axes in a box (left, top, width, height in points) and a list, in which their SVG is put at the end."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    made: list[str] = []
    # the ids of shapes that are used twice differ between the charts of a page
    with rc_context({"svg.hashsalt": title}, fname=STYLE):
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        left, top, across, down = box
        axes: Any = figure.add_axes((left / WIDTH, 1 - (top + down) / height, across / WIDTH, down / height))
        yield axes, made
        file = StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    svg = UNUSED.sub(lambda match: "<svg" if match[0].endswith("<svg") else "", file.getvalue())
    for colour, variable in COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = svg.replace("xlink:href", "href").replace(' style=""', "").strip()
    made.append(svg.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1))
