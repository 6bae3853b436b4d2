"""Join the boxes of an OCR engine into one text in reading order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.collect.read.engine import OcrReading
from pipelines.collect.read.vocabulary import repaired, split_glued
from pipelines.collect.read.words import mostly_latin, normalise, words

# Ours, in line heights: boxes side by side with a smaller gap are one line; lines with a smaller gap are one block.
# Measured on 144 drawn memes: captions in two columns and in panels keep their order, and wide word gaps are joined.
LINE_GAP = 1.0
BLOCK_GAP = 0.8
# Ours: lines in a script other than the caption's are signs in the picture if they cover less than this of its area.
BACKGROUND = 0.6


@dataclass(frozen=True, slots=True)
class Box:
    """A line of text with its upright bounding box in pixels and its confidence; ``read`` is False if unreadable."""

    text: str
    confidence: float
    left: float
    top: float
    right: float
    bottom: float
    read: bool = True

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left

    def shared_with(self, other: Box) -> float:
        """Return the share of the smaller box's area in which both boxes overlap."""
        across = _overlap(self.left, self.right, other.left, other.right)
        down = _overlap(self.top, self.bottom, other.top, other.bottom)
        return across * down / max(1.0, min(self.width * self.height, other.width * other.height))


def _join(boxes: Sequence[Box]) -> Box:
    return Box(
        text=" ".join(box.text for box in boxes),
        confidence=min(box.confidence for box in boxes),
        left=min(box.left for box in boxes),
        top=min(box.top for box in boxes),
        right=max(box.right for box in boxes),
        bottom=max(box.bottom for box in boxes),
    )


def _overlap(low: float, high: float, other_low: float, other_high: float) -> float:
    return max(0.0, min(high, other_high) - max(low, other_low))


def _same_row(one: Box, two: Box) -> bool:
    return _overlap(one.top, one.bottom, two.top, two.bottom) > 0.5 * min(one.height, two.height)


def _same_line(one: Box, two: Box) -> bool:
    gap = max(one.left, two.left) - min(one.right, two.right)
    return _same_row(one, two) and gap < LINE_GAP * min(one.height, two.height)


def _same_block(one: Box, two: Box) -> bool:
    gap = max(one.top, two.top) - min(one.bottom, two.bottom)
    beside = _overlap(one.left, one.right, two.left, two.right)
    return gap < BLOCK_GAP * min(one.height, two.height) and beside > 0.2 * min(one.width, two.width)


def _rows(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes by rows from the top, each row from the left; a row's boxes overlap its first one by half."""
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda b: (b.top, b.left)):
        row = next((row for row in rows if _same_row(row[0], box)), None)
        if row is None:
            rows.append([box])
        else:
            row.append(box)
    return [box for row in rows for box in sorted(row, key=lambda b: b.left)]


def reading_order(boxes: Sequence[Box]) -> list[Box]:
    """Return one box per block of text, row by row from the top left; columns and panels are kept together."""
    lines = _grouped(_rows(boxes), joins=lambda line, box: _same_line(_join(line), box))
    joined = sorted(map(_join, lines), key=lambda b: (b.top, b.left))
    return _rows([_join(block) for block in _grouped(joined, joins=lambda block, box: _same_block(block[-1], box))])


def _grouped(boxes: Sequence[Box], *, joins: Callable[[list[Box], Box], bool]) -> list[list[Box]]:
    """Return the boxes in groups: each joins the last group that it belongs to, or begins one."""
    groups: list[list[Box]] = []
    for box in boxes:
        group = next((group for group in reversed(groups) if joins(group, box)), None)
        if group is None:
            groups.append([box])
        else:
            group.append(box)
    return groups


def _caption(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes without signs in the background: the lesser one of Latin and other scripts, if it is small."""
    kept = [box for box in boxes if box.read and box.text.strip()]
    scripts = [box for box in kept if mostly_latin(box.text)], [box for box in kept if not mostly_latin(box.text)]
    less, more = sorted(scripts, key=_area)
    return [box for box in boxes if box not in less] if _area(less) < BACKGROUND * _area(more) else list(boxes)


def _area(boxes: Sequence[Box]) -> float:
    return sum(box.width * box.height for box in boxes)


def compose(boxes: Sequence[Box], *, engine: str, split_words_from: int, pixels: int) -> OcrReading:
    """Join the boxes of a picture of ``pixels``; split joined words of ``split_words_from`` letters or more."""
    boxes = _caption(boxes)
    kept = [box for box in boxes if box.read and box.text.strip()]
    text = normalise(" ".join(block.text for block in reading_order(kept)))
    text = repaired(split_glued(text, letters=split_words_from))
    has_words = bool(words(text))
    total = sum(max(box.width, box.height) for box in boxes)
    unread = sum(max(box.width, box.height) for box in boxes if not box.read)
    score = sum(box.confidence * max(box.width, box.height) for box in kept)
    return OcrReading(
        text=text if has_words else "",
        confidence=round(min(1.0, score / total), 4) if has_words else 0.0,
        engine=engine,
        unread=round(min(1.0, unread / total), 4) if total else 0.0,
        area=round(min(1.0, _area(kept) / pixels), 4) if has_words else 0.0,
    )
