"""Write the items that a step leaves out, with the reason, as the table ``drops``, and count them by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.core import telemetry
from pipelines.store import tables
from pipelines.store.tables import Item

# The image number of a record that is left out as a whole.
WHOLE = -1
# The start of a row's id that names no record but a subreddit that the source did not show: closed/<month>/r/<name>.
CLOSED = "closed/"


def exclusion_rows(reasons: Mapping[Item, str], *, step: str) -> list[dict[str, Any]]:
    """Return rows of the table ``drops``: one for each item that a step excluded, with the step and the reason."""
    return [
        {"record_id": record_id, "image": image, "step": step, "reason": reason}
        for (record_id, image), reason in reasons.items()
    ]


def write_exclusions(reasons: Mapping[Item, str], path: Path, *, step: str) -> dict[str, int]:
    """Write the table ``drops`` of one step, and return the number of excluded items by reason."""
    tables.write_rows(exclusion_rows(reasons, step=step), path, name="drops")
    items = (why for (record, _), why in reasons.items() if not record.startswith(CLOSED))
    for reason, number in by_reason(items).items():
        telemetry.count("corpus.items.dropped", number, step=step, reason=reason)
    return by_reason(reasons.values())


def by_reason(reasons: Iterable[str]) -> dict[str, int]:
    """Count how often each reason occurs, sorted by reason."""
    return dict(sorted(Counter(reasons).items()))
