"""Store the keys of records and the tombstones of records that were taken down.

Each record's content is sealed under its own random key; deleting that key makes the content unreadable in every file,
version and backup of the corpus at once. The record's row remains as a tombstone; collection from any source leaves out
records with a tombstone.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.store.vault.database import (
    Database,
    among,
    ask_erasure,
    assignments,
    claim,
    finish_erasure,
    put_mark,
    records,
    require_current,
    tombstoned,
)
from pipelines.store.vault.engine import Store, chunks
from pipelines.store.vault.keyring import SIV_KEY_BYTES, Keyring

# Enough for a code or the number of a request; longer text could quote content.
REASON_CHARACTERS = 64
Item = tuple[str, int]
"""A record and the number of its image."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The remains of a record after its takedown: the time of the takedown, and a short reason code."""

    deleted_at: datetime
    reason: str


class Vault(Store):
    """An open vault, the database of records' keys and tombstones; many processes may keep it open for a whole step.

    Other modules of this package keep further tables in its ``database``.
    """

    def __init__(self, database: Database, *, keyring: Keyring) -> None:
        super().__init__(database)
        self.database, self._keyring = database, keyring

    @classmethod
    def create(cls, settings: Settings) -> Vault:
        """Create the secret and the vault of a corpus if they do not exist, and return the open vault."""
        return cls.open(settings.vault_url, secret=settings.create_secret())

    @classmethod
    def existing(cls, settings: Settings) -> Vault:
        """Open the vault of a corpus (keys and tombstones); do not create a missing vault or secret."""
        return cls.open(settings.vault_url, secret=settings.secret(), create=False)

    @classmethod
    def open(cls, url: str, *, secret: bytes, create: bool = True) -> Vault:
        """Open or create the vault at ``url`` (``sqlite:///file`` or ``postgresql+psycopg2://...``)."""
        vault = cls(Database(url, create=create), keyring=Keyring(secret))
        try:
            claim(vault.database, keyring=vault._keyring)
            finish_erasure(vault.database)
        except BaseException:
            vault.close()
            raise
        return vault

    def record_id(self, fullname: str, *, domain: str = "post") -> str:
        """Return the pseudonym of a record's name: 32 hex digits, different in every ``domain`` (``release/...``).

        The name is a Reddit fullname, ``SCHEME:ID`` at another source, or ``DATASET/ID`` of an imported dataset.
        """
        return self._keyring.name(fullname, domain=domain)

    def author_id(self, name: str) -> str:
        """Return the pseudonym of a Reddit user name, used only for grouping; upper and lower case are equal."""
        return self._keyring.name(name.lower(), domain="author")

    def admit(self, items: Sequence[tuple[str, str]], *, corpus: str, month: str, now: datetime) -> set[str]:
        """Add new records (record id, fullname) with new keys; update the last-seen time of records already stored.

        Keys must never be reproducible from a seed, so they come from the operating system.

        Returns the ids of the records that may be stored: all except those with a tombstone.
        """
        now, fullnames, admitted = _aware(now), dict(items), set[str]()
        with self.database.writing() as connection:
            require_current(connection, keyring=self._keyring)
            for ids in chunks(fullnames):
                live, new = _sort_out(connection, ids=ids)
                if live:
                    seen = sa.update(records).where(among(live), records.c.last_seen < now).values(last_seen=now)
                    connection.execute(seen)
                if new:
                    rows = [self._new_row(r, fullname=fullnames[r], corpus=corpus, month=month, now=now) for r in new]
                    connection.execute(sa.insert(records), rows)
                admitted.update(live, new)
        return admitted

    def months(self, record_ids: Collection[str]) -> dict[str, str]:
        """Return the month in which each of these records was collected; records that were taken down are omitted."""
        query = sa.select(records.c.record_id, records.c.month).where(records.c.deleted_at.is_(None))
        return dict(self._among(record_ids, query))

    def keys(self, record_ids: Collection[str]) -> dict[str, bytes]:
        """Return the encryption keys of these records; records that were taken down are omitted."""
        return self.unwrap(self.wrapped_keys(record_ids))

    def wrapped_keys(self, record_ids: Collection[str]) -> dict[str, bytes]:
        """Return the keys of these records still encrypted, for a process that has no connection to unwrap them."""
        return self._wrapped(record_ids, column="key")

    def unwrap(self, wrapped: Mapping[str, bytes]) -> dict[str, bytes]:
        """Decrypt keys that :meth:`wrapped_keys` returned; the database is not used."""
        return self._keyring.unwrap(wrapped.items(), column="key")

    def fullnames(self, record_ids: Collection[str]) -> dict[str, str]:
        """Return the Reddit fullnames of these live records, for requests to Reddit and for keyed or sealed names."""
        opened = self._keyring.unwrap(self._wrapped(record_ids, column="fullname").items(), column="fullname")
        return {r: name.decode() for r, name in opened.items()}

    def tombstoned(self, record_ids: Collection[str]) -> set[str]:
        """Return which of these records have a tombstone, which means that they were taken down."""
        return tombstoned(self.database, record_ids)

    def require_known(self, record_ids: Collection[str]) -> None:
        """Reject records that are not in the vault, because their content could never be decrypted."""
        known = {record_id for (record_id,) in self._among(record_ids, sa.select(records.c.record_id))}
        if unknown := set(record_ids) - known:
            raise DataError("UnknownRecord", record_id=min(unknown))

    def destroy(self, record_ids: Collection[str], *, reason: str, now: datetime) -> int:
        """Delete records' keys and fullnames permanently and leave tombstones, also for ids not in the vault.

        On return no seven consecutive bytes of the encrypted keys and fullnames are left in the SQLite file or its
        write-ahead log; otherwise ``VaultUnavailable`` is raised. Repeating the call is harmless. ``reason`` is a short
        code or request number, at most 64 characters, never prose. Returns the number of records without an earlier
        tombstone.
        """
        return self.replay({r: Tombstone(deleted_at=now, reason=reason) for r in record_ids})

    def replay(self, tombstones: Mapping[str, Tombstone]) -> int:
        """Take down the records of these tombstones, as after a restored backup; return how many had none before."""
        for tombstone in tombstones.values():
            _aware(tombstone.deleted_at)
            if not 0 < len(tombstone.reason) <= REASON_CHARACTERS:
                raise BadParams(where="reason", detail=f"needs 1 to {REASON_CHARACTERS} characters: a code, no prose")
        destroyed, freed, erasure = 0, list[bytes](), None
        columns = sa.select(records.c.key, records.c.fullname)
        with self.database.writing() as connection:
            for ids in chunks(tombstones):
                live, unknown = _sort_out(connection, ids=ids)
                if live:
                    freed += [bytes(v) for row in connection.execute(columns.where(among(live))) for v in row if v]
                    statement = sa.update(records).where(records.c.record_id == sa.bindparam("id"))
                    gone = statement.values(key=None, fullname=None)
                    connection.execute(gone, [{"id": r, **_fields(tombstones[r])} for r in live])
                if unknown:
                    rows = [{"record_id": r, "missed": 0, **_fields(tombstones[r])} for r in unknown]
                    connection.execute(sa.insert(records), rows)
                destroyed += len(live) + len(unknown)
            if destroyed:
                erasure = ask_erasure(connection, freed=freed)
        finish_erasure(self.database, known=erasure)
        return destroyed

    def tombstones(self) -> dict[str, Tombstone]:
        """Return all tombstones by record id, to store them apart from backups and replay them after a restore."""
        query = sa.select(records.c.record_id, records.c.deleted_at, records.c.reason)
        rows = self._rows(query.where(records.c.deleted_at.is_not(None)).order_by(records.c.record_id))
        return {record_id: Tombstone(deleted_at, reason) for record_id, deleted_at, reason in rows}

    def rotate(self, *, secret: bytes) -> int:
        """Encrypt all records' keys again with a new project secret, and return the number of live records.

        Earlier backups of the vault still need the old secret: destroy that secret to make them unreadable. Processes
        that opened the vault with the old secret can no longer add records. The first 32 bytes of both secrets must be
        equal, as record ids depend on them.
        """
        fresh = Keyring(secret)
        if fresh.identity_check != self._keyring.identity_check:
            raise ConfigError("VaultMismatch", which="identity")
        with self.database.writing() as connection:
            require_current(connection, keyring=self._keyring)
            count = rewrap(connection, old=self._keyring, new=fresh)
            put_mark(connection, name="wrapping", value=fresh.wrapping_check)
            ask_erasure(connection)
        self._keyring = fresh
        finish_erasure(self.database)
        return count

    def assignments(self, corpus: str, *, version: int) -> dict[tuple[str, int], str]:
        """Return all split assignments in this corpus and split version: (record id, image number) to split."""
        with self.database.reading() as connection:
            return _assigned(connection, corpus=corpus, version=version)

    def assign(self, corpus: str, *, version: int, rows: Mapping[Item, str], now: datetime) -> None:
        """Store split assignments permanently; raise :class:`SplitConflict` if an item already has another split.

        Rows of the table ``assignments`` are only added; the database refuses updates and deletes. So a test record
        stays a test record as the corpus grows.
        """
        at = _aware(now)
        with self.database.writing() as connection:
            stored = _assigned(connection, corpus=corpus, version=version)
            if moved := sorted(item for item, split in rows.items() if stored.get(item, split) != split):
                record_id, image = moved[0]
                detail = f"{len(moved)} items have another split already; the first is {record_id} image {image}"
                raise DataError("SplitConflict", corpus=corpus, detail=detail)
            added = [
                {"corpus": corpus, "version": version, "record_id": r, "image": i, "split": split, "assigned_at": at}
                for (r, i), split in sorted(rows.items())
                if (r, i) not in stored
            ]
            if added:
                connection.execute(sa.insert(assignments), added)

    def counts(self) -> dict[str, int]:
        """Return the number of live records (``records``) and of ``tombstones`` in the vault."""
        query = sa.select(sa.func.count(), sa.func.count(records.c.deleted_at)).select_from(records)
        with self.database.reading() as connection:
            total, tombstones = connection.execute(query).one()
        return {"records": total - tombstones, "tombstones": tombstones}

    def _wrapped(self, record_ids: Collection[str], *, column: str) -> dict[str, bytes]:
        query = sa.select(records.c.record_id, records.c[column]).where(records.c[column].is_not(None))
        return {record_id: bytes(value) for record_id, value in self._among(record_ids, query)}

    def _among(self, record_ids: Collection[str], query: sa.Select[Any]) -> list[Any]:
        """Return a query's rows of these records, from one state of the database."""
        with self.database.reading() as connection:
            return [row for ids in chunks(record_ids) for row in connection.execute(query.where(among(ids)))]

    def _new_row(self, record_id: str, *, fullname: str, corpus: str, month: str, now: datetime) -> dict[str, object]:
        row: dict[str, object] = {"record_id": record_id, "corpus": corpus, "month": month, "missed": 0}
        row |= dict.fromkeys(("first_seen", "last_seen"), now)
        wrapped = {"fullname": fullname.encode(), "key": secrets.token_bytes(SIV_KEY_BYTES)}
        return row | {c: self._keyring.wrap(value, record_id=record_id, column=c) for c, value in wrapped.items()}


