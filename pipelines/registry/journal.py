"""Record decisions about models in append-only rows: what was decided, who decided, when, why, on which numbers.

The journal defines which version is champion; MLflow's alias follows it. The rows of a model are numbered from 1,
without gaps, and each row has the digest of the row before, so a row that is changed, moved or removed breaks the
chain. Rows removed at the end do not break the chain: to detect their loss, pass a digest that was kept (a consumer's
token) to :meth:`Journal.verify`. The database refuses updates and deletes, and accepts each row number once, which
provides the compare-and-set that MLflow's aliases lack.

SQLite by default, PostgreSQL by URL (``CORPUS_JOURNAL_URL``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args

import sqlalchemy as sa

from pipelines.errors import BadParams, RegistryError
from pipelines.vault.engine import Engine

# Any constant that no other database uses.
WRITER_LOCK = 0x0C0_4B5_707
# Ours: room for one or two sentences and a request number.
CHARACTERS = {"who": 128, "why": 500}
BEGINNING = "0" * 64

Event = Literal["registered", "gated", "refused", "intended", "promoted", "rolled_back", "withdrawn", "abandoned"]
Clock = Callable[[], datetime]

metadata = sa.MetaData()
journal = sa.Table(
    "journal",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("event", sa.String(16), nullable=False),
    sa.Column("from_version", sa.Integer),
    sa.Column("to_version", sa.Integer),
    sa.Column("who", sa.String(CHARACTERS["who"]), nullable=False),
    sa.Column("why", sa.String(CHARACTERS["why"]), nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("files", sa.String(64)),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
)
_APPEND_ONLY = {
    "sqlite": [
        f"""CREATE TRIGGER journal_{event} BEFORE {event} ON journal
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
        for event in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        """CREATE FUNCTION journal_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$""",
        """CREATE TRIGGER journal_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON journal
        FOR EACH STATEMENT EXECUTE FUNCTION journal_refuse()""",
    ],
}


class JournalUnavailable(RegistryError):
    """The journal's database is busy, unreachable or refuses a write."""

    message = "The journal of the model registry cannot be used now: {detail}."
    remedy = "Check CORPUS_JOURNAL_URL, then repeat the command: completed steps are not repeated."
    exit_code = 75


class JournalMoved(RegistryError):
    """Another row was written after the state that the decision is based on; nothing was written."""

    message = (
        "The journal of '{name}' has a newer row than the decision: {who} wrote row {number}, '{event}'; row "
        "{expected} was the last one known."
    )
    remedy = "Nothing was recorded. Read the journal with `corpus registry {name}`, then decide again."
    exit_code = 75


class JournalBroken(RegistryError):
    """A row of the journal differs from what was written."""

    message = "The journal of '{name}' was altered at row {number}: {detail}."
    remedy = (
        "Restore the journal's database from a backup, and compare the backup with the altered database to see what "
        "changed. Do not use the model's aliases before that."
    )
    exit_code = 65


@dataclass(frozen=True)
class JournalRow:
    """One decision or event.

    Args:
        name: the registered model.
        number: its number among the model's rows, from 1.
        at: the time, UTC, as ISO 8601.
        event: the kind of row. ``intended`` is written before the alias is changed; ``promoted``, ``rolled_back``,
            ``withdrawn`` or ``abandoned`` afterwards.
        from_version: the champion before, if any.
        to_version: the version concerned; for the three events that change the alias, the champion afterwards
            (``None``: no champion).
        who: the person or the step that decided.
        why: their reason; never empty.
        metrics: numbers, names of checks and labels, digests; no content.
        files: the digest of the version's files (:func:`pipelines.registry.versions.digest`).
        previous: the digest of the previous row, zeros for the first.
        digest: SHA-256 of all other fields.
    """

    name: str
    number: int
    at: str
    event: Event
    from_version: int | None
    to_version: int | None
    who: str
    why: str
    metrics: Mapping[str, Any] = field(repr=False)
    files: str | None
    previous: str = field(repr=False)
    digest: str = field(repr=False)


def utc_now() -> datetime:
    """Return the current UTC time; tests use another clock."""
    return datetime.now(UTC)


