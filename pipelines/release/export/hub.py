"""Send the folder of an export to a hub, list the copies there, or remove one, with each step in the journal.

A repository has one version only: after a push, its history is squashed and files of earlier versions are deleted from
the hub's store, because an earlier version may have posts that were removed since. Repositories are private, and gated
by manual approval, before the first file is sent; a person who wants to publish one does so on the hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from crisis_corpus.integrity import sha256
from crisis_corpus.journal import JournalRow
from pipelines.core.config.settings import LOOPBACK, Settings
from pipelines.core.errors import BadParams, ConfigError, DataError, RegistryError
from pipelines.registry.journal import Journal, signed
from pipelines.release.export import model_folder, release_folder
from pipelines.release.export.folder import (
    FILE,
    OF_HUB,
    RELEASE,
    Exported,
    ExportOrigin,
    Kind,
    NotExportable,
    RemovalsDue,
    checked_repo,
    read,
)
from pipelines.release.release_store import NoSuchRelease, ReleaseEntry
from pipelines.store.vault.vault import Vault

if TYPE_CHECKING:
    from huggingface_hub import HfApi

EVENTS = ("pushing", "pushed", "unpushed")
State = Literal["current", "outdated", "remove", "unfinished"]
SEND = "--send --who … --why …"


@dataclass(frozen=True)
class HubCopy:
    """What a repository of a hub contains, as the journal says.

    Args:
        of: the release or model version, in words.
        commit: the commit on the hub, ``None`` if the push did not end.
        state: ``current``; ``outdated``: to be replaced; ``remove``: to be removed; ``unfinished``: a push did not end.
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
    sources: dict[str, Any] = {"settings": settings, "journal": journal, "vault": vault, "now": now}
    rows = [row for _, row in sorted(last_rows(journal).items()) if row.event != "unpushed"]
    return [_copy(row, **sources) for row in rows]


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
        return model_folder.current(origin.name, origin.version, repo=origin.repo, journal=journal)[0]
    entry = ReleaseEntry.of(settings, origin.name)
    return release_folder.current(entry, repo=origin.repo, vault=vault, now=now)


def origin_of(row: JournalRow) -> ExportOrigin:
    """Return the origin of the export that a row of the journal is about."""
    values = {key: row.metrics[key] for key in ("kind", "repo", "basis")}
    return ExportOrigin(name=row.name.removeprefix(RELEASE), version=row.to_version, **values)


def _copy(row: JournalRow, **sources: Any) -> HubCopy:
    origin = origin_of(row)
    state, why, first = _state(row, origin=origin, **sources)
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


def _state(row: JournalRow, *, origin: ExportOrigin, **sources: Any) -> tuple[State, str, str]:
    """Return the state of a copy, the reason, and a command that must come before it is replaced."""
    try:
        now = current(origin, **sources)
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


GATED, MAIN = "manual", "refs/heads/main"
MESSAGE = "Replace all files by the present export"
REFUSED = (401, 403)


class HubUnavailable(RegistryError):
    """The hub does not answer, or answers with an error."""


class HubRefused(RegistryError):
    """The hub does not accept the token for this repository."""


def plan(folder: Path, *, settings: Settings, journal: Journal, vault: Vault, now: datetime) -> dict[str, Any]:
    """Return what :func:`push` would send and where, after checking the folder; no request is sent.

    Returns:
        ``hub``, ``repo``, ``kind``, ``of``, ``private``, ``gated``, ``files`` (bytes by path), ``bytes`` and
        ``replaces`` (whether a copy in this repository is on record).
    """
    exported = _checked(folder, settings=settings, journal=journal, vault=vault, now=now)
    origin, sizes = exported.origin, {name: (folder / name).stat().st_size for name in (FILE, *exported.files)}
    return {
        "hub": _hub(settings),
        "repo": origin.repo,
        "kind": origin.kind,
        "of": origin.what,
        "private": True,
        "gated": GATED,
        "files": dict(sorted(sizes.items())),
        "bytes": sum(sizes.values()),
        "replaces": _last(origin.repo, kind=origin.kind, settings=settings, journal=journal) is not None,
    }


