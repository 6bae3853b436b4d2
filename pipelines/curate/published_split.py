"""Read a published split, which takes precedence, so that results are comparable with published results."""

from __future__ import annotations

from pathlib import Path

from pipelines.config.curate import Split
from pipelines.errors import BadParams
from pipelines.storage.tracked import read_csv

HEADER = ["record_id", "image", "split"]


def published(params: Split, *, root: Path) -> dict[tuple[str, int], str]:
    """Read the CSV file ``split.published`` (``record_id,image,split``); return no rows if it is not configured.

    Raises:
        BadParams: the file is missing, or has another header, an unknown split, an image that is not a number, or an
            item twice.
    """
    if params.published is None:
        return {}
    where = f"split.published ({params.published})"
    rows: dict[tuple[str, int], str] = {}
    for place, line in read_csv(root / params.published, root=root, header=HEADER, where=where):
        item, split = _row(line, params=params, where=place)
        if item in rows:
            raise BadParams(where=place, detail="this item is in the file twice")
        rows[item] = split
    return rows


def _row(line: list[str], *, params: Split, where: str) -> tuple[tuple[str, int], str]:
    if len(line) != len(HEADER) or not line[1].isdecimal():
        raise BadParams(where=where, detail=f"not of the form {','.join(HEADER)} with a whole number for the image")
    record_id, image, split = line
    if split not in params.ratios:
        raise BadParams(where=where, detail=f"its split is not one of {', '.join(params.ratios)}")
    return (record_id, int(image)), split
