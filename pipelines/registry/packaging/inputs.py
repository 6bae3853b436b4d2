"""Declare the columns of a registered model's input: their types, and where a corpus has them."""

from __future__ import annotations

from collections.abc import Collection

TYPES = {"title": "string", "body": "string", "image": "binary", "text": "string"}
# The others may be missing, and any cell may be null; the words of a picture are then read from it.
REQUIRED = ("title", "image")
# Content of a corpus -> the columns that its items fill.
OF_CONTENT = {"texts": ("title", "body"), "images": ("image", "text")}
# Column -> the table of the corpus and its column.
SOURCES = {
    "title": ("records", "title"),
    "body": ("records", "body"),
    "image": ("images", "bytes"),
    "text": ("images", "text"),
}
# Table -> its files below ``data/<corpus>``.
FILES = {"records": "*/records.parquet", "images": "*/images/*.parquet"}


def columns(content: str, *, reads: Collection[str]) -> tuple[str, ...]:
    """Return the columns for a model of a corpus that reads ``text``, ``image`` or both; words can be in a picture."""
    return tuple(column for column in OF_CONTENT[content] if "text" in reads or column in reads)
