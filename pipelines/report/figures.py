"""Draw the report's plots as SVG: FigSIM's Figures 3, 4, 7 and 8, scores with intervals, and reliability.

Plain shapes in the page's own colours follow the light or dark theme and need nothing outside the page
(``page.STYLE`` defines the classes). Bars are horizontal, below their labels, so that long labels fit a phone, and no
bar is distinguished by colour alone. The same numbers always give the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 460  # user units; about the width of a phone, so that type of 13 units stays readable
LEFT, RIGHT = 4, 76  # margins; the right one has the figure after a bar
PLOT = WIDTH - LEFT - RIGHT
INSET = 6  # of plots with dots, so that one at 0 is not cut off
TYPE = 13
STEPS = (1, 2, 5)
SQUARE = 300  # side of the reliability plot


@dataclass(frozen=True)
class Miss:
    """How often one label is predicted too often and too rarely, and its number of items (``total``).

    Means over runs need not be whole numbers. A ``total`` of ``None`` is not shown.
    """

    label: str
    over: float
    under: float
    total: float | None = None


@dataclass(frozen=True)
class Score:
    """A labelled score between 0 and 1, its confidence interval, and the paper's value; ``None`` if missing."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    paper: float | None = None


@dataclass(frozen=True)
class Means:
    """The means of one level, a bar for each kind: (kind, mean, low, high), where ``None`` is a missing number.

    ``hidden``: kinds whose mean is not shown, because they have few items.
    """

    label: str
    bars: tuple[tuple[str, float | None, float | None, float | None], ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bin:
    """A bin of predicted probabilities: mean (``said``), share of true labels (``seen``) and number of answers."""

    said: float
    seen: float
    n: int


def misses(rows: Sequence[Miss], *, title: str) -> str:
    """Draw a bar for overpredictions and one for underpredictions of each label (FigSIM Figures 4, 7 and 8)."""
    most = max([1.0, *(n for row in rows for n in (row.over, row.under))])
    apart = step(most)
    end = apart * -(-most // apart)
    shapes: list[str] = []
    top = 28.0
    for row in rows:
        shapes.append(text(LEFT, top + TYPE, _named(row), kind="name"))
        for i, (kind, n) in enumerate((("over", row.over), ("under", row.under))):
            y = top + 20 + 17 * i
            width = PLOT * n / end
            shapes.append(f'<rect class="{kind}" x="{LEFT}" y="{pt(y)}" width="{pt(width)}" height="14"/>')
            shapes.append(text(LEFT + width + 5, y + 11.5, f"{_count(n)} {kind}", kind="value"))
        top += 64
    ticks = [(_count(apart * i), PLOT * apart * i / end) for i in range(int(end / apart) + 1)]
    return drawing(
        title, [*_key([("over", "over"), ("under", "under")]), *axis(ticks, bottom=top - 4), *shapes], height=top + 16
    )


def scores(rows: Sequence[Score], *, title: str) -> str:
    """Draw one bar per score from 0 to 100 %, with a line for its interval and a diamond for the paper's value."""
    shapes: list[str] = []
    top = 28.0
    for row in rows:
        middle = top + 28
        shapes.append(text(LEFT, top + TYPE, row.label, kind="name"))
        if row.value is None:
            shapes.append(text(LEFT, middle + 4.5, "no result of ours", kind="value"))
        else:
            shapes.append(
                f'<rect class="ours" x="{LEFT}" y="{pt(middle - 7)}" width="{pt(PLOT * row.value)}" height="14"/>'
            )
            shapes.extend(_whisker(row, y=middle))
            shapes.append(text(LEFT + PLOT + 10, middle + 4.5, f"{100 * row.value:.1f}", kind="value"))
        if row.paper is not None:
            shapes.append(_diamond(LEFT + PLOT * row.paper, middle))
        top += 46
    ticks = [(str(percent), PLOT * percent / 100) for percent in range(0, 101, 20)]
    keys = [("ours", "ours, with its interval")]
    if any(row.paper is not None for row in rows):
        keys.append(("paper", "the paper's"))
    return drawing(title, [*_key(keys), *axis(ticks, bottom=top - 2), *shapes], height=top + 18)


def means(rows: Sequence[Means], *, title: str, most: float) -> str:
    """Draw for each level a bar for each kind from 0 to ``most``, with its interval (FigSIM's Figure 3)."""
    styles, plot = ("under", "over"), WIDTH - LEFT - 118
    shapes: list[str] = []
    top = 28.0
    for row in rows:
        shapes.append(text(LEFT, top + TYPE, row.label, kind="name"))
        for i, (kind, value, low, high) in enumerate(row.bars):
            y = top + 20 + 17 * i
            if value is not None:
                width = pt(plot * value / most)
                shapes.append(
                    f'<rect class="{styles[i % 2]} pale" x="{LEFT}" y="{pt(y)}" width="{width}" height="14"/>'
                )
                scaled = (None if end is None else plot / PLOT * end / most for end in (low, high))
                shapes.extend(_whisker(Score(kind, value, *scaled), y=y + 7))
            missing = "hidden" if kind in row.hidden else "no item"
            words = f"{missing}, {kind}" if value is None else f"{value:.2f} {kind}"
            shapes.append(text(LEFT + (0 if value is None else plot + 8), y + 11.5, words, kind="value"))
        top += 30 + 17 * len(row.bars)
    steps = 7 if most == 7 else 5
    ticks = [(f"{most * i / steps:.2g}", plot * i / steps) for i in range(steps + 1)]
    keys = [(f"{styles[i % 2]} pale", bar[0]) for i, bar in enumerate(rows[0].bars)] if rows else []
    return drawing(title, [*_key(keys), *axis(ticks, bottom=top - 4), *shapes], height=top + 16)


def reliability(bins: Sequence[Bin], *, title: str) -> str:
    """Draw a reliability plot: observed share against predicted probability; the diagonal is perfect calibration.

    The area of a dot is proportional to its number of answers, with a minimum size.
    """
    left, top = 40.0, 12.0
    most = max((row.n for row in bins), default=1)
    shapes = [f'<path class="whisker" d="M{pt(left)} {pt(top + SQUARE)}L{pt(left + SQUARE)} {pt(top)}"/>']
    for row in bins:
        x, y = left + SQUARE * row.said, top + SQUARE * (1 - row.seen)
        radius = max(3.0, 14 * (row.n / most) ** 0.5)
        shapes.append(f'<circle class="ours" cx="{pt(x)}" cy="{pt(y)}" r="{pt(radius)}"/>')
    for percent in range(0, 101, 20):
        at = SQUARE * percent / 100
        column, line = pt(left + at), pt(top + SQUARE - at)
        shapes.insert(0, f'<line class="grid" x1="{column}" y1="{pt(top)}" x2="{column}" y2="{pt(top + SQUARE)}"/>')
        shapes.insert(0, f'<line class="grid" x1="{pt(left)}" y1="{line}" x2="{pt(left + SQUARE)}" y2="{line}"/>')
        shapes.append(text(left + at, top + SQUARE + 16, str(percent), kind="tick", anchor="middle"))
        shapes.append(text(left - 6, top + SQUARE - at + 4, str(percent), kind="tick", anchor="end"))
    shapes.append(text(left + SQUARE + 10, top + SQUARE - 2, "predicted, %", kind="tick"))
    shapes.append(text(left + SQUARE + 10, top + 10, "observed, %", kind="tick"))
    return drawing(title, shapes, height=top + SQUARE + 26)


def drawing(title: str, shapes: Sequence[str], *, height: float) -> str:
    """Return the SVG of a plot with an accessible name."""
    name = escape(title, quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {pt(height)}" role="img" aria-label="{name}">'
    return "\n".join([head, *shapes, "</svg>"])


def axis(ticks: Sequence[tuple[str, float]], *, bottom: float) -> Iterator[str]:
    """Yield the lines and numbers of a horizontal axis below a plot; a tick has its words and its distance."""
    for word, x in ticks:
        at = pt(LEFT + x)
        yield f'<line class="grid" x1="{at}" y1="26" x2="{at}" y2="{pt(bottom)}"/>'
        anchor = "start" if x <= INSET else "middle"
        yield text(LEFT + x, bottom + 14, word, kind="tick", anchor=anchor)


def _key(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    x = float(LEFT)
    for kind, word in entries:
        yield (
            _diamond(x + 7, 10)
            if kind == "paper"
            else f'<rect class="{kind}" x="{pt(x)}" y="4" width="14" height="12"/>'
        )
        yield text(x + 20, 14.5, word, kind="tick")
        x += 40 + 6.6 * len(word)


def _whisker(row: Score, *, y: float) -> Iterator[str]:
    if row.low is None or row.high is None:
        return
    low, high = (pt(LEFT + PLOT * end) for end in (row.low, row.high))
    yield f'<path class="whisker" d="M{low} {pt(y)}H{high}M{low} {pt(y - 4)}v8M{high} {pt(y - 4)}v8"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path class="paper" d="M{pt(x - 6)} {pt(y)}l6 -6l6 6l-6 6z"/>'


def text(x: float, y: float, words: str, *, kind: str, anchor: str = "start") -> str:
    """Return a line of words at a place; ``kind`` is its class."""
    return f'<text class="{kind}" x="{pt(x)}" y="{pt(y)}" text-anchor="{anchor}">{escape(words)}</text>'


def _named(row: Miss) -> str:
    return row.label if row.total is None else f"{row.label} ({_count(row.total)})"


def step(most: float) -> int:
    """Return the round distance between ticks for which at most six ticks are needed."""
    unit = 1
    while True:
        for step in STEPS:
            if most <= 5 * step * unit:
                return step * unit
        unit *= 10


def _count(n: float) -> str:
    return f"{n:,.0f}" if float(n).is_integer() else f"{n:,.1f}"


def pt(value: float) -> str:
    """Return a coordinate in tenths, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")
