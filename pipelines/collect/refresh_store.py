"""Store the posts of refreshes until their month is published, and the ledger of what was read.

Posts are encrypted under the keys of their records, so that a takedown makes them unreadable here and in every backup.
A page and the interval of time that it covers are written in one transaction, one writer at a time, on SQLite and
PostgreSQL: a killed process or a second host loses nothing and stores no post twice. Of a published post only the id
remains, for two months, so that a later page does not bring the post again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from pipelines.collect.intervals import Interval
from pipelines.errors import DataError
from pipelines.storage import seal
from pipelines.vault.engine import Engine, chunks
from pipelines.vault.vault import Vault

# Any constant other than the vault's and the answers'.
WRITER_LOCK = 0x0C0_4B5_EF5
COLUMN = "refresh"
# Ours: longer than any listing is read back, so that a published post is still recognised.
REMEMBERED_SECONDS = 62 * 86_400

metadata = sa.MetaData()
posts = sa.Table(
    "refresh_posts",
    metadata,
    sa.Column("corpus", sa.String(64), primary_key=True),
    sa.Column("record_id", sa.String(64), primary_key=True),
    sa.Column("subreddit", sa.String(64), nullable=False),
    sa.Column("author_id", sa.String(32)),
    sa.Column("created", sa.BigInteger, nullable=False, index=True),
    sa.Column("source", sa.String(32), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("published", sa.Boolean, nullable=False, default=False),
)
covered = sa.Table(
    "refresh_covered",
    metadata,
    sa.Column("corpus", sa.String(64), nullable=False, index=True),
    sa.Column("subreddit", sa.String(64), nullable=False),
    sa.Column("source", sa.String(32), nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("end", sa.BigInteger, nullable=False),
)
reads = sa.Table(
    "refresh_reads",
    metadata,
    sa.Column("corpus", sa.String(64), primary_key=True),
    sa.Column("subreddit", sa.String(64), primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("mark", sa.BigInteger, nullable=False),
    sa.Column("rate", sa.Float, nullable=False),
    sa.Column("reach", sa.BigInteger, nullable=False),
)
months = sa.Table(
    "refresh_months",
    metadata,
    sa.Column("corpus", sa.String(64), primary_key=True),
    sa.Column("month", sa.String(7), primary_key=True),
    sa.Column("closed", sa.BigInteger, nullable=False),
    sa.Column("tried", sa.BigInteger, nullable=False),
)
# The gaps of published months, as in their tables `gaps`.
gaps = sa.Table(
    "refresh_gaps",
    metadata,
    sa.Column("corpus", sa.String(64), nullable=False, index=True),
    sa.Column("month", sa.String(7), nullable=False),
    sa.Column("subreddit", sa.String(64), nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("end", sa.BigInteger, nullable=False),
)


class RefreshStoreUnavailable(DataError):
    """The database of refreshes is busy, cannot be reached or refuses to write."""

    message = "The database of refreshed posts cannot be used: {detail}."
    remedy = "Check the database at CORPUS_REFRESH_URL, then repeat the command: stored pages are not requested again."
    exit_code = 75


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
    """The last complete read of a subreddit; times are in seconds since the epoch.

    Args:
        at: when it was read.
        mark: the end of what the read covers, from which the next one continues.
        rate: posts per hour.
        reach: the listing shows no post created before this time; 0 if it did not end.
    """

    at: int
    mark: int
    rate: float
    reach: int = 0


class RefreshStore:
    """An open database of refreshes; any number of processes may use it."""

    def __init__(self, engine: Engine) -> None:
        """Use :meth:`open` instead."""
        self._engine = engine
        self._insert: Any = (sqlite if engine.backend == "sqlite" else postgresql).insert

    @classmethod
    def open(cls, url: str) -> RefreshStore:
        """Open or create the database at ``url`` (``sqlite:///file`` with mode 600, or ``postgresql+psycopg2://``).

        Raises:
            BadParams: the address is malformed or names another kind of database.
            RefreshStoreUnavailable: the database does not answer.
        """
        pragmas = ("secure_delete = ON", "temp_store = MEMORY")
        where, unavailable = "CORPUS_REFRESH_URL", RefreshStoreUnavailable
        opened = cls(Engine(url, where=where, lock=WRITER_LOCK, unavailable=unavailable, pragmas=pragmas))
        with opened._engine.writing() as connection:
            metadata.create_all(connection)
        return opened

    @classmethod
    @contextmanager
    def existing(cls, url: str) -> Iterator[RefreshStore | None]:
        """Open the database if there is one, without creating a file."""
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
            yield None
            return
        with cls.open(url) as opened:
            yield opened

    def close(self) -> None:
        """Close all database connections."""
        self._engine.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    # --- posts --------------------------------------------------------------------------------------------------

    def known(self, corpus: str, record_ids: Collection[str]) -> set[str]:
        """Return which of these records are stored or were published."""
        query, found = sa.select(posts.c.record_id).where(posts.c.corpus == corpus), set[str]()
        with self._engine.reading() as connection:
            for ids in chunks(record_ids):
                found.update(connection.scalars(query.where(posts.c.record_id.in_(ids))))
        return found

    def keep(
        self, corpus: str, found: Sequence[StoredPost], *, covers: Mapping[str, Interval], source: str, vault: Vault
    ) -> int:
        """Store new posts and what their page covers, by subreddit, in one transaction; return how many were new.

        A stored post is left unchanged, except by a deletion. Records without a key were taken down and are left out.
        """
        under = vault.keys({post.record_id for post in found if post.content is not None})
        live = (post for post in found if post.content is None or post.record_id in under)
        rows = [self._row(corpus, post, under=under) for post in live]
        put = self._insert(posts)
        new = put.on_conflict_do_nothing(index_elements=["corpus", "record_id"])
        gone = put.on_conflict_do_update(
            index_elements=["corpus", "record_id"], set_={"reason": put.excluded.reason, "sealed": None}
        )
        deleted = {post.record_id for post in found if post.deleted}
        with self._engine.writing() as connection:
            stored = sa.select(sa.func.count()).where(posts.c.corpus == corpus)
            ids = [row["record_id"] for row in rows]
            before = connection.scalar(stored.where(posts.c.record_id.in_(ids))) or 0
            for statement, some in (
                (new, [row for row in rows if row["record_id"] not in deleted]),
                (gone, [row for row in rows if row["record_id"] in deleted]),
            ):
                if some:
                    connection.execute(statement, some)
            for subreddit, interval in covers.items():
                _cover(connection, corpus, subreddit.lower(), interval, source=source)
            return len(set(ids)) - before

    def waiting(self, corpus: str, interval: Interval, *, vault: Vault) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the unpublished posts created in an interval: contents in the order of ids, and reasons by id.

        Raises:
            SealBroken: a stored post was altered.
        """
        here = sa.select(posts).where(posts.c.corpus == corpus, posts.c.published.is_(False), *_created(interval))
        with self._engine.reading() as connection:
            rows = connection.execute(here.order_by(posts.c.record_id)).all()
        under = vault.keys({row.record_id for row in rows if row.sealed is not None})
        contents = []
        for row in (row for row in rows if row.sealed is not None and row.record_id in under):
            key, data = under[row.record_id], bytes(row.sealed)
            opened = orjson.loads(seal.unseal(key, record_id=row.record_id, column=COLUMN, data=data))
            contents.append(opened | {"record_id": row.record_id})
        return contents, {row.record_id: row.reason for row in rows if row.sealed is None and row.reason}

    def forget_published(self, corpus: str, interval: Interval) -> None:
        """Delete the ids of published posts created in an interval, so that a whole month is collected again."""
        here = (posts.c.corpus == corpus, posts.c.published.is_(True), *_created(interval))
        with self._engine.writing() as connection:
            connection.execute(sa.delete(posts).where(*here))

    def count_waiting(self, corpus: str, interval: Interval | None = None) -> int:
        """Return the number of unpublished posts that may enter the corpus, of all times or created in an interval."""
        query = sa.select(sa.func.count()).where(posts.c.corpus == corpus, posts.c.sealed.is_not(None))
        with self._engine.reading() as connection:
            return connection.scalar(query.where(*_created(interval)) if interval else query) or 0

    def origins(self, corpus: str, *, column: str) -> dict[str, str]:
        """Return a plain column of the unpublished posts by record id, such as ``source`` or ``subreddit``."""
        query = sa.select(posts.c.record_id, posts.c[column])
        with self._engine.reading() as connection:
            rows = connection.execute(query.where(posts.c.corpus == corpus, posts.c.sealed.is_not(None)))
            return {row.record_id: row[1] for row in rows}

    # --- the ledger ---------------------------------------------------------------------------------------------

    def covered(self, corpus: str) -> dict[str, list[Interval]]:
        """Return the intervals of creation times that were read, by subreddit in lower case, of every source."""
        found: dict[str, list[Interval]] = {}
        query = sa.select(covered.c.subreddit, covered.c.start, covered.c.end).where(covered.c.corpus == corpus)
        with self._engine.reading() as connection:
            for subreddit, start, end in connection.execute(query):
                found.setdefault(subreddit, []).append((start, end))
        return found

    def last_reads(self, corpus: str) -> dict[str, ListingRead]:
        """Return the last complete read of each subreddit, in lower case."""
        with self._engine.reading() as connection:
            rows = connection.execute(sa.select(reads).where(reads.c.corpus == corpus)).all()
        return {row.subreddit: ListingRead(row.at, row.mark, row.rate, row.reach) for row in rows}

    def note_read(self, corpus: str, subreddit: str, read: ListingRead) -> None:
        """Store a read that has ended; of two hosts' reads the later mark remains."""
        given = asdict(read)
        put = self._insert(reads).values(corpus=corpus, subreddit=subreddit.lower(), **given)
        later = put.on_conflict_do_update(
            index_elements=["corpus", "subreddit"],
            set_={name: put.excluded[name] for name in given},
            where=put.excluded.mark >= reads.c.mark,
        )
        with self._engine.writing() as connection:
            connection.execute(later)

    def closed(self, corpus: str) -> dict[str, tuple[int, int]]:
        """Return the published months: when each was closed, and when its gaps were last tried."""
        with self._engine.reading() as connection:
            rows = connection.execute(sa.select(months).where(months.c.corpus == corpus)).all()
        return {row.month: (row.closed, row.tried) for row in rows}

    def tried(self, corpus: str, month: str, *, at: int) -> None:
        """Store when the other sources were last asked for the gaps of a published month."""
        where = sa.and_(months.c.corpus == corpus, months.c.month == month)
        with self._engine.writing() as connection:
            connection.execute(sa.update(months).where(where).values(tried=at))

    def open_gaps(self, corpus: str) -> dict[str, dict[str, list[Interval]]]:
        """Return the gaps of published months: month -> subreddit in lower case -> intervals."""
        found: dict[str, dict[str, list[Interval]]] = {}
        with self._engine.reading() as connection:
            for row in connection.execute(sa.select(gaps).where(gaps.c.corpus == corpus).order_by(*gaps.c)):
                found.setdefault(row.month, {}).setdefault(row.subreddit, []).append((row.start, row.end))
        return found

    def close_month(
        self,
        corpus: str,
        month: str,
        interval: Interval,
        *,
        record_ids: Collection[str],
        left: Mapping[str, Sequence[Interval]],
        at: int,
    ) -> None:
        """Remove the content of published records and what covers the month; remember ids and remaining gaps."""
        here = (posts.c.corpus == corpus, *_created(interval))
        with self._engine.writing() as connection:
            for ids in chunks(record_ids):
                done = sa.update(posts).where(*here, posts.c.record_id.in_(ids))
                connection.execute(done.values(published=True, sealed=None))
            old = posts.c.created < interval[0] - REMEMBERED_SECONDS
            connection.execute(sa.delete(posts).where(posts.c.corpus == corpus, posts.c.published.is_(True), old))
            _cut(connection, corpus, interval)
            for table in (gaps, months):
                connection.execute(sa.delete(table).where(table.c.corpus == corpus, table.c.month == month))
            connection.execute(sa.insert(months).values(corpus=corpus, month=month, closed=at, tried=at))
            rows = [
                {"corpus": corpus, "month": month, "subreddit": subreddit.lower(), "start": start, "end": end}
                for subreddit, intervals in left.items()
                for start, end in intervals
            ]
            if rows:
                connection.execute(sa.insert(gaps), rows)

    # --- takedowns ----------------------------------------------------------------------------------------------

    def count(self, record_ids: Collection[str]) -> int:
        """Return how many rows are about these records."""
        query = sa.select(sa.func.count()).select_from(posts)
        with self._engine.reading() as connection:
            return sum(connection.scalar(query.where(posts.c.record_id.in_(ids))) or 0 for ids in chunks(record_ids))

    def remove(self, record_ids: Collection[str]) -> None:
        """Delete the rows of these records, and rewrite the database file, so that no byte of them is left.

        Raises:
            RefreshStoreUnavailable: another reader keeps the write-ahead log open; run it again.
        """
        with self._engine.writing() as connection:
            for ids in chunks(record_ids):
                connection.execute(sa.delete(posts).where(posts.c.record_id.in_(ids)))
        engine = self._engine
        with engine.translated(), engine.sql.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if engine.backend == "postgresql":
                connection.exec_driver_sql(f"VACUUM (FULL) {posts.name}")
                return
            connection.exec_driver_sql("VACUUM")
            if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one():
                raise RefreshStoreUnavailable(detail="another reader keeps its write-ahead log open")

    def select(self, column: str, values: Iterable[str]) -> set[str]:
        """Return the records with one of these values in ``author_id``, ``subreddit`` (lower case) or ``source``."""
        with self._engine.reading() as connection:
            return set(connection.scalars(sa.select(posts.c.record_id).where(posts.c[column].in_(list(values)))))

    @staticmethod
    def _row(corpus: str, post: StoredPost, *, under: Mapping[str, bytes]) -> dict[str, Any]:
        plain = {"corpus": corpus, "record_id": post.record_id, "created": post.created, "source": post.source}
        row = plain | {"subreddit": post.subreddit.lower(), "author_id": None, "reason": post.reason, "sealed": None}
        if post.content is not None:
            data, key = orjson.dumps(post.content), under[post.record_id]
            row["sealed"] = seal.seal(key, record_id=post.record_id, column=COLUMN, data=data)
            row["author_id"] = post.content["author_id"]
        return row | {"published": False}


def _created(interval: Interval) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return posts.c.created >= interval[0], posts.c.created < interval[1]


def _cover(connection: sa.Connection, corpus: str, subreddit: str, interval: Interval, *, source: str) -> None:
    """Add an interval, merged with those of the same source that it overlaps or touches."""
    start, end = interval
    if start >= end:
        return
    near = sa.and_(
        covered.c.corpus == corpus, covered.c.subreddit == subreddit, covered.c.source == source,
        covered.c.start <= end, covered.c.end >= start,
    )  # fmt: skip
    for row in connection.execute(sa.select(covered).where(near)).all():
        start, end = min(start, row.start), max(end, row.end)
    connection.execute(sa.delete(covered).where(near))
    connection.execute(
        sa.insert(covered).values(corpus=corpus, subreddit=subreddit, source=source, start=start, end=end)
    )


def _cut(connection: sa.Connection, corpus: str, interval: Interval) -> None:
    """Remove an interval from all coverage of a corpus."""
    start, end = interval
    inside = sa.and_(covered.c.corpus == corpus, covered.c.start < end, covered.c.end > start)
    rows = connection.execute(sa.select(covered).where(inside)).all()
    connection.execute(sa.delete(covered).where(inside))
    for row in rows:
        for first, last in ((row.start, min(row.end, start)), (max(row.start, end), row.end)):
            if first < last:
                connection.execute(sa.insert(covered).values({**row._mapping, "start": first, "end": last}))
