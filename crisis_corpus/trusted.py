"""Find the version of a model that may be loaded, and verify its files.

It is the version that the journal names, if MLflow's alias agrees. No journal is created and no alias is set here.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from filelock import FileLock

from crisis_corpus import integrity
from crisis_corpus.errors import ConfigError, RegistryError
from crisis_corpus.integrity import NoPack, digest, listing
from crisis_corpus.journal import BEGINNING, VISIBLE, JournalReader, JournalRow, of_rows
from crisis_corpus.versions import CHAMPION, NAME, RECORDED, RegistryReader, UnknownModel, Version, delete_compiled

REFERENCE = re.compile(rf"(?:models:/)?({NAME.pattern})(?:@({CHAMPION})|/([1-9]\d{{0,8}}))?", re.ASCII)
# Ours: attempts to read alias and journal in agreement while the champion changes.
LOOKS = 3
# Ours: two weekly runs of the housekeeping, after the two for which the journal's head is valid.
GRACE = timedelta(days=14)


class StaleJournal(UserWarning):
    """A warning: the journal's head has expired, so later decisions may be missing."""


class JournalExpired(RegistryError):
    """The journal's head expired weeks ago, so rows at its end may have been removed."""

    message = "The journal was last confirmed at {at}, so later decisions, such as a withdrawal, may be missing."
    remedy = "Nothing was loaded. On the registry's machine, run `corpus housekeeping`, which confirms the journal."
    exit_code = 77


class BadReference(ConfigError):
    """A model reference is malformed."""

    message = "'{reference}' is not a model reference."
    remedy = "Write <name> for its champion, or <name>/<version>, such as crisis-posts/1."


class NoChampion(RegistryError):
    """The model has no champion (version in use)."""

    message = "'{name}' has no champion."
    remedy = "Load a version by its number, or wait until one is promoted; `corpus registry {name}` shows the journal."
    exit_code = 69


class AliasUntrusted(RegistryError):
    """MLflow's alias and the journal name different champions, and no unfinished champion change explains this."""

    message = "The alias 'champion' of '{name}' points to {alias}, but {journal} is champion in the journal."
    remedy = (
        "Nothing was loaded. Ask the registry's maintainer which process set the alias; `corpus registry {name}` shows "
        "the journal."
    )
    exit_code = 77


class Withdrawn(RegistryError):
    """The model version was withdrawn permanently."""

    message = "Version {version} of '{name}' was withdrawn ({at}, row {number}): {why}"
    remedy = "Load the champion, or another version."
    exit_code = 77


class NotOnRecord(RegistryError):
    """The journal has no registration of a model version, so its files cannot be verified."""

    message = "The journal has no registration of version {version} of '{name}'."
    remedy = "Load another version, or run `corpus register {name}`, which packages and registers the trained model."
    exit_code = 77


class FilesChanged(RegistryError):
    """The files of a model version differ from the files that were registered."""

    message = "The files of version {version} of '{name}' are not those that were registered: {detail}."
    remedy = "None of its code was run. Report it to the registry's maintainer; details: `corpus registry {name}`."
    exit_code = 65


@dataclass(frozen=True)
class Trusted:
    """A model version that may be loaded after its files are verified.

    Args:
        registered: the journal row of the version's registration, with the digest of its files.
        stale: if records that it was trained on were taken down, the time at which its weights are deleted.
    """

    version: Version
    registered: JournalRow
    token: str
    stale: str | None = None

    @property
    def files(self) -> str:
        return str(self.registered.files)


