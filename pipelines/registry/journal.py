"""Record decisions about models in append-only rows; see :mod:`crisis_corpus.journal`.

The database refuses updates and deletes, and accepts each row number once, which provides the compare-and-set that
MLflow's aliases lack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self, get_args

import sqlalchemy as sa

from crisis_corpus.errors import BadParams, RegistryError
from crisis_corpus.journal import (
    BEGINNING,
    CHARACTERS,
    Event,
    JournalBroken,
    JournalReader,
    JournalRow,
    JournalUnavailable,
    canonical,
    journal,
    last_row,
    metadata,
    row_of,
    sealed,
)
from pipelines.vault.engine import Engine

# Any constant that no other database uses.
WRITER_LOCK = 0x0C0_4B5_707

Clock = Callable[[], datetime]

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


class JournalMoved(RegistryError):
    """Another row was written after the state on which the decision was based; the decision was not recorded."""

    message = (
        "The journal of '{name}' has changed since this decision was prepared: after row {expected}, {who} wrote row "
        "{number}, '{event}'."
    )
    remedy = "Nothing was recorded. Read row {number} with `corpus registry {name}`, then decide again."
    exit_code = 75


def utc_now() -> datetime:
    """Return the current UTC time; tests use another clock."""
    return datetime.now(UTC)


class Journal(JournalReader):
    """The journal of all models in an open database; it accepts one writer at a time, also across processes."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        """Use :meth:`open` instead."""
        super().__init__(engine)
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
            after: the number of the last row at the time of the decision (0 means no row), or ``None`` for any row.

        Raises:
            BadParams: who or why is empty, too long or not one line; the metrics are not JSON.
            JournalMoved: there is a row after ``after``; nothing was written.
            JournalBroken: the row ``after`` does not exist.
        """
        decided = signed(who, why)
        if event not in get_args(Event):
            raise BadParams(where="event", detail=f"'{event}' is not an event of the journal")
        with self.engine.writing() as connection:
            last = last_row(connection, name=name)
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
            values["digest"] = sealed(values)
            connection.execute(sa.insert(journal), values)
        return row_of(values)


def signed(who: str, why: str) -> dict[str, str]:
    """Return who decides and why, without white space at the ends.

    Raises:
        BadParams: a text is empty, too long or not one line.
    """
    decided = {"who": who.strip(), "why": why.strip()}
    for where, text in decided.items():
        if not text or len(text) > CHARACTERS[where] or not text.isprintable():
            detail = f"needs one line of 1 to {CHARACTERS[where]} characters, because every decision is recorded"
            raise BadParams(where=where, detail=detail)
    return decided
