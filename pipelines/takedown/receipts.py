"""How far a takedown has come, and what it says when it has: counts and digests, never an id of a record.

A request is a file in ``<CORPUS_HOME>/takedowns``: ``<request>.open.json`` while it lasts, ``<request>.json`` as its
receipt. It holds no ids, not even while open: once the tombstones are written they say themselves who must be nowhere,
and until then the person who asks says it again. Beside them stand ``tombstones.json``, for the replay after a restore
(docs/privacy.md), and the lock that one takedown holds at a time.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.config.settings import Settings
from pipelines.errors import BadParams, DataError
from pipelines.takedown.objects import write_whole
from pipelines.vault.vault import Tombstone, Vault

FOLDER, OPEN, TOMBSTONES = "takedowns", ".open.json", "tombstones.json"
OTHERS = frozenset({TOMBSTONES, "objects.json"})


class TakedownRunning(DataError):
    """Two takedowns at once: the second one is told, for both would rewrite the same tables."""

    message = "Another takedown is at work here."
    remedy = "Run it again when that one has ended; nothing was begun."
    exit_code = 75


@dataclass
class Request:
    """One takedown, written down after each thing that it does.

    Args:
        request: its name: the first digits of ``key`` and a number.
        key: what :class:`pipelines.takedown.selection.Selection` has.
        reason: a code or number of a request, as the tombstones have it.
        who: asked for it.
        begun: when, UTC, as ISO 8601.
        selected: how many records each way of asking found.
        records: how many in all.
        steps: step -> counts, of everything found in this and in every earlier try.
        done: the steps that were ended.
        promised: registered version -> the digest of its files once they are changed.
        pending: what could not be done yet, with the name of the error.
        ended: when, ``None`` while it is open.
        commit: the commit of the corpus without the records.
        tombstones: how many the vault had at the end.
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
    commit: str | None = None
    tombstones: int | None = None

    def note(self, step: str, counts: Mapping[str, int], *, settings: Settings) -> None:
        """Keep what a step has found before it changes anything.

        What a try finds that goes on after a kill is less; the larger figure is the one of both.
        """
        known = self.steps.setdefault(step, {})
        known.update({name: max(count, known.get(name, 0)) for name, count in counts.items()})
        self.save(settings)

    def promise(self, version: str, digest: str, *, settings: Settings) -> None:
        """Keep which digest the files of a registered version will have, before they are changed."""
        self.promised[version] = digest
        self.save(settings)

    def end_step(self, step: str, *, settings: Settings) -> None:
        """Keep that a step is done."""
        if step not in self.done:
            self.done.append(step)
        self.save(settings)

    def save(self, settings: Settings) -> None:
        """Write it as it is."""
        write_whole(_folder(settings) / f"{self.request}{OPEN}", self.text())

    def finish(self, *, now: datetime, vault: Vault, settings: Settings) -> None:
        """Write the tombstones out and turn the request into its receipt, in one step that a crash cannot halve."""
        kept = {i: [t.deleted_at.isoformat(), t.reason] for i, t in vault.tombstones().items()}
        write_whole(_folder(settings) / TOMBSTONES, json.dumps(kept, indent=0))
        self.ended, self.tombstones = now.isoformat(timespec="seconds"), len(kept)
        self.save(settings)
        (_folder(settings) / f"{self.request}{OPEN}").replace(_folder(settings) / f"{self.request}.json")

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def read_tombstones(path: Path) -> dict[str, Tombstone]:
    """Return what :meth:`Request.finish` wrote out.

    Raises:
        BadParams: it is no file of tombstones.
    """
    try:
        kept = json.loads(path.read_bytes())
        return {i: Tombstone(datetime.fromisoformat(at), reason) for i, (at, reason) in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        raise BadParams(where="tombstones", detail="is no file that a takedown wrote") from None


def begin(
    key: str,
    *,
    reason: str,
    who: str,
    selected: dict[str, int],
    records: int,
    now: datetime,
    settings: Settings,
) -> Request:
    """Open a request; its name says which one of the same selection it is."""
    earlier = sum(receipt.key == key for receipt in receipts(settings))
    name = f"{key[:12]}-{earlier + 1}"
    return Request(name, key, reason, who, now.isoformat(timespec="seconds"), selected, records)


def opened(settings: Settings) -> list[Request]:
    """Return the requests that were begun and are not done, oldest first."""
    found = [_read(path) for path in _folder(settings).glob(f"*{OPEN}")]
    return sorted(found, key=lambda request: (request.begun, request.request))


def receipts(settings: Settings) -> list[Request]:
    """Return the receipts, oldest first."""
    paths = [path for path in _folder(settings).glob("*.json") if path.name not in OTHERS]
    found = [_read(path) for path in paths if not path.name.endswith(OPEN)]
    return sorted(found, key=lambda request: (request.begun, request.request))


def told(settings: Settings, *, now: datetime) -> dict[str, Any]:
    """Return what ``corpus status`` says of takedowns: ``open``, ``done``, ``oldest_open_hours``."""
    going = opened(settings)
    hours = [(now - datetime.fromisoformat(request.begun)).total_seconds() / 3600 for request in going]
    oldest = round(max(hours), 1) if hours else None
    return {"open": len(going), "done": len(receipts(settings)), "oldest_open_hours": oldest}


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the lock of all takedowns; the kernel gives it back when the process ends.

    Raises:
        TakedownRunning: another process holds it.
    """
    folder = _folder(settings)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TakedownRunning() from None
        yield


def _folder(settings: Settings) -> Path:
    return settings.home / FOLDER


def _read(path: Path) -> Request:
    return Request(**json.loads(path.read_bytes()))
