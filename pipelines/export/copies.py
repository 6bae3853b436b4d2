"""List the copies of releases and models on a hub from the journal, and which of them must be replaced or removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from crisis_corpus.journal import JournalRow
from pipelines.config.settings import Settings
from pipelines.export import model_status, release_folder
from pipelines.export.folder import RELEASE, ExportOrigin, Kind, NotExportable, RemovalsDue
from pipelines.registry.journal import Journal
from pipelines.release.release_store import NoSuchRelease, ReleaseEntry
from pipelines.vault.vault import Vault

EVENTS = ("pushing", "pushed", "unpushed")
State = Literal["current", "outdated", "remove", "unfinished"]
SEND = "--send --who … --why …"


@dataclass(frozen=True)
class HubCopy:
    """What a repository of a hub contains, as the journal says.

    Args:
        hub: the address of the hub.
        repo: the repository.
        kind: its kind.
        of: the release or model version, in words.
        at: when it was pushed last (ISO 8601).
        commit: the commit on the hub, ``None`` if the push did not end.
        state: ``current``; ``outdated``: to be replaced; ``remove``: to be removed; ``unfinished``: a push did not end.
        why: the reason, ``""`` if it is current.
        do: the commands that replace or remove it.
    """

    hub: str
    repo: str
    kind: Kind
    of: str
    at: str
    commit: str | None
    state: State
    why: str
    do: str


def listing(*, settings: Settings, journal: Journal, vault: Vault, now: datetime) -> list[HubCopy]:
    """Return every copy on a hub that was pushed and not removed since, sorted by repository."""
    journal.verify()
    given: dict[str, Any] = {"settings": settings, "journal": journal, "vault": vault, "now": now}
    rows = [row for _, row in sorted(last_rows(journal).items()) if row.event != "unpushed"]
    return [_copy(row, current=lambda origin: current(origin, **given)) for row in rows]


def last_rows(journal: Journal) -> dict[tuple[str, str, str], JournalRow]:
    """Return the last row about each repository, by its hub, kind and name."""
    rows = [row for row in journal.rows() if row.event in EVENTS]
    rows.sort(key=lambda row: (row.at, row.number))
    return {(row.metrics["hub"], row.metrics["kind"], row.metrics["repo"]): row for row in rows}


def outdated(copies: list[HubCopy]) -> list[dict[str, Any]]:
    """Return the copies that need a command, as JSON values."""
    return [asdict(copy) for copy in copies if copy.state != "current"]


def current(origin: ExportOrigin, *, settings: Settings, journal: Journal, vault: Vault, now: datetime) -> ExportOrigin:
    """Return the origin that an export of the same release or model version has now."""
    if origin.version is not None:
        return model_status.current(origin.name, origin.version, repo=origin.repo, journal=journal)[0]
    entry = ReleaseEntry.of(settings, origin.name)
    return release_folder.current(entry, repo=origin.repo, vault=vault, now=now)


def origin_of(row: JournalRow) -> ExportOrigin:
    """Return the origin of the export that a row of the journal is about."""
    told = {key: row.metrics[key] for key in ("kind", "repo", "basis")}
    return ExportOrigin(name=row.name.removeprefix(RELEASE), version=row.to_version, **told)


def _copy(row: JournalRow, *, current: Callable[[ExportOrigin], ExportOrigin]) -> HubCopy:
    origin = origin_of(row)
    state, why, first = _state(row, origin=origin, current=current)
    source = f"release {origin.name}" if origin.version is None else f"model {origin.name} {origin.version}"
    remove = f"corpus export remove {origin.repo} --kind {origin.kind} {SEND}"
    replace = f"{first}corpus export {source} --repo {origin.repo} --to FOLDER; corpus export push FOLDER {SEND}"
    return HubCopy(
        hub=row.metrics["hub"],
        repo=origin.repo,
        kind=origin.kind,
        of=source,
        at=row.at,
        commit=row.metrics.get("commit"),
        state=state,
        why=why,
        do={"current": "", "remove": remove}.get(state, replace),
    )


def _state(
    row: JournalRow, *, origin: ExportOrigin, current: Callable[[ExportOrigin], ExportOrigin]
) -> tuple[State, str, str]:
    """Return the state of a copy, the reason, and a command that must come before it is replaced."""
    try:
        now = current(origin)
    except RemovalsDue as error:
        return "outdated", f"the removal of {error.fields['count']} deleted posts is due", "corpus release refresh; "
    except NotExportable as error:
        return "remove", str(error.fields["detail"]), ""
    except NoSuchRelease:
        return "remove", "the release is not in the register any more", ""
    if row.event == "pushing":
        return "unfinished", "the last push did not end", ""
    if now != origin:
        return "outdated", "its release or model version has changed since", ""
    return "current", "", ""
