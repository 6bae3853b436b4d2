"""Store the posts of refreshes until their month is published, the ledger of what was read, and pages of a read source.

Posts are encrypted under the keys of their records, so that a takedown makes them unreadable here and in every backup.
A page and the interval of time that it covers are written in one transaction, one writer at a time, on SQLite and
PostgreSQL: a killed process or a second host loses nothing and stores no post twice. Of a published post only the id
remains, for two months, so that a later page does not bring the post again.

The pages that a source of whole months has sent are kept in a file until all of them are read, so that a retry requests
only the others (:class:`ResumeJournal`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import sqlalchemy as sa

from pipelines.collect.month import Gaps, Interval, minus, union
from pipelines.core.errors import DataError, SealBroken
from pipelines.store.seal import seal, unseal
from pipelines.store.vault.engine import Engine, Store, chunks, file_missing
from pipelines.store.vault.vault import Vault

# Any constant other than the vault's and the answers'.
WRITER_LOCK = 0x0C0_4B5_EF5
COLUMN = "refresh"
# Ours: longer than any listing is read back, so that a published post is still recognised.
REMEMBERED_SECONDS = 62 * 86_400


def _text(name: str, size: int = 64, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(size), **{"nullable": False, **options})


def _seconds(name: str, **options: Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, **options)


KEY = {"primary_key": True}
metadata = sa.MetaData()
posts = sa.Table(
    "refresh_records", metadata, _text("corpus", **KEY), _text("record_id", **KEY), _text("subreddit"),
    _text("author_id", 32, nullable=True), _seconds("created", index=True), _text("source", 32),
    _text("reason", nullable=True), sa.Column("sealed", sa.LargeBinary),
    sa.Column("published", sa.Boolean, nullable=False, default=False),
)  # fmt: skip
covered = sa.Table(
    "refresh_covered", metadata, _text("corpus", index=True), _text("subreddit"), _text("source", 32),
    _seconds("start"), _seconds("end"),
)  # fmt: skip
reads = sa.Table(
    "refresh_reads", metadata, _text("corpus", **KEY), _text("subreddit", **KEY), _seconds("at"), _seconds("mark"),
    sa.Column("rate", sa.Float, nullable=False), _seconds("reach"),
)  # fmt: skip
months = sa.Table(
    "refresh_months", metadata, _text("corpus", **KEY), _text("month", 7, **KEY), _seconds("closed"), _seconds("tried"),
)  # fmt: skip
# The gaps of published months, as in their tables `gaps`.
gaps = sa.Table(
    "refresh_gaps", metadata, _text("corpus", index=True), _text("month", 7), _text("subreddit"), _seconds("start"),
    _seconds("end"),
)  # fmt: skip


class RefreshStoreUnavailable(DataError):
    """The database of refreshes is busy, cannot be reached or refuses to write."""


@dataclass(frozen=True, slots=True)
class StoredPost:
    """A post as a refresh stores it: ``content`` for one that may enter the corpus, else the reason why it is left out.

    ``created`` is in seconds since the epoch. ``deleted``: the reason is a deletion, which replaces stored content.
    """

    record_id: str
    subreddit: str
    created: int
    source: str
    content: Mapping[str, Any] | None = None
    reason: str | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class ListingRead:
    """The last complete read of a subreddit, in seconds since the epoch, and its rate in posts per hour.

    The next read continues from ``mark``; the listing shows no post created before ``reach`` (0: it did not end).
    """

    at: int
    mark: int
    rate: float
    reach: int = 0


class RefreshStore(Store):
    """An open database of refreshes; any number of processes may use it."""

    @classmethod
    def open(cls, url: str) -> RefreshStore:
        """Open or create the database at ``url`` (``sqlite:///file`` with mode 600, or ``postgresql+psycopg2://``)."""
        engine = Engine(url, where="CORPUS_REFRESH_URL", lock=WRITER_LOCK, unavailable=RefreshStoreUnavailable)
        with engine.writing() as connection:
            engine.prepare(connection, metadata, name="refresh")
        return cls(engine)

    @classmethod
    def existing(cls, url: str) -> AbstractContextManager[RefreshStore | None]:
        """Open the database if there is one, without creating a file."""
        return nullcontext() if file_missing(url) else cls.open(url)

    # --- posts --------------------------------------------------------------------------------------------------

    def known(self, corpus: str, record_ids: Collection[str]) -> set[str]:
        """Return which of these records are stored or were published."""
        query = sa.select(posts.c.record_id).where(posts.c.corpus == corpus)
        return {row.record_id for condition in _among(record_ids) for row in self._rows(query.where(condition))}

    def keep(
        self, corpus: str, new_posts: Sequence[StoredPost], *, covers: Mapping[str, Interval], source: str, vault: Vault
    ) -> int:
        """Store new posts and what their page covers, by subreddit, in one transaction; return how many were new.

        A stored post changes only by a deletion. Records without a key were taken down and are left out.
        """
        under = vault.keys({post.record_id for post in new_posts if post.content is not None})
        live = (post for post in new_posts if post.content is None or post.record_id in under)
        rows = [self._row(corpus, post, under=under) for post in live]
        put, key = self._engine.insert(posts), ["corpus", "record_id"]
        new = put.on_conflict_do_nothing(index_elements=key)
        gone = put.on_conflict_do_update(index_elements=key, set_={"reason": put.excluded.reason, "sealed": None})
        deleted = {post.record_id for post in new_posts if post.deleted}
        with self._engine.writing() as connection:
            stored = sa.select(sa.func.count()).where(posts.c.corpus == corpus)
            ids = {row["record_id"] for row in rows}
            before = sum(connection.scalar(stored.where(some)) or 0 for some in _among(ids))
            for statement, some in (
                (new, [row for row in rows if row["record_id"] not in deleted]),
                (gone, [row for row in rows if row["record_id"] in deleted]),
            ):
                if some:
                    connection.execute(statement, some)
            for subreddit, interval in covers.items():
                _cover(connection, interval, corpus=corpus, subreddit=subreddit.lower(), source=source)
            return len(ids) - before

    def waiting(self, corpus: str, interval: Interval, *, vault: Vault) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the unpublished posts created in an interval: contents in the order of ids, and reasons by id."""
        here = sa.select(posts).where(posts.c.corpus == corpus, posts.c.published.is_(False), *_created(interval))
        rows = self._rows(here.order_by(posts.c.record_id))
        under = vault.keys({row.record_id for row in rows if row.sealed is not None})
        contents = []
        for row in (row for row in rows if row.sealed is not None and row.record_id in under):
            key, data = under[row.record_id], bytes(row.sealed)
            opened = orjson.loads(unseal(key, record_id=row.record_id, column=COLUMN, data=data))
            contents.append(opened | {"record_id": row.record_id})
        return contents, {row.record_id: row.reason for row in rows if row.sealed is None and row.reason}

    def forget_published(self, corpus: str, interval: Interval) -> None:
        """Delete the ids of published posts created in an interval, so that a whole month is collected again."""
        here = (posts.c.corpus == corpus, posts.c.published.is_(True), *_created(interval))
        self._write(sa.delete(posts).where(*here))

    def count_waiting(self, corpus: str, interval: Interval | None = None) -> int:
        """Return the number of unpublished posts that may enter the corpus, of all times or created in an interval."""
        query = sa.select(sa.func.count()).where(posts.c.corpus == corpus, posts.c.sealed.is_not(None))
        return int(self._rows(query.where(*_created(interval)) if interval else query)[0][0])

    def origins(self, corpus: str, *, column: str) -> dict[str, str]:
        """Return a plain column of the unpublished posts by record id, such as ``source`` or ``subreddit``."""
        query = sa.select(posts.c.record_id, posts.c[column])
        rows = self._rows(query.where(posts.c.corpus == corpus, posts.c.sealed.is_not(None)))
        return {row.record_id: row[1] for row in rows}

    # --- the ledger ---------------------------------------------------------------------------------------------

    def covered(self, corpus: str) -> dict[str, list[Interval]]:
        """Return the intervals of creation times that were read, by subreddit in lower case, of every source."""
        intervals: dict[str, list[Interval]] = {}
        query = sa.select(covered.c.subreddit, covered.c.start, covered.c.end).where(covered.c.corpus == corpus)
        for subreddit, start, end in self._rows(query):
            intervals.setdefault(subreddit, []).append((start, end))
        return intervals

    def last_reads(self, corpus: str) -> dict[str, ListingRead]:
        """Return the last complete read of each subreddit, in lower case."""
        rows = self._rows(sa.select(reads).where(reads.c.corpus == corpus))
        return {row.subreddit: ListingRead(row.at, row.mark, row.rate, row.reach) for row in rows}

    def note_read(self, corpus: str, subreddit: str, read: ListingRead) -> None:
        """Store a read that has ended; of two hosts' reads the later mark remains."""
        values = asdict(read)
        put = self._engine.insert(reads).values(corpus=corpus, subreddit=subreddit.lower(), **values)
        update = {"set_": {name: put.excluded[name] for name in values}, "where": put.excluded.mark >= reads.c.mark}
        self._write(put.on_conflict_do_update(index_elements=["corpus", "subreddit"], **update))

    def closed(self, corpus: str) -> dict[str, tuple[int, int]]:
        """Return the published months: when each was closed, and when its gaps were last tried."""
        rows = self._rows(sa.select(months).where(months.c.corpus == corpus))
        return {row.month: (row.closed, row.tried) for row in rows}

    def tried(self, corpus: str, month: str, *, at: int) -> None:
        """Store when the other sources were last asked for the gaps of a published month."""
        self._write(sa.update(months).where(months.c.corpus == corpus, months.c.month == month).values(tried=at))

    def open_gaps(self, corpus: str) -> dict[str, dict[str, list[Interval]]]:
        """Return the gaps of published months: month -> subreddit in lower case -> intervals."""
        intervals: dict[str, dict[str, list[Interval]]] = {}
        for row in self._rows(sa.select(gaps).where(gaps.c.corpus == corpus).order_by(*gaps.c)):
            intervals.setdefault(row.month, {}).setdefault(row.subreddit, []).append((row.start, row.end))
        return intervals

    def close_month(
        self, corpus: str, month: str, interval: Interval, *, record_ids: Collection[str], left: Gaps, at: int
    ) -> None:
        """Remove the content of published records and what covers the month; remember ids and remaining gaps."""
        here = (posts.c.corpus == corpus, *_created(interval))
        with self._engine.writing() as connection:
            for condition in _among(record_ids):
                connection.execute(sa.update(posts).where(*here, condition).values(published=True, sealed=None))
            old = posts.c.created < interval[0] - REMEMBERED_SECONDS
            connection.execute(sa.delete(posts).where(posts.c.corpus == corpus, posts.c.published.is_(True), old))
            _cut(connection, corpus, interval)
            for table in (gaps, months):
                connection.execute(sa.delete(table).where(table.c.corpus == corpus, table.c.month == month))
            connection.execute(sa.insert(months).values(corpus=corpus, month=month, closed=at, tried=at))
            for subreddit, intervals in left.items():
                _insert(connection, gaps, intervals, corpus=corpus, month=month, subreddit=subreddit.lower())

    # --- takedowns ----------------------------------------------------------------------------------------------

    def count(self, record_ids: Collection[str]) -> int:
        """Return how many rows are about these records."""
        return sum(len(self._rows(sa.select(posts.c.record_id).where(condition))) for condition in _among(record_ids))

    def remove(self, record_ids: Collection[str]) -> None:
        """Delete the rows of these records, and rewrite the database file, so that no byte of them is left."""
        with self._engine.writing() as connection:
            for condition in _among(record_ids):
                connection.execute(sa.delete(posts).where(condition))
        self._engine.rewrite(posts.name)

    def select(self, column: str, values: Iterable[str]) -> set[str]:
        """Return the records with one of these values in ``author_id``, ``subreddit`` (lower case) or ``source``."""
        rows = self._rows(sa.select(posts.c.record_id).where(posts.c[column].in_(list(values))))
        return {row.record_id for row in rows}

    def _write(self, statement: sa.Executable) -> None:
        with self._engine.writing() as connection:
            connection.execute(statement)

    @staticmethod
    def _row(corpus: str, post: StoredPost, *, under: Mapping[str, bytes]) -> dict[str, Any]:
        plain = {"corpus": corpus, "record_id": post.record_id, "created": post.created, "source": post.source}
        row = plain | {"subreddit": post.subreddit.lower(), "author_id": None, "reason": post.reason, "sealed": None}
        if post.content is not None:
            data, key = orjson.dumps(post.content), under[post.record_id]
            row["sealed"] = seal(key, record_id=post.record_id, column=COLUMN, data=data)
            row["author_id"] = post.content["author_id"]
        return row | {"published": False}


def _created(interval: Interval) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return posts.c.created >= interval[0], posts.c.created < interval[1]


def _among(record_ids: Collection[str]) -> Iterator[sa.ColumnElement[bool]]:
    return map(posts.c.record_id.in_, chunks(record_ids))


def _cover(connection: sa.Connection, interval: Interval, **key: str) -> None:
    here = [covered.c[name] == value for name, value in key.items()]
    rows = connection.execute(sa.select(covered).where(*here)).all()
    connection.execute(sa.delete(covered).where(*here))
    _insert(connection, covered, union([interval, *((row.start, row.end) for row in rows)]), **key)


def _cut(connection: sa.Connection, corpus: str, interval: Interval) -> None:
    """Remove an interval from all coverage of a corpus."""
    here = (covered.c.corpus == corpus, covered.c.start < interval[1], covered.c.end > interval[0])
    rows = connection.execute(sa.select(covered).where(*here)).all()
    connection.execute(sa.delete(covered).where(*here))
    for _, subreddit, source, start, end in rows:
        left = minus([(start, end)], [interval])
        _insert(connection, covered, left, corpus=corpus, subreddit=subreddit, source=source)


def _insert(connection: sa.Connection, table: sa.Table, intervals: Iterable[Interval], **columns: str) -> None:
    if rows := [{**columns, "start": start, "end": end} for start, end in intervals]:
        connection.execute(sa.insert(table), rows)


STATE = "state"
LENGTH_BYTES = 4


class ResumeJournal:
    """An append-only file of encrypted pages; a page that a crash left incomplete is removed and requested again."""

    def __init__(self, path: Path, *, secret: bytes, day: date) -> None:
        self._path = path
        self._key = hmac.digest(secret, b"crisis-corpus/collect/state", "sha512")
        self._day = day
        self._name = ""
        self._count = 0

    def begin(self, query: str) -> list[dict[str, Any]]:
        """Return the stored pages of an earlier attempt at the same query on the same day, oldest first."""
        self._name = f"{self._day}:{query}"
        self._count = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        entries, whole = [], 0
        self._path.touch(mode=0o600)
        with self._path.open("r+b") as file:
            for entry in self._frames(file):
                entries.append(entry)
                whole = file.tell()
            file.truncate(whole)
        return entries

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append one page of a listing, and wait until it is on disk."""
        sealed = seal(self._key, record_id=self._record, column=STATE, data=orjson.dumps(entry))
        with self._path.open("ab") as file:
            file.write(len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed)
            file.flush()
            os.fsync(file.fileno())
        self._count += 1

    def end(self) -> None:
        """Delete the file, because the source was read completely."""
        self._path.unlink(missing_ok=True)

    @property
    def _record(self) -> str:
        return f"{self._name}:{self._count}"

    def _frames(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        while len(head := file.read(LENGTH_BYTES)) == LENGTH_BYTES:
            length = int.from_bytes(head, "big")
            sealed = file.read(length)
            try:
                data = unseal(self._key, record_id=self._record, column=STATE, data=sealed)
            except SealBroken:
                return
            self._count += 1
            yield orjson.loads(data)
