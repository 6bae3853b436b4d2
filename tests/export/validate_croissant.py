"""Read a Croissant file with mlcroissant, in its environment ``.croissant``, and print what it finds as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import absl.logging  # type: ignore[import-not-found]
import mlcroissant as mlc  # type: ignore[import-not-found]


class Kept(logging.Handler):
    """Keeps messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def plain(value: Any) -> Any:
    """Return a cell as JSON; text is bytes, as in TensorFlow's data sets."""
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [plain(each) for each in value] if isinstance(value, list) else value


kept = Kept()
logging.getLogger().addHandler(kept)
absl.logging.set_verbosity(absl.logging.WARNING)
data = mlc.Dataset(sys.argv[1])
issues = data.metadata.ctx.issues
rows = {
    records.id: [
        {name.partition("/")[2]: plain(cell) for name, cell in row.items()} for row in data.records(records.id)
    ]
    for records in data.metadata.record_sets
}
told = {"errors": sorted(issues.errors), "warnings": sorted(issues.warnings), "said": kept.said, "rows": rows}
sys.stdout.write(json.dumps(told | {"version": str(data.metadata.ctx.conforms_to)}) + "\n")
