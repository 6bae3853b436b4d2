"""Store the progress and the receipts of takedowns: counts and digests, never a record id.

A request is a file in ``<CORPUS_HOME>/takedowns``: ``<request>.open.json`` while it is open, ``<request>.json`` as its
receipt. The file holds no record ids, not even while the request is open: once the tombstones are written, they define
the deleted records; until then the requester repeats the selection. The folder also holds ``tombstones.json``, for the
replay after a restore (docs/privacy.md). All hosts of a corpus share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.core import formats
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, DataError
from pipelines.core.process import write_private
from pipelines.store.vault import locks
from pipelines.store.vault.vault import Tombstone, Vault
from pipelines.takedown.selection import Selection

FOLDER, OPEN, TOMBSTONES = "takedowns", ".open.json", "tombstones.json"
OTHERS = frozenset({TOMBSTONES, "objects.json"})


@dataclass
class TakedownRequest:
    """One takedown request and its progress, saved after each action; times are UTC, as ISO 8601.

    Args:
        request: the first digits of ``key``, that of the :class:`pipelines.takedown.selection.Selection`, and a number.
        selected: number of records found by each criterion of the request; ``records``: to delete in total.
        steps: step -> counts of what it found to delete, in this and in every earlier attempt.
        promised: registered model version -> the digest that its files will have without the records.
        pending: stores that could not be erased yet -> name of the error.
        weights_due: when the weights of models that were trained on the records are deleted; ``None`` without any.
        commit: the commit of the corpus without the records.
        tombstones: number of tombstones in the vault at the end.
    """

    request: str
    key: str
    reason: str
    who: str
    begun: str
    selected: dict[str, int]
    records: int
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    promised: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    ended: str | None = None
    weights_due: str | None = None
    commit: str | None = None
    tombstones: int | None = None

    def note(self, step: str, counts: Mapping[str, int], *, settings: Settings) -> None:
        """Save the counts of what a step will delete, before it changes anything.

        An attempt that resumes after a kill finds less, so the larger count of both attempts is kept.
        """
        known = self.steps.setdefault(step, {})
        known.update({name: max(count, known.get(name, 0)) for name, count in counts.items()})
        self.save(settings)

    def promise(self, version: str, digest: str, *, settings: Settings) -> None:
        """Save the future digest of a registered model version's files before they are changed."""
        self.promised[version] = digest
        self.save(settings)

    def end_step(self, step: str, *, settings: Settings) -> None:
        if step not in self.done:
            self.done.append(step)
        self.save(settings)

    def save(self, settings: Settings) -> None:
        """Save the unfinished request to its file."""
        write_private(_folder(settings) / f"{self.request}{OPEN}", self.text())

    def finish(self, *, now: datetime, vault: Vault, settings: Settings) -> None:
        """Export the tombstones and turn the unfinished request into its receipt atomically."""
        write_private(_folder(settings) / TOMBSTONES, text := tombstone_text(vault))
        if settings.vault_backup is not None and settings.vault_backup.is_dir():
            # a backup folder that cannot be written now gets them with the next backup
            with suppress(OSError):
                write_private(settings.vault_backup / TOMBSTONES, text)
        self.ended, self.tombstones = now.isoformat(timespec="seconds"), len(json.loads(text)["records"])
        self.save(settings)
        (_folder(settings) / f"{self.request}{OPEN}").replace(_folder(settings) / f"{self.request}.json")

    def text(self) -> str:
        """Return this request as the JSON text of its file."""
        return json.dumps(formats.stamped("receipt", asdict(self)), indent=2, sort_keys=True) + "\n"


def listed(vault: Vault) -> dict[str, Any]:
    """Return all tombstones as JSON that :func:`read_tombstones` reads."""
    records = {i: [t.deleted_at.isoformat(), t.reason] for i, t in vault.tombstones().items()}
    return formats.stamped("tombstones", {"records": records})


def tombstone_text(vault: Vault) -> str:
    """Return all tombstones as the text of a file."""
    return json.dumps(listed(vault), indent=0)


def read_tombstones(path: Path) -> dict[str, Tombstone]:
    """Return the tombstones that :meth:`TakedownRequest.finish` exported."""
    try:
        kept = formats.opened("tombstones", json.loads(path.read_bytes()))["records"]
        return {i: Tombstone(datetime.fromisoformat(at), reason) for i, (at, reason) in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        raise BadParams(
            "BadArgument", where="tombstones", detail="is not a tombstones.json written by a takedown"
        ) from None


def begin(selection: Selection, *, reason: str, who: str, now: datetime, settings: Settings) -> TakedownRequest:
    """Create a takedown request; its name ends with a number that counts requests with the same selection."""
    key, begun = selection.key, now.isoformat(timespec="seconds")
    name = f"{key[:12]}-{sum(receipt.key == key for receipt in receipts(settings)) + 1}"
    return TakedownRequest(name, key, reason, who, begun, selection.counts, records=len(selection.records))


def opened(settings: Settings) -> list[TakedownRequest]:
    """Return the unfinished takedown requests, oldest first."""
    requests = [_read(path) for path in _folder(settings).glob(f"*{OPEN}")]
    return sorted(requests, key=lambda request: (request.begun, request.request))


def receipts(settings: Settings) -> list[TakedownRequest]:
    """Return the receipts of completed takedown requests, oldest first."""
    paths = [path for path in _folder(settings).glob("*.json") if path.name not in OTHERS]
    requests = [_read(path) for path in paths if not path.name.endswith(OPEN)]
    return sorted(requests, key=lambda request: (request.begun, request.request))


def told(settings: Settings, *, now: datetime) -> dict[str, Any]:
    """Return for ``corpus status`` how many takedown requests are open and done, and the age of the oldest open one."""
    going = opened(settings)
    hours = [(now - datetime.fromisoformat(request.begun)).total_seconds() / 3600 for request in going]
    oldest = round(max(hours), 1) if hours else None
    return {"open": len(going), "done": len(receipts(settings)), "oldest_open_hours": oldest}


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the lock that permits one takedown at a time, on all hosts of the corpus."""
    with locks.alone(settings, "takedowns", wait=False) as held:
        if not held:
            raise DataError("TakedownRunning")
        yield


def _folder(settings: Settings) -> Path:
    return settings.home / FOLDER


def _read(path: Path) -> TakedownRequest:
    return TakedownRequest(**formats.opened("receipt", json.loads(path.read_bytes())))
