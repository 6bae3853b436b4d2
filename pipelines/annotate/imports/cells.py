"""Parse the cells of a published dataset: lists, 0 and 1, names of posts, times.

Cells are untrusted: their length is limited, nothing in them is run, and no error quotes one.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Annotated

from pydantic import Field

from crisis_corpus.hydrate import FULLNAME
from pipelines.core.taxonomy import scheme

# Ours: far above a prolific person's posts, and small enough for Python's parser to read at once.
MAX_CELL = 4 * 2**20
ADDRESS = re.compile(r"(?:/comments/|redd\.it/)([0-9a-z]{1,13})(?:[/?#]|$)", re.IGNORECASE)
# Reddit's ids have had five or more characters since 2006; a shorter one is more likely a row number.
BARE = re.compile(r"([0-9a-z]{5,13})", re.IGNORECASE)
REDDIT_BEGAN = 2005
# A string of a list as Python or JSON writes it, one that is not finished, and a list that ends before its bracket.
STRING = r"""(?:[uU]?(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"))"""
UNFINISHED = r"""(?:[uU]?(?:'(?:[^'\\]++|\\.)*+\\?|"(?:[^"\\]++|\\.)*+\\?)?)"""
CUT_LIST = re.compile(rf"\s*\[\s*(?:({STRING}(?:\s*,\s*{STRING})*+)\s*(?:,\s*{UNFINISHED})?|{UNFINISHED})", re.DOTALL)
TRUE, FALSE = {"1", "1.0", "true", "yes", "y", "x"}, {"0", "0.0", "false", "no", "n", ""}
# The same few names of columns are compared in each row.
normal = cache(scheme.normal)
Cells = Mapping[str, object]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


def first(cells: Cells, names: Names) -> object:
    """Return the first of the named cells that is present and not blank, or ``None``."""
    for name in names:
        value = cells.get(normal(name))
        if value is not None and value != "" and not is_nan(value):
            return value
    return None


def is_nan(value: object) -> bool:
    """Return whether a cell is NaN, which pandas writes for an empty one."""
    return isinstance(value, float) and math.isnan(value)


def text_of(value: object) -> str:
    """Return a cell as text, empty for ``None``, a whole number without a fraction.

    An unpaired surrogate is replaced by a question mark.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).encode(errors="replace").decode()


def plain_number(text: str) -> str:
    """Return a number whose fraction is 0 without it, and any other text unchanged."""
    return re.sub(r"^(-?[0-9]+)[.,]0+$", r"\1", text)


def list_of(value: object) -> list[str] | None:
    """Return the strings of a JSON list or of a cell with a JSON or Python list; ``None`` for anything else."""
    if isinstance(value, str):
        value = _literal(value)
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        return None
    return [text_of(part) for part in value]


def complete_posts(cell: object) -> list[str] | None:
    """Return the complete strings of a list whose end was cut off, or ``None`` for anything else."""
    match = CUT_LIST.fullmatch(cell) if isinstance(cell, str) else None
    return list_of(f"[{match[1] or ''}]") if match else None


def _literal(cell: str) -> object:
    if len(cell) > MAX_CELL or not cell.lstrip().startswith("["):
        return None
    parsers: tuple[Callable[[str], object], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(cell.strip())
    return None


def flag_of(value: object) -> bool | None:
    """Return whether a cell is 1 (true) or 0 (false), or ``None`` for any other content."""
    if is_nan(value):
        return None
    word = "" if value is None else str(value).strip().casefold().replace(",", ".")
    return word in TRUE if word in TRUE | FALSE else None


def fullname_of(value: object) -> str | None:
    """Return the fullname (``t3_...``) of a post given as fullname, bare id or URL, or ``None`` for other text."""
    word = text_of(value).strip()
    if FULLNAME.fullmatch(word.lower()):
        return word.lower()
    match = ADDRESS.search(word) or BARE.fullmatch(word)
    return f"t3_{match[1].lower()}" if match else None


def moment_of(value: object) -> datetime | None:
    """Parse seconds since the epoch or an ISO date to an aware UTC time, or return ``None`` for other text."""
    word = text_of(value).strip()
    try:
        if re.fullmatch(r"\d{9,10}(\.\d+)?", word):
            word = datetime.fromtimestamp(float(word), tz=UTC).isoformat()
        moment = datetime.fromisoformat(word)
        moment = (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year >= REDDIT_BEGAN else None
