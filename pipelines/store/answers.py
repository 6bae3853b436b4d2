"""Store the encrypted ("sealed") answers of remote labellers with their costs, so that each is paid for only once.

An answer is encrypted under the key of its record, so that a takedown makes the answer unreadable, here and in every
backup. Answers, costs and batch jobs change together in one transaction, one writer at a time, on SQLite and
PostgreSQL. Amounts are whole nanodollars, because sums of floats would drift.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from pipelines.core.errors import LabellingError
from pipelines.store import seal
from pipelines.store.vault.engine import Engine, Store, chunks, file_missing
from pipelines.store.vault.vault import Vault

NANO = 1_000_000_000
# Any constant other than the vault's.
WRITER_LOCK = 0x0C0_4B5_A25

metadata = sa.MetaData()
answers = sa.Table(
    "answers",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("record_id", sa.String(32), nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Column("cost", sa.BigInteger, nullable=False),
)
spending = sa.Table(
    "spending",
    metadata,
    sa.Column("name", sa.String(8), primary_key=True),
    sa.Column("paid", sa.BigInteger, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
)
batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("labeller", sa.String(64), nullable=False),
    sa.Column("records", sa.Text, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
)
# The number of answers requested, and how many of them were already stored.
uses = sa.Table(
    "uses",
    metadata,
    sa.Column("labeller", sa.String(64), primary_key=True),
    sa.Column("wanted", sa.BigInteger, nullable=False),
    sa.Column("hits", sa.BigInteger, nullable=False),
)
ALL = "all"


class AnswersUnavailable(LabellingError):
    """The database of labellers' answers is busy, cannot be reached or refuses to write."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer of a labeller: its record, its decrypted bytes and its cost in nanodollars."""

    record_id: str
    data: bytes
    cost: int


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A change of the ledger of labelling costs in nanodollars, with the answer that caused it, if any.

    ``hold`` is added to the reserved amount (negative: released) and ``pay`` to the paid amount. With ``limit`` the
    change is made only if paid and reserved together stay within it. ``answer`` is ``(cache key, record_id, sealed
    bytes)`` and costs ``pay``.
    """

    hold: int = 0
    pay: int = 0
    limit: int | None = None
    answer: tuple[str, str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A provider's batch job: its handle, the record of each cache key, and the reserved amount in nanodollars."""

    job: str
    records: Mapping[str, str]
    held: int

    @property
    def id(self) -> str:
        """Return the digest of the provider's handle for the job, because the handle may be long."""
        return hashlib.sha256(self.job.encode()).hexdigest()


def cache_key(
    *, api: str, model: str, prompt: str, schema: Mapping[str, Any], content: str, sampling: Mapping[str, Any]
) -> str:
    """Return the cache key of a labelling request: 64 hex digits, also used as the request's ``Idempotency-Key``.

    ``content`` is the keyed digest of the post, ``sampling`` what else affects the answer or truncates the post.
    """
    parts = {"api": api, "model": model, "prompt": prompt, "schema": schema, "content": content, "sampling": sampling}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sealed(key: str, *, record_id: str, under: bytes, data: bytes) -> tuple[str, str, bytes]:
    """Return a labeller's answer for :class:`LedgerChange`, encrypted with its record's key ``under``.

    The encrypted bytes are bound to the record and to ``key`` (the answer's cache key), so that an exchange of two
    labellers' answers is detected.
    """
    return key, record_id, seal.seal(under, record_id=record_id, column=f"answer#{key}", data=data)