def _sort_out(connection: sa.Connection, *, ids: Sequence[str]) -> tuple[list[str], list[str]]:
    rows = connection.execute(sa.select(records.c.record_id, records.c.deleted_at).where(among(ids))).all()
    known = {record_id for record_id, _ in rows}
    return [r for r, deleted_at in rows if deleted_at is None], [r for r in ids if r not in known]


def _fields(tombstone: Tombstone) -> dict[str, object]:
    return {"deleted_at": tombstone.deleted_at, "reason": tombstone.reason}


def _aware(now: datetime) -> datetime:
    if now.tzinfo is None:
        raise BadParams(where="now", detail="must be an aware time, such as datetime.now(UTC)")
    return now


def rewrap(connection: sa.Connection, *, old: Keyring, new: Keyring) -> int:
    """Encrypt keys and fullnames of all live records again with ``new``, or none; return the number of records."""
    live = connection.scalars(sa.select(records.c.record_id).where(records.c.deleted_at.is_(None))).all()
    columns = sa.select(records.c.record_id, records.c.key, records.c.fullname)
    statement = sa.update(records).where(records.c.record_id == sa.bindparam("id"))
    for ids in chunks(live):
        rows = connection.execute(columns.where(among(ids))).mappings().all()
        values: dict[str, dict[str, object]] = {r: {"id": r} for r in ids}
        for column in ("key", "fullname"):
            opened = old.unwrap([(row["record_id"], row[column]) for row in rows], column=column)
            for r, value in opened.items():
                values[r][column] = new.wrap(value, record_id=r, column=column)
        connection.execute(statement, list(values.values()))
    return len(live)


def newest_split(database: Database, corpus: str) -> dict[Item, str]:
    """Return the assignments of the newest version of a corpus's split; this needs no secret."""
    newest = sa.select(sa.func.max(assignments.c.version)).where(assignments.c.corpus == corpus)
    with database.reading() as connection:
        return _assigned(connection, corpus=corpus, version=connection.scalar(newest) or 0)


def _assigned(connection: sa.Connection, *, corpus: str, version: int) -> dict[Item, str]:
    query = sa.select(assignments.c.record_id, assignments.c.image, assignments.c.split).where(
        assignments.c.corpus == corpus, assignments.c.version == version
    )
    return {(record_id, image): split for record_id, image, split in connection.execute(query)}
