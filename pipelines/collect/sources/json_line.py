"""Parse one line of a dump: fast where it is strict JSON, and tolerant of what other writers put into unused fields."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

# Ours: the fields that are read are nested 6 deep at most; what is nested deeper than this is left out.
MAX_DEPTH = 32
# A double holds integers up to here exactly; no field that is read has longer ones.
MAX_DIGITS = 15
# Strings are matched as a whole, also an unfinished one, so that the search is linear in the length of the line.
TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def loads(line: bytes) -> Any:
    """Return the value of a line, or ``None`` if it is not JSON or not UTF-8.

    A line that strict JSON excludes is read with lone surrogates, ``NaN``, a byte order mark and integers of any length
    (as floats); values that are nested deeper than ``MAX_DEPTH`` are replaced by null.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(_shallow(line.decode("utf-8-sig")), parse_int=_number)
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _shallow(text: str) -> str:
    """Replace the lists and objects at ``MAX_DEPTH`` by null."""
    parts, depth, kept = [], 0, 0
    for token in TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == MAX_DEPTH:
                parts.append(text[kept : token.start()])
        elif token[0] in "]}":
            if depth == MAX_DEPTH:
                parts.append("null")
                kept = token.end()
            depth -= 1
    return "".join(parts) + text[kept:] if depth == 0 else ""