def parsed(reference: str) -> tuple[str, int | None]:
    """Return model name and version number of a model reference; the number is ``None`` for the champion."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise BadReference(reference=reference)
    return match[1], int(match[3]) if match[3] else None


def token(name: str, *, journal: JournalReader, known: str = BEGINNING) -> str:
    """Return the digest of the last journal row that concerns consumers of a model.

    Such a row promotes a version, rolls back to it, withdraws it or marks it as stale. ``known`` is a token that was
    returned earlier, which the journal must still contain.
    """
    return _token(_rows(name, journal=journal, known=known))


def find(name: str, number: int | None, *, registry: RegistryReader, journal: JournalReader) -> Trusted:
    """Return a model's version with this number, or the champion if ``number`` is ``None``, if it may be loaded.

    During a change of the champion the earlier champion is returned: a decision takes effect with the journal row that
    completes the change.
    """
    if number is None:
        number, rows = _champion(name, registry=registry, journal=journal)
    else:
        rows = _rows(name, journal=journal)
    for row in rows:
        if row.event == "withdrawn" and row.from_version == number:
            raise Withdrawn(name=name, version=number, at=row.at[:10], number=row.number, why=row.why)
    version = registry.version(name, number)
    registered = [row for row in rows if row.event == "registered" and row.to_version == number]
    # a takedown registers the files again, without the deleted ids: the last row has the digest to verify
    if not registered or not registered[-1].files:
        raise NotOnRecord(name=name, version=number)
    if RECORDED in version.tags:
        # the chain of a journal that was cut at its end is intact; the version's own tag reveals the cut
        journal.verify(name, known={name: version.tags[RECORDED]})
    return Trusted(version, registered[-1], _token(rows), of_rows(name, rows).stale.get(number))


def _champion(name: str, *, registry: RegistryReader, journal: JournalReader) -> tuple[int, list[JournalRow]]:
    for _ in range(LOOKS):
        rows = _rows(name, journal=journal)
        now, alias = of_rows(name, rows), registry.alias(name)
        # a move is between setting the alias and recording it
        moving = now.intention is not None and alias == now.intention.to_version
        if moving or alias == now.champion:
            if now.champion is None:
                raise NoChampion(name=name)
            return now.champion, rows
        last = journal.last(name)
        if last is None or last.number == now.head:
            break
    raise AliasUntrusted(name=name, alias=alias or "no version", journal=now.champion or "no version")


def _rows(name: str, *, journal: JournalReader, known: str = BEGINNING) -> list[JournalRow]:
    journal.verify(name, known=None if known == BEGINNING else {name: known})
    rows = journal.rows(name)
    if not rows and (models := journal.models()):
        raise UnknownModel(name=name, known=", ".join(models))
    if journal.key is not None:
        _require_recent(journal, now=datetime.now(UTC))
    return rows


def _require_recent(journal: JournalReader, *, now: datetime) -> None:
    head = journal.head()
    if head is None or head.until is None:
        return
    late = now - datetime.fromisoformat(head.until)
    if late > GRACE:
        raise JournalExpired(at=head.at[:10])
    if late > timedelta():
        warnings.warn(f"the journal of decisions was last confirmed at {head.at[:10]}", StaleJournal, stacklevel=2)


def _token(rows: Sequence[JournalRow]) -> str:
    return next((row.digest for row in reversed(rows) if row.event in VISIBLE), BEGINNING)


def verified(trusted: Trusted, *, registry: RegistryReader, cache: Path) -> Path:
    """Download and verify a model version's files and return their folder; one process at a time does this.

    ``cache`` is the folder for verified files, by their digest; cached files are verified again.
    """
    version, wanted = trusted.version, trusted.files
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    place, half = cache / wanted, cache / f"{wanted}.half"
    with FileLock(cache / f"{wanted}.lock"):
        if place.is_dir():
            # a server that was started on the folder may have compiled code there
            delete_compiled(place)
            if digest(place) == wanted:
                return place
            shutil.rmtree(place)
        # left behind by a killed process
        shutil.rmtree(half, ignore_errors=True)
        try:
            fetched = registry.fetch(version, to=half)
            if wrong := _faults(fetched, row=trusted.registered):
                raise FilesChanged(name=version.name, version=version.version, detail="; ".join(wrong))
            fetched.rename(place)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return place


def _faults(folder: Path, *, row: JournalRow) -> list[str]:
    faults = integrity.faults(folder, registered=row.files, weights=row.metrics.get("weights"))
    wrong = [reason for check in faults.values() for reason in check]
    outside, now = row.metrics.get("outside"), listing(folder)
    if faults["files"] and outside is not None:
        altered = sorted(path for path, value in outside.items() if now.get(path) != value)
        try:
            inside = f"{integrity.place(folder).relative_to(folder).as_posix()}/"
        except NoPack:
            return wrong
        added = sorted(path for path in now.keys() - outside.keys() if not path.startswith(inside))
        wrong += [f"{path} is altered or missing" for path in altered] + [f"{path} was added" for path in added]
    return wrong
