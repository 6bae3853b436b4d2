"""Send the folder of an export to a hub, list the copies there, or remove one, with each step in the journal.

A repository has one version only: after a push, its history is squashed and files of earlier versions are deleted from
the hub's store, because an earlier version may have posts that were removed since. Repositories are private, and gated
by manual approval, before the first file is sent; a person who wants to publish one does so on the hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from crisis_corpus.integrity import sha256
from crisis_corpus.journal import RELEASE, JournalRow
from pipelines.core.config.settings import LOOPBACK, Settings
from pipelines.core.errors import BadParams, ConfigError, DataError, RegistryError
from pipelines.registry.journal import Journal, signed
from pipelines.release.export.folder import (
    FILE,
    OF_HUB,
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


def last_rows(journal: Journal) -> dict[tuple[str, str, str], JournalRow]:
    """Return the last row about each repository, by its hub, kind and name."""
    rows = [row for row in journal.rows() if row.event in EVENTS]
    rows.sort(key=lambda row: (row.at, row.number))
    return {(row.metrics["hub"], row.metrics["kind"], row.metrics["repo"]): row for row in rows}


def origin_of(row: JournalRow) -> ExportOrigin:
    values = {key: row.metrics[key] for key in ("kind", "repo", "basis")}
    return ExportOrigin(name=row.name.removeprefix(RELEASE), version=row.to_version, **values)


GATED, MAIN = "manual", "refs/heads/main"
MESSAGE = "Replace all files by the present export"
REFUSED = (401, 403)


class HubUnavailable(RegistryError):
    """The hub does not answer, or answers with an error."""


class HubRefused(RegistryError):
    """The hub does not accept the token for this repository."""


@dataclass(frozen=True)
class Hub:
    """A hub and the copies there; ``journal`` and ``vault`` say what an export would contain ``now``."""

    settings: Settings
    journal: Journal
    vault: Vault
    now: datetime

    @property
    def address(self) -> str:
        """The address of the hub, to which a token may be sent."""
        address = urlsplit(self.settings.hub_url)
        if address.scheme != "https" and not (address.scheme == "http" and address.hostname in LOOPBACK):
            raise BadParams(where="CORPUS_HUB_URL", detail="needs https://, because the token is sent there")
        return self.settings.hub_url

    def listing(self) -> list[HubCopy]:
        """Return every copy on a hub that was pushed and not removed since, sorted by repository."""
        self.journal.verify()
        return [self._copy(row) for _, row in sorted(last_rows(self.journal).items()) if row.event != "unpushed"]

    def plan(self, folder: Path) -> dict[str, Any]:
        """Return what :meth:`push` would send and where, after checking the folder; no request is sent.

        Returns:
            ``hub``, ``repo``, ``kind``, ``of``, ``private``, ``gated``, ``files`` (bytes by path), ``bytes`` and
            ``replaces`` (whether a copy in this repository is on record).
        """
        exported = self._checked(folder)
        origin, sizes = exported.origin, {name: (folder / name).stat().st_size for name in (FILE, *exported.files)}
        return {
            "hub": self.address,
            "repo": origin.repo,
            "kind": origin.kind,
            "of": origin.what,
            "private": True,
            "gated": GATED,
            "files": dict(sorted(sizes.items())),
            "bytes": sum(sizes.values()),
            "replaces": self._last(origin.repo, kind=origin.kind) is not None,
        }

    def push(self, folder: Path, *, who: str, why: str) -> dict[str, Any]:
        """Replace the content of a repository by the folder of an export; create the repository if necessary.

        The row ``pushing`` is written before the first request that changes something, so that a copy that a killed
        push left is listed.

        Returns:
            ``repo``, ``url``, ``commit``, ``deleted`` (files of earlier versions that were deleted from the hub's
            store) and ``other_refs`` (other branches, tags and pull requests, which may keep earlier files).
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        signed(who, why)
        exported = self._checked(folder)
        origin, api = exported.origin, self._api()
        place: dict[str, Any] = {"repo_id": origin.repo, "repo_type": origin.kind}
        row: dict[str, Any] = {"who": who, "why": why, "to_version": origin.version}
        metrics: dict[str, Any] = {"hub": self.address, "repo": origin.repo, "kind": origin.kind}
        metrics |= {"basis": origin.basis, "export": sha256(folder / FILE), "files": len(exported.files) + 1}
        with self._translated():
            there = _files(api, place)
            if there - OF_HUB and not self._last(origin.repo, kind=origin.kind):
                raise ConfigError("NotOurs", repo=origin.repo, hub=self.address, count=len(there - OF_HUB))
            self.journal.append(origin.journal, event="pushing", metrics=metrics, **row)
            api.create_repo(origin.repo, repo_type=origin.kind, private=True, exist_ok=True)
            api.update_repo_settings(gated=GATED, **place)
            names = {FILE, *exported.files}
            added = [CommitOperationAdd(name, folder / name) for name in sorted(names)]
            gone = [CommitOperationDelete(name, is_folder=False) for name in sorted(there - names - OF_HUB)]
            api.create_commit(operations=[*added, *gone], commit_message=MESSAGE, **place)
            deleted = _forget_earlier(api, exported=exported, place=place)
            refs = api.list_repo_refs(include_pull_requests=True, **place)
            commit = str(api.repo_info(**place).sha)
        self.journal.append(origin.journal, event="pushed", metrics=metrics | {"commit": commit}, **row)
        all_refs = (*refs.branches, *refs.tags, *refs.converts, *(refs.pull_requests or ()))
        others = sorted(ref.ref for ref in all_refs if ref.ref != MAIN)
        url = f"{self.address}/{'datasets/' if origin.kind == 'dataset' else ''}{origin.repo}"
        return {"repo": origin.repo, "url": url, "commit": commit, "deleted": deleted, "other_refs": others}

    def remove(self, repo: str, *, kind: Kind, who: str, why: str, send: bool = True) -> dict[str, Any]:
        """Delete a repository, with its history, from the hub; without ``send``, say only what would be deleted."""
        last = self._last(checked_repo(repo), kind=kind)
        if last is None:
            raise ConfigError("NotPushed", repo=repo, kind=kind, hub=self.address)
        result = {"hub": self.address, "repo": repo, "kind": kind}
        if not send:
            return result | {"of": origin_of(last).what, "sent": False}
        signed(who, why)
        with self._translated():
            self._api().delete_repo(repo, repo_type=kind, missing_ok=True)
        metrics = result | {"basis": last.metrics["basis"]}
        self.journal.append(last.name, event="unpushed", who=who, why=why, to_version=last.to_version, metrics=metrics)
        return result | {"sent": True}

    def _current(self, origin: ExportOrigin) -> ExportOrigin:
        """Return the origin that an export of the same release or model version has now."""
        # every takedown lists the copies, of which most deployments have none
        from pipelines.release.export import model_folder, release_folder

        if origin.version is not None:
            return model_folder.current(origin.name, origin.version, repo=origin.repo, journal=self.journal)[0]
        entry = ReleaseEntry.of(self.settings, origin.name)
        return release_folder.current(entry, repo=origin.repo, vault=self.vault, now=self.now)

    def _copy(self, row: JournalRow) -> HubCopy:
        origin = origin_of(row)
        state, why, first = self._state(row, origin=origin)
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

    def _state(self, row: JournalRow, *, origin: ExportOrigin) -> tuple[State, str, str]:
        """Return the state of a copy, the reason, and a command that must come before it is replaced."""
        try:
            now = self._current(origin)
        except RemovalsDue as error:
            return (
                "outdated",
                f"the removal of {error.fields['count']} deleted posts is due",
                "corpus release refresh; ",
            )
        except NotExportable as error:
            return "remove", str(error.fields["detail"]), ""
        except NoSuchRelease:
            return "remove", "the release is not in the register any more", ""
        if row.event == "pushing":
            return "unfinished", "the last push did not end", ""
        if now != origin:
            return "outdated", "its release or model version has changed since", ""
        return "current", "", ""

    def _checked(self, folder: Path) -> Exported:
        """Read the folder of an export, and compare its origin with the present one."""
        exported = read(folder)
        if self._current(exported.origin) != exported.origin:
            detail = f"{exported.origin.what} has changed since the export"
            raise DataError("ExportChanged", folder=folder, detail=detail)
        return exported

    def _last(self, repo: str, *, kind: Kind) -> JournalRow | None:
        last = last_rows(self.journal).get((self.address, kind, repo))
        return last if last is not None and last.event != "unpushed" else None

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        token = self.settings.hub_token.get_secret_value()
        if not token:
            raise ConfigError("NoToken", hub=self.address)
        return HfApi(endpoint=self.address, token=token, library_name="crisis-corpus")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Convert the errors of the hub's client, without its messages, which may quote what was sent."""
        from httpx2 import HTTPError
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            yield
        except OfflineModeIsEnabled:
            raise HubUnavailable(hub=self.address, detail="HF_HUB_OFFLINE is set") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            failed = HubRefused if status in REFUSED else HubUnavailable
            raise failed(hub=self.address, detail=f"it answered {status}") from None
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            detail = f"the request ended with {type(error).__name__}"
            raise HubUnavailable(hub=self.address, detail=detail) from None


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
