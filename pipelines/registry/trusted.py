"""Which version of a model may be loaded: what the journal says, where MLflow says the same.

Nothing here makes a journal, moves an alias or reads a file of a version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from pipelines.errors import ConfigError, RegistryError
from pipelines.registry.journal import BEGINNING, Journal, Row
from pipelines.registry.state import MOVES, Standing, of_rows
from pipelines.registry.transitions import RECORDED
from pipelines.registry.versions import CHAMPION, NAMES, Registry, UnknownModel, Version

REFERENCE = re.compile(rf"(?:models:/)?([\w.-]+)(?:@({CHAMPION})|/([1-9]\d*))", re.ASCII)
# Ours: a champion that changes more often than this while it is looked at is nothing to wait for.
LOOKS = 3


class BadReference(ConfigError):
    """A model is named in another way than this project names them."""

    message = "'{reference}' names no model."
    remedy = "Write <name>@champion or <name>/<version>; the names are {known}."


class NoJournal(ConfigError):
    """The journal that says what may be trusted is not there."""

    message = "There is no journal of models at the address given."
    remedy = "Set CORPUS_JOURNAL_URL to the journal of those who register models; see docs/registry.md."


class NoChampion(RegistryError):
    """No version of a model is in use."""

    message = "Nobody is champion of '{name}'."
    remedy = "Load a version by its number, or wait until one is promoted; `corpus registry {name}` says why."
    exit_code = 69


class AliasUntrusted(RegistryError):
    """Alias and journal name different versions, and no move is under way that would explain it."""

    message = "The alias 'champion' of '{name}' is on {alias}, and by the journal {journal} is champion."
    remedy = "Nothing was loaded. Whoever keeps the registry finds out who moved the alias: `corpus registry {name}`."
    exit_code = 77


class Withdrawn(RegistryError):
    """A version was taken back for good."""

    message = "Version {version} of '{name}' was withdrawn ({at}, row {number}): {why}"
    remedy = "Load the champion, or another version."
    exit_code = 77


class NotOnRecord(RegistryError):
    """Nothing says what a version's files must be."""

    message = "The journal does not know the registration of version {version} of '{name}'."
    remedy = "Load another version, or have it registered by `corpus register`."
    exit_code = 77


@dataclass(frozen=True)
class Trusted:
    """A version that may be loaded if its files are right.

    Args:
        version: which.
        registered: the row that says what its files must be.
        token: see :func:`token`.
    """

    version: Version
    registered: Row
    token: str

    @property
    def files(self) -> str:
        """The digest that its files must have."""
        return str(self.registered.files)


def parsed(reference: str) -> tuple[str, int | None]:
    """Return name and number that a reference is of; ``None``: the champion.

    Raises:
        BadReference: it is of another form, or the name is none of this project's.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None or match[1] not in NAMES:
        raise BadReference(reference=reference, known=", ".join(sorted(NAMES)))
    return match[1], int(match[3]) if match[3] else None


@contextmanager
def opened(url: str) -> Iterator[Journal]:
    """Open a journal that is there; opening never makes one.

    Raises:
        NoJournal: there is no such file.
        JournalUnavailable: the database does not answer.
    """
    try:
        address = sa.make_url(url)
    except ArgumentError:
        raise NoJournal() from None
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        raise NoJournal()
    with Journal.open(url) as journal:
        yield journal


def token(name: str, *, journal: Journal, known: str = BEGINNING) -> str:
    """Return the digest of the last row by which a version was promoted, rolled back to or withdrawn.

    Args:
        name: the registered model.
        journal: which.
        known: a token that was handed out before.

    Raises:
        UnknownModel: there is no such name.
        JournalBroken: the journal was altered, or has no row of ``known``.
    """
    if name not in NAMES:
        raise UnknownModel(name=name, known=", ".join(sorted(NAMES)))
    return _token(_rows(name, journal=journal, known=known))


def find(name: str, number: int | None, *, registry: Registry, journal: Journal) -> Trusted:
    """Return the version that may be loaded: of this number, or the champion.

    While a move is under way the champion is who was champion before: a decision counts when it is on record.

    Raises:
        NoChampion: nobody is.
        AliasUntrusted: alias and journal differ.
        Withdrawn: the version was taken back.
        NotOnRecord: its registration is not known.
        UnknownVersion: there is no such version.
        JournalBroken: the journal was altered or cut.
    """
    number, rows = (
        _champion(name, registry=registry, journal=journal)
        if number is None
        else (number, _rows(name, journal=journal))
    )
    version = registry.version(name, number)
    for row in rows:
        if row.event == "withdrawn" and row.from_version == number:
            raise Withdrawn(name=name, version=number, at=row.at[:10], number=row.number, why=row.why)
    registered = [row for row in rows if row.event == "registered" and row.to_version == number]
    if len({row.files for row in registered}) != 1 or not registered[0].files:
        raise NotOnRecord(name=name, version=number)
    if RECORDED in version.tags:
        # a journal that was cut at its end holds together; the version's own tag tells
        journal.verify(name, known={name: version.tags[RECORDED]})
    return Trusted(version, registered[-1], _token(rows))


def _champion(name: str, *, registry: Registry, journal: Journal) -> tuple[int, list[Row]]:
    for _ in range(LOOKS):
        rows = _rows(name, journal=journal)
        now, alias = of_rows(name, rows), registry.alias(name)
        if _agreed(now, alias):
            if now.champion is None:
                raise NoChampion(name=name)
            return now.champion, rows
        last = journal.last(name)
        if last is None or last.number == now.head:
            break
    raise AliasUntrusted(name=name, alias=alias or "no version", journal=now.champion or "nobody")


def _agreed(now: Standing, alias: int | None) -> bool:
    # between the alias and the row that says so
    moving = now.intention is not None and alias == now.intention.to_version
    return moving or alias == now.champion


def _rows(name: str, *, journal: Journal, known: str = BEGINNING) -> list[Row]:
    journal.verify(name, known=None if known == BEGINNING else {name: known})
    return journal.rows(name)


def _token(rows: Sequence[Row]) -> str:
    return next((row.digest for row in reversed(rows) if row.event in MOVES), BEGINNING)
