"""Read a file of a checkout that DVC may track: from the working tree, the cache or the remote."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from pipelines.core.errors import BadParams


def read_tracked(path: Path, *, root: Path) -> str:
    """Return the text of a UTF-8 file of a checkout, from DVC's cache or remote if only its pointer is there."""
    if path.exists() or not path.with_name(f"{path.name}.dvc").exists():
        return path.read_bytes().decode()
    import dvc.api
    from dvc.exceptions import DvcException

    try:
        data: bytes = dvc.api.read(str(path.relative_to(root)), repo=str(root), mode="rb")
    except DvcException as error:
        raise FileNotFoundError(path.name) from error
    return data.decode()


def read_csv(path: Path, *, root: Path, header: Sequence[str], where: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of a CSV file in a checkout after the header, with its place (``where line n``) for errors."""
    try:
        lines = csv.reader(StringIO(read_tracked(path, root=root), newline=""))
        if next(lines, None) != header:
            raise BadParams(where=where, detail=f"its first line is not {','.join(header)}")
        for number, line in enumerate(lines, start=2):
            yield f"{where} line {number}", line
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadParams(where=where, detail=type(error).__name__) from None