class AnswerStore(Store):
    """An open database of labellers' answers; any number of processes and threads may use it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        insert = engine.insert(answers)
        self._put = insert.on_conflict_do_update(
            index_elements=["key"], set_={c: insert.excluded[c] for c in ("record_id", "answer", "cost")}
        )

    @classmethod
    def open(cls, url: str) -> AnswerStore:
        """Open or create the database at ``url`` (``sqlite:///file`` with mode 600, or ``postgresql+psycopg2://``)."""
        engine = Engine(url, where="CORPUS_ANSWERS_URL", lock=WRITER_LOCK, unavailable=AnswersUnavailable)
        with engine.writing() as connection:
            if engine.prepare(connection, metadata, name="answers"):
                connection.execute(sa.insert(spending).values(name=ALL, paid=0, held=0))
        return cls(engine)

    @classmethod
    def existing(cls, url: str) -> AbstractContextManager[AnswerStore | None]:
        """Open the database if there is one, without creating a file."""
        return nullcontext() if file_missing(url) else cls.open(url)

    def get(self, keys: Collection[str], *, vault: Vault) -> dict[str, StoredAnswer]:
        """Return the stored answers by cache key, without answers for records that were taken down."""
        rows: list[Any] = []
        with self._engine.reading() as connection:
            for chunk in chunks(keys):
                rows += connection.execute(sa.select(answers).where(answers.c.key.in_(chunk))).all()
        owners = {row.record_id for row in rows}
        under = vault.keys(owners)
        vault.require_known(owners - under.keys())
        stored = {}
        for key, record_id, data, cost in rows:
            if record_id in under:
                opened = seal.unseal(under[record_id], record_id=record_id, column=f"answer#{key}", data=bytes(data))
                stored[key] = StoredAnswer(record_id, opened, cost)
        return stored

    def write(self, changes: Sequence[LedgerChange]) -> list[bool]:
        """Make changes of the cost ledger in one transaction; return for each change whether its limit allowed it.

        The transaction is on disk on return. Changes without a limit are made first: an answer that costs less than was
        reserved leaves room for the next request.
        """
        free = [change for change in changes if change.limit is None]
        pay, hold = sum(change.pay for change in free), sum(change.hold for change in free)
        made = []
        with self._engine.writing() as connection:
            total = sum(connection.execute(sa.select(spending.c.paid, spending.c.held)).one()) + pay + hold
            for change in changes:
                # what is free of charge exceeds no limit, even one that was lowered below what is spent
                allowed = change.limit is None or not change.hold or total + change.hold <= change.limit
                if allowed and change.limit is not None:
                    total, hold = total + change.hold, hold + change.hold
                made.append(allowed)
            self._keep(connection, changes=changes)
            if hold or pay:
                _book(connection, hold=hold, pay=pay)
        return made

    def add(self, kept: Sequence[tuple[tuple[str, str, bytes], int]]) -> None:
        """Store answers that another store paid for, each :func:`sealed` and with its cost, all of them or none."""
        rows = [dict(zip(answers.c.keys(), (*answer, cost), strict=True)) for answer, cost in kept]
        if rows:
            with self._engine.writing() as connection:
                # an answer of this store's own stays
                insert = self._engine.insert(answers).on_conflict_do_nothing(index_elements=["key"])
                connection.execute(insert, rows)

    def spent(self) -> tuple[int, int]:
        """Return the paid and the reserved amounts for labelling in nanodollars.

        Reserved is the maximum cost of requests in flight and of requests without a known result, because a provider
        may have billed a request that timed out or whose sender was killed.
        """
        with self._engine.reading() as connection:
            paid, held = connection.execute(sa.select(spending.c.paid, spending.c.held)).one()
        return paid, held

    def count(self, labeller: str, *, wanted: int, hits: int) -> None:
        """Increase a labeller's counts of requested answers (``wanted``) and of those already stored (``hits``)."""
        where = uses.c.labeller == labeller
        more = {"wanted": uses.c.wanted + wanted, "hits": uses.c.hits + hits}
        with self._engine.writing() as connection:
            if connection.execute(sa.update(uses).where(where).values(more)).rowcount == 0:
                connection.execute(sa.insert(uses).values(labeller=labeller, wanted=wanted, hits=hits))

    def hits(self) -> dict[str, int]:
        """Return for each labeller how many requested answers were already stored."""
        return {labeller: hits for labeller, _, hits in self._rows(sa.select(uses))}

    def begin(self, job: BatchJob, *, labeller: str) -> None:
        """Store a submitted batch job before waiting for it, so that a later process can collect its answers."""
        row = {"id": job.id, "job": job.job, "labeller": labeller, "held": job.held}
        with self._engine.writing() as connection:
            connection.execute(sa.insert(batches), row | {"records": json.dumps(dict(job.records))})

    def jobs(self, *, labeller: str) -> list[BatchJob]:
        """Return the batch jobs of a labeller whose answers are not collected yet."""
        query = sa.select(batches).where(batches.c.labeller == labeller).order_by(batches.c.id)
        return [BatchJob(row.job, json.loads(row.records), row.held) for row in self._rows(query)]

    def finish(self, job: BatchJob, *, changes: Sequence[LedgerChange]) -> bool:
        """Store a batch job's answers, book its cost and delete the job; ``False`` if another process did this."""
        with self._engine.writing() as connection:
            if connection.execute(sa.delete(batches).where(batches.c.id == job.id)).rowcount == 0:
                return False
            self._keep(connection, changes=changes)
            _book(connection, hold=-job.held, pay=sum(c.pay for c in changes))
        return True

    def naming(self, record_ids: Collection[str]) -> int:
        """Count the answers about these records, and their places in pending batches."""
        count = sa.select(sa.func.count()).select_from(answers)
        rows = sum(self._rows(count.where(answers.c.record_id.in_(ids)))[0][0] for ids in chunks(record_ids))
        asked = (record for job in self._rows(sa.select(batches)) for record in json.loads(job.records).values())
        return int(rows) + sum(record in record_ids for record in asked)

    def remove(self, record_ids: Collection[str]) -> None:
        """Delete what :meth:`naming` counts, and rewrite the database, so that no byte of it is left."""
        with self._engine.writing() as connection:
            for ids in chunks(record_ids):
                connection.execute(sa.delete(answers).where(answers.c.record_id.in_(ids)))
            for row in connection.execute(sa.select(batches)).all():
                kept = {key: record for key, record in json.loads(row.records).items() if record not in record_ids}
                changed = sa.update(batches).where(batches.c.id == row.id)
                connection.execute(changed.values(records=json.dumps(kept)))
        self._engine.rewrite(answers.name, batches.name)

    def _keep(self, connection: sa.Connection, *, changes: Sequence[LedgerChange]) -> None:
        kept = [(*change.answer, change.pay) for change in changes if change.answer]
        if kept:
            connection.execute(self._put, [dict(zip(answers.c.keys(), row, strict=True)) for row in kept])


def _book(connection: sa.Connection, *, hold: int, pay: int) -> None:
    moved = {"held": spending.c.held + hold, "paid": spending.c.paid + pay}
    connection.execute(sa.update(spending).where(spending.c.name == ALL).values(moved))