def push(
    folder: Path, *, who: str, why: str, settings: Settings, journal: Journal, vault: Vault, now: datetime
) -> dict[str, Any]:
    """Replace the content of a repository on the hub by the folder of an export; create the repository if necessary.

    The row ``pushing`` is written before the first request that changes something, so that a copy that a killed push
    left is listed.

    Returns:
        ``repo``, ``url``, ``commit``, ``deleted`` (files of earlier versions that were deleted from the hub's store)
        and ``other_refs`` (other branches, tags and pull requests, which may keep earlier files).
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    signed(who, why)
    exported = _checked(folder, settings=settings, journal=journal, vault=vault, now=now)
    origin, api = exported.origin, _api(settings)
    place: dict[str, Any] = {"repo_id": origin.repo, "repo_type": origin.kind}
    row: dict[str, Any] = {"who": who, "why": why, "to_version": origin.version}
    metrics: dict[str, Any] = {"hub": _hub(settings), "repo": origin.repo, "kind": origin.kind, "basis": origin.basis}
    metrics |= {"export": sha256(folder / FILE), "files": len(exported.files) + 1}
    with _translated(settings):
        there = _files(api, place)
        if there - OF_HUB and not _last(origin.repo, kind=origin.kind, settings=settings, journal=journal):
            raise ConfigError("NotOurs", repo=origin.repo, hub=_hub(settings), count=len(there - OF_HUB))
        journal.append(origin.journal, event="pushing", metrics=metrics, **row)
        api.create_repo(origin.repo, repo_type=origin.kind, private=True, exist_ok=True)
        api.update_repo_settings(gated=GATED, **place)
        names = {FILE, *exported.files}
        added = [CommitOperationAdd(name, folder / name) for name in sorted(names)]
        gone = [CommitOperationDelete(name, is_folder=False) for name in sorted(there - names - OF_HUB)]
        api.create_commit(operations=[*added, *gone], commit_message=MESSAGE, **place)
        deleted = _forget_earlier(api, exported=exported, place=place)
        refs = api.list_repo_refs(include_pull_requests=True, **place)
        commit = str(api.repo_info(**place).sha)
    journal.append(origin.journal, event="pushed", metrics=metrics | {"commit": commit}, **row)
    all_refs = (*refs.branches, *refs.tags, *refs.converts, *(refs.pull_requests or ()))
    others = sorted(ref.ref for ref in all_refs if ref.ref != MAIN)
    url = f"{_hub(settings)}/{'datasets/' if origin.kind == 'dataset' else ''}{origin.repo}"
    return {"repo": origin.repo, "url": url, "commit": commit, "deleted": deleted, "other_refs": others}


def remove(
    repo: str, *, kind: Kind, who: str, why: str, settings: Settings, journal: Journal, send: bool = True
) -> dict[str, Any]:
    """Delete a repository, with its history, from the hub; without ``send``, say only what would be deleted."""
    last = _last(checked_repo(repo), kind=kind, settings=settings, journal=journal)
    if last is None:
        raise ConfigError("NotPushed", repo=repo, kind=kind, hub=_hub(settings))
    result = {"hub": _hub(settings), "repo": repo, "kind": kind}
    if not send:
        return result | {"of": origin_of(last).what, "sent": False}
    signed(who, why)
    with _translated(settings):
        _api(settings).delete_repo(repo, repo_type=kind, missing_ok=True)
    metrics = result | {"basis": last.metrics["basis"]}
    journal.append(last.name, event="unpushed", who=who, why=why, to_version=last.to_version, metrics=metrics)
    return result | {"sent": True}


def _checked(folder: Path, *, settings: Settings, journal: Journal, vault: Vault, now: datetime) -> Exported:
    """Read the folder of an export, and compare its origin with the present one."""
    _hub(settings)
    exported = read(folder)
    sources: dict[str, Any] = {"settings": settings, "journal": journal, "vault": vault, "now": now}
    if current(exported.origin, **sources) != exported.origin:
        raise DataError("ExportChanged", folder=folder, detail=f"{exported.origin.what} has changed since the export")
    return exported


def _hub(settings: Settings) -> str:
    """Return the address of the hub, to which a token may be sent."""
    address = urlsplit(settings.hub_url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in LOOPBACK):
        raise BadParams(where="CORPUS_HUB_URL", detail="needs https://, because the token is sent there")
    return settings.hub_url


def _last(repo: str, *, kind: Kind, settings: Settings, journal: Journal) -> JournalRow | None:
    last = last_rows(journal).get((_hub(settings), kind, repo))
    return last if last is not None and last.event != "unpushed" else None


def _api(settings: Settings) -> HfApi:
    from huggingface_hub import HfApi

    token = settings.hub_token.get_secret_value()
    if not token:
        raise ConfigError("NoToken", hub=_hub(settings))
    return HfApi(endpoint=_hub(settings), token=token, library_name="crisis-corpus")


def _files(api: HfApi, place: dict[str, Any]) -> set[str]:
    """Return the files of a repository; none if it does not exist."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return set(api.list_repo_files(**place))
    except RepositoryNotFoundError:
        return set()


def _forget_earlier(api: HfApi, *, exported: Exported, place: dict[str, Any]) -> int:
    """Squash the history of a repository, and delete the stored files of earlier versions; return how many."""
    api.super_squash_history(commit_message=MESSAGE, **place)
    kept = set(exported.files.values())
    earlier = [file for file in api.list_lfs_files(**place) if file.oid not in kept]
    if earlier:
        api.permanently_delete_lfs_files(lfs_files=earlier, **place)
    return len(earlier)


@contextmanager
def _translated(settings: Settings) -> Iterator[None]:
    """Convert the errors of the hub's client, without its messages, which may quote what was sent."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    hub = _hub(settings)
    try:
        yield
    except OfflineModeIsEnabled:
        raise HubUnavailable(hub=hub, detail="HF_HUB_OFFLINE is set") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        failed = HubRefused if status in REFUSED else HubUnavailable
        raise failed(hub=hub, detail=f"it answered {status}") from None
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        raise HubUnavailable(hub=hub, detail=f"the request ended with {type(error).__name__}") from None
