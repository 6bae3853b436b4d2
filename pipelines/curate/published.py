"""Import a published split, which takes precedence, so that results are comparable with published ones."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

from pipelines.config.curate import Split
from pipelines.errors import BadParams
from pipelines.storage.tracked import read_tracked

HEADER = ["record_id", "image", "split"]


def published(params: Split, *, root: Path) -> dict[tuple[str, int], str]:
    """Return the rows of the CSV ``record_id,image,split`` that ``split.published`` names; empty if it names none.

    Raises:
        BadParams: the file is missing, or has another header, an unknown split, an image that is not a number, or an
            item twice.
    """
    if params.published is None:
        return {}
    where = f"split.published ({params.published})"
    rows: dict[tuple[str, int], str] = {}
    try:
        lines = csv.reader(StringIO(read_tracked(root / params.published, root=root), newline=""))
    except (OSError, UnicodeDecodeError) as error:
        raise BadParams(where=where, detail=type(error).__name__) from None
    if next(lines, None) != HEADER:
        raise BadParams(where=where, detail=f"its first line is not {','.join(HEADER)}")
    for number, line in enumerate(lines, start=2):
        item, split = _row(line, params=params, where=f"{where} line {number}")
        if item in rows:
            raise BadParams(where=f"{where} line {number}", detail="this item is in the file twice")
        rows[item] = split
    return rows


def _row(line: list[str], *, params: Split, where: str) -> tuple[tuple[str, int], str]:
    if len(line) != len(HEADER) or not line[1].isdecimal():
        raise BadParams(where=where, detail=f"not of the form {','.join(HEADER)} with a whole number for the image")
    record_id, image, split = line
    if split not in params.ratios:
        raise BadParams(where=where, detail=f"its split is not one of {', '.join(params.ratios)}")
    return (record_id, int(image)), split
