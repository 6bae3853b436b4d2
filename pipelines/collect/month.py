"""Convert Airflow partition keys to half-open month intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.errors import BadWindow

KEY = re.compile(r"([12][0-9]{3})-(0[1-9]|1[0-2])")


@dataclass(frozen=True)
class Window:
    """A calendar month in UTC, from its start (included) to the start of the next month (excluded)."""

    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        """Return the partition key, ``YYYY-MM``."""
        return f"{self.start:%Y-%m}"

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    @classmethod
    def from_key(cls, key: str) -> Window:
        """Return the month of a partition key.

        Raises:
            BadWindow: ``key`` is not ``YYYY-MM``.
        """
        match = KEY.fullmatch(key)
        if not match:
            raise BadWindow(key=key)
        year, month = int(match[1]), int(match[2])
        start = datetime(year, month, 1, tzinfo=UTC)
        return cls(start, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC))
