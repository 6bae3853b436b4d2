"""Draw the plots of the dataset's description as SVG: bars, columns by month, effect sizes, means by level.

They have the look of :mod:`pipelines.report.figures`, whose shapes and classes they use: nothing is shown by colour
alone, a hidden count has words instead of a bar, and the same numbers always give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.report.figures import INSET, LEFT, PLOT, TYPE, WIDTH, axis, drawing, pt, step, text

ROW = 42.0
# Ours: of the columns of the months
TALL = 150.0
LETTER = 7.6  # a wide letter of the values' type


@dataclass(frozen=True)
class Bar:
    """A labelled count, ``None`` if it is hidden, and the words after its bar."""

    label: str
    count: int | None
    words: str


@dataclass(frozen=True)
class Dot:
    """A labelled value with its interval, if any; ``marked`` ones have a filled dot, others an open one."""

    label: str
    value: float
    low: float | None
    high: float | None
    marked: bool = True


def bars(rows: Sequence[Bar], *, title: str) -> str:
    """Draw one horizontal bar per count."""
    most = max([1, *(row.count or 0 for row in rows)])
    apart = step(most)
    end = apart * -(-most // apart)
    shapes, top = [], 28.0
    for row in rows:
        shapes.append(text(LEFT, top + TYPE, row.label, kind="name"))
        width = PLOT * (row.count or 0) / end
        if row.count:
            shapes.append(f'<rect class="ours" x="{LEFT}" y="{pt(top + 19)}" width="{pt(width)}" height="14"/>')
        # beside the bar, or in front of its end where there is no room
        inside = LEFT + width + 6 + LETTER * len(row.words) > WIDTH
        x, anchor = (LEFT + width - 6, "end") if inside else (LEFT + width + 6, "start")
        shapes.append(text(x, top + 30.5, row.words, kind="value", anchor=anchor))
        top += ROW
    ticks = [(f"{apart * i:,}", PLOT * apart * i / end) for i in range(int(end / apart) + 1)]
    return drawing(title, [*axis(ticks, bottom=top), *shapes], height=top + 20)


def columns(rows: Sequence[Bar], *, title: str) -> str:
    """Draw one column per month, in their order; a hidden month has a dot, and each year's first month a label."""
    most = max([1, *(row.count or 0 for row in rows)])
    apart = step(most)
    end = apart * -(-most // apart)
    left, top = 40.0, 10.0
    room = (WIDTH - left - 6) / max(1, len(rows))
    shapes = []
    for i in range(int(end / apart) + 1):
        y = top + TALL * (1 - i * apart / end)
        shapes.append(f'<line class="grid" x1="{pt(left)}" y1="{pt(y)}" x2="{WIDTH - 6}" y2="{pt(y)}"/>')
        shapes.append(text(left - 6, y + 4, f"{i * apart:,}", kind="tick", anchor="end"))
    last = -100.0
    for i, row in enumerate(rows):
        x = left + i * room
        if row.count is None:
            shapes.append(f'<circle class="open" cx="{pt(x + room / 2)}" cy="{pt(top + TALL - 4)}" r="2.5"/>')
        elif row.count:
            tall = TALL * row.count / end
            place = f'x="{pt(x + room * 0.12)}" y="{pt(top + TALL - tall)}"'
            shapes.append(f'<rect class="ours" {place} width="{pt(room * 0.76)}" height="{pt(tall)}"/>')
        if (room > 56 or i == 0 or row.label.endswith("-01")) and x - last > 52:
            anchor = "end" if x + 46 > WIDTH else "start"
            shapes.append(
                text(WIDTH - 6 if anchor == "end" else x, top + TALL + 17, row.label, kind="tick", anchor=anchor)
            )
            last = x
    return drawing(title, shapes, height=top + TALL + 26)


def estimates(rows: Sequence[Dot], *, title: str, zero: bool, words: tuple[str, str] | None = None) -> str:
    """Draw one dot with its interval per row; ``zero``: the axis begins at 0; ``words``: on filled and open dots."""
    ends = [x for row in rows for x in (row.value, row.low, row.high) if x is not None]
    low, high = (0.0 if zero else min(ends, default=0.0)), max(ends, default=1.0)
    low, high, apart = _range(low, high)

    def place(x: float) -> float:
        return LEFT + INSET + (PLOT - INSET) * (x - low) / (high - low)

    shapes, top = [], 28.0
    if words:
        shapes += [_dot(LEFT + 6, 10, filled=True), text(LEFT + 18, 14.5, words[0], kind="tick")]
        x = LEFT + 40 + LETTER * len(words[0])
        shapes += [_dot(x, 10, filled=False), text(x + 12, 14.5, words[1], kind="tick")]
    for row in rows:
        middle = top + 26
        shapes.append(text(LEFT, top + TYPE, row.label, kind="name"))
        if row.low is not None and row.high is not None:
            ends_of = " ".join(f"M{pt(place(x))} {pt(middle - 4)}v8" for x in (row.low, row.high))
            line = f"M{pt(place(row.low))} {pt(middle)}H{pt(place(row.high))}"
            shapes.append(f'<path class="whisker" d="{line}{ends_of}"/>')
        shapes.append(_dot(place(row.value), middle, filled=row.marked))
        shapes.append(text(LEFT + PLOT + 10, middle + 4.5, short(row.value), kind="value"))
        top += ROW
    count = round((high - low) / apart)
    ticks = [(short(low + i * apart), place(low + i * apart) - LEFT) for i in range(count + 1)]
    return drawing(title, [*axis(ticks, bottom=top), *shapes], height=top + 20)


def short(value: float) -> str:
    """Return a number with three significant digits, but at most three decimals."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def _range(low: float, high: float) -> tuple[float, float, float]:
    spread = max(high - low, 1e-6)
    unit = 10.0
    while spread * unit < 100:
        unit *= 10
    apart = step(spread * unit) / unit
    first = apart * int(low / apart - (low < 0))
    last = first
    while last < high - 1e-12:
        last += apart
    return first, max(last, first + apart), apart


def _dot(x: float, y: float, *, filled: bool) -> str:
    return f'<circle class="{"dot" if filled else "open"}" cx="{pt(x)}" cy="{pt(y)}" r="5"/>'
