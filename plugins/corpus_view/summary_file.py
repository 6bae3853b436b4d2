"""Read the summary of the corpus, and keep it until its file changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc_airflow import settings

# That of `pipelines.summary.written`.
VERSION = 1
# A summary is some 100 bytes for a month and 200 for a row of the journal; a larger file is not one.
LARGEST = 32 * 1024 * 1024


@dataclass(frozen=True)
class Summary:
    """The content of the summary, or why there is none (``fault``)."""

    found: dict[str, Any]
    fault: str = ""


class SummaryFile:
    """The summary file of a home; its content is parsed once for each change of the file."""

    def __init__(self, home: Path = settings.HOME) -> None:
        self.path = home / "summary" / "corpus.json"
        self._known: tuple[tuple[int, int, int], Summary] | None = None

    def read(self) -> Summary:
        """Return the present summary."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return Summary({}, "There is no summary of the corpus yet.")
        except OSError as error:
            return Summary({}, f"The summary of the corpus cannot be read ({type(error).__name__}).")
        mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._known is None or self._known[0] != mark:
            self._known = (mark, self._parsed(stat.st_size))
        return self._known[1]

    def _parsed(self, size: int) -> Summary:
        if size > LARGEST:
            return Summary({}, "The summary of the corpus is too large to be one.")
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError) as error:
            return Summary({}, f"The summary of the corpus cannot be read ({type(error).__name__}).")
        if not isinstance(found, dict) or found.get("version") != VERSION:
            return Summary({}, "Another version of the software wrote the summary of the corpus.")
        return Summary(found)