class Journal:
    """The journal of all models in an open database; it accepts one writer at a time, also across processes."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        """Use :meth:`open` instead."""
        self.engine, self._clock = engine, clock

    @classmethod
    def open(cls, url: str, *, clock: Clock = utc_now) -> Self:
        """Open or create the journal at ``sqlite:///file`` or ``postgresql+psycopg2://...``.

        Raises:
            BadParams: the address is malformed or of another kind of database.
            JournalUnavailable: the database does not answer.
        """
        engine = Engine(url, where="CORPUS_JOURNAL_URL", lock=WRITER_LOCK, unavailable=JournalUnavailable)
        with engine.writing() as connection:
            if not sa.inspect(connection).has_table(journal.name):
                metadata.create_all(connection)
                for statement in _APPEND_ONLY[engine.backend]:
                    connection.exec_driver_sql(statement)
        return cls(engine, clock=clock)

    def close(self) -> None:
        """Close the database."""
        self.engine.close()

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the journal."""
        self.close()

    def append(
        self,
        name: str,
        *,
        event: Event,
        who: str,
        why: str,
        from_version: int | None = None,
        to_version: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        files: str | None = None,
        after: int | None = None,
    ) -> JournalRow:
        """Write the next row of a model.

        Args:
            name: the registered model.
            event: see :class:`JournalRow`.
            who: must not be empty.
            why: must not be empty.
            from_version: see :class:`JournalRow`.
            to_version: see :class:`JournalRow`.
            metrics: JSON values without NaN.
            files: see :class:`JournalRow`.
            after: the number of the last row at the time of the decision (0: no row); ``None``: any.

        Raises:
            BadParams: who or why is empty, too long or not one line; the metrics are not JSON.
            JournalMoved: there is a row after ``after``; nothing was written.
            JournalBroken: the row ``after`` does not exist.
        """
        decided = signed(who, why)
        if event not in get_args(Event):
            raise BadParams(where="event", detail=f"'{event}' is not an event of the journal")
        with self.engine.writing() as connection:
            last = _last(connection, name=name)
            number = last.number if last else 0
            if last is None and after:
                raise JournalBroken(name=name, number=1, detail="rows are missing")
            if last is not None and after not in (None, number):
                moved = {"name": name, "number": number, "expected": after, "who": last.who, "event": last.event}
                raise JournalMoved(**moved, version=last.to_version, at=last.at)
            values = {
                "name": name,
                "number": number + 1,
                "at": self._clock().astimezone(UTC).isoformat(timespec="microseconds"),
                "event": event,
                "from_version": from_version,
                "to_version": to_version,
                **decided,
                # twice, because keys must be strings before they are sorted
                "metrics": canonical(json.loads(canonical(metrics or {}))),
                "files": files,
                "previous": last.digest if last else BEGINNING,
            }
            values["digest"] = _sealed(values)
            connection.execute(sa.insert(journal), values)
        return _row(values)

    def rows(self, name: str | None = None) -> list[JournalRow]:
        """Return the rows of a model, or of all models by name, oldest first."""
        query = sa.select(journal).order_by(journal.c.name, journal.c.number)
        if name is not None:
            query = query.where(journal.c.name == name)
        with self.engine.reading() as connection:
            return [_row(found) for found in connection.execute(query).mappings()]

    def last(self, name: str) -> JournalRow | None:
        """Return the last row of a model, or ``None``."""
        with self.engine.reading() as connection:
            return _last(connection, name=name)

    def verify(self, name: str | None = None, *, known: Mapping[str, str] | None = None) -> int:
        """Check the chain of a model, or of all models; return the number of rows checked.

        Args:
            name: the registered model; ``None``: all.
            known: model -> the digest of an earlier last row, which must still exist; it reveals a cut journal.

        Raises:
            JournalBroken: the journal was altered; the error names the first altered row.
        """
        rows = self.rows(name)
        chains: dict[str, list[JournalRow]] = {}
        for row in rows:
            chain = chains.setdefault(row.name, [])
            expected = (len(chain) + 1, chain[-1].digest if chain else BEGINNING)
            if (row.number, row.previous) != expected:
                raise JournalBroken(name=row.name, number=expected[0], detail="a row is missing or out of place")
            values = asdict(row) | {"metrics": canonical(row.metrics)}
            if values.pop("digest") != _sealed(values):
                raise JournalBroken(name=row.name, number=row.number, detail="its digest does not match its values")
            chain.append(row)
        for model, digest in (known or {}).items():
            chain = chains.get(model, [])
            if digest not in {row.digest for row in chain}:
                raise JournalBroken(name=model, number=len(chain) + 1, detail="a row that existed is missing")
        return len(rows)


def canonical(values: Mapping[str, Any]) -> str:
    """Return canonical JSON.

    Raises:
        BadParams: the values contain NaN or something that JSON cannot represent.
    """
    try:
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadParams(where="metrics", detail=f"cannot be written as JSON ({type(error).__name__})") from None


def _sealed(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def signed(who: str, why: str) -> dict[str, str]:
    """Return who decides and why, without surrounding blanks.

    Raises:
        BadParams: a text is empty, too long or not one line.
    """
    decided = {"who": who.strip(), "why": why.strip()}
    for where, text in decided.items():
        if not text or len(text) > CHARACTERS[where] or not text.isprintable():
            detail = f"needs one line of 1 to {CHARACTERS[where]} characters, because every decision is recorded"
            raise BadParams(where=where, detail=detail)
    return decided


def _last(connection: sa.Connection, *, name: str) -> JournalRow | None:
    query = sa.select(journal).where(journal.c.name == name).order_by(journal.c.number.desc()).limit(1)
    found = connection.execute(query).mappings().first()
    return None if found is None else _row(found)


def _row(found: Mapping[Any, Any]) -> JournalRow:
    try:
        return JournalRow(**{**found, "metrics": json.loads(found["metrics"])})
    except ValueError:
        raise JournalBroken(
            name=found["name"], number=found["number"], detail="its metrics are not valid JSON"
        ) from None
