"""Record decisions about models in append-only rows; see :mod:`crisis_corpus.journal`.

The database refuses updates, deletes and replacing inserts, and accepts each row number once, which provides the
compare-and-set that MLflow's aliases lack. Rows are signed with a key that is derived from the project secret.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Self, get_args

import sqlalchemy as sa

from crisis_corpus.errors import BadParams, RegistryError
from crisis_corpus.journal import (
    BEGINNING,
    CHARACTERS,
    KEY_FILE,
    Event,
    JournalBroken,
    JournalHead,
    JournalReader,
    JournalRow,
    JournalUnavailable,
    JournalUnsigned,
    canonical,
    head_of,
    journal,
    journal_head,
    last_row,
    metadata,
    require_head,
    row_of,
    sealed,
    signed_by,
    to_sign,
)
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, NoSecret
from pipelines.core.process import create_private
from pipelines.store.vault.engine import Engine, Store
from pipelines.store.vault.keyring import Signer, derive

# Any constant that no other database uses.
WRITER_LOCK = 0x0C0_4B5_707
# Names that identify no one.
ANONYMOUS = frozenset({"", "anonymous", "unknown"})

# Ours: two runs of the weekly housekeeping.
VALID = timedelta(days=14)

Clock = Callable[[], datetime]

_APPEND_ONLY = {
    "sqlite": [
        f"""CREATE TRIGGER IF NOT EXISTS journal_{event} BEFORE {event} ON journal {when}
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
        for event, when in {
            "UPDATE": "",
            "DELETE": "",
            # INSERT OR REPLACE deletes rows without firing the trigger above
            "INSERT": """WHEN EXISTS (SELECT 1 FROM journal
                WHERE (name = NEW.name AND number = NEW.number) OR digest = NEW.digest)""",
        }.items()
    ],
    "postgresql": [
        """CREATE FUNCTION journal_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$""",
        """CREATE TRIGGER journal_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON journal
        FOR EACH STATEMENT EXECUTE FUNCTION journal_refuse()""",
    ],
}


class CannotSign(ConfigError):
    """A process without the project secret tried to write to the journal."""


class JournalMoved(RegistryError):
    """The journal got another row after the state on which a decision was based; the decision was not recorded."""


def utc_now() -> datetime:
    """Return the current UTC time for journal rows; tests use another clock."""
    return datetime.now(UTC)


class Journal(JournalReader, Store):
    """The journal of decisions about all models, in an open database; it has one writer at a time, across processes."""

    def __init__(self, engine: Engine, *, clock: Clock, signer: Signer | None) -> None:
        JournalReader.__init__(self, engine, key=signer.public if signer else None)
        Store.__init__(self, engine)
        self.engine, self._clock, self._signer = engine, clock, signer

    @classmethod
    def of(cls, settings: Settings, *, clock: Clock = utc_now) -> Self:
        """Open or create the journal of decisions; without a project secret it can be read, but not be verified."""
        try:
            secret = settings.secret()
        except NoSecret:
            return cls.open(settings.journal_url, clock=clock)
        opened = cls.open(settings.journal_url, clock=clock, secret=secret)
        create_private(settings.home / KEY_FILE, f"{(opened.key or b'').hex()}\n")
        return opened

    @classmethod
    def open(cls, url: str, *, clock: Clock = utc_now, secret: bytes | None = None) -> Self:
        """Open or create the journal of decisions at ``sqlite:///file`` or ``postgresql+psycopg2://...``."""
        engine = Engine(url, where="CORPUS_JOURNAL_URL", lock=WRITER_LOCK, unavailable=JournalUnavailable)
        with engine.writing() as connection:
            new = engine.prepare(connection, metadata, name="journal")
            # in SQLite also later: a copy may have lost them
            for statement in _APPEND_ONLY[engine.backend] if new or engine.backend == "sqlite" else ():
                connection.exec_driver_sql(statement)
            opened = cls(engine, clock=clock, signer=Signer(secret, purpose="journal") if secret else None)
            if secret and not sa.inspect(connection).has_table(journal_head.name):
                # of an earlier release: its rows are taken as they are
                journal_head.create(connection)
                newest = sa.select(journal.c.name, journal.c.digest).order_by(journal.c.number)
                opened._renew(connection, {row.name: row.digest for row in connection.execute(newest)})
        return opened

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
        """Write the next row of a model's journal and return it; the values are described in :class:`JournalRow`.

        ``after`` is the number that the model's last row must still have (0: no row), or ``None`` to skip this check.
        """
        decided = signed(who, why)
        signer = self._signing()
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
            if last is not None and not signed_by(last, key=signer.public):
                raise JournalUnsigned(name=name, number=number)
            digest = sealed(values)
            values |= {"digest": digest, "signature": signer.sign(to_sign(digest)).hex()}
            head = head_of(connection)
            if head is not None:
                require_head(head, key=signer.public)
            elif connection.execute(sa.select(journal.c.number).limit(1)).first():
                raise JournalBroken(name=name, number=number + 1, detail="its signed head is missing")
            # the rows of other models are taken from the head: a new one must not hide that they were cut
            rows = head.rows() if head else {}
            if rows.get(name, BEGINNING) != values["previous"]:
                raise JournalBroken(name=name, number=number + 1, detail="a row that existed is missing")
            connection.execute(sa.insert(journal), values)
            self._renew(connection, rows | {name: digest}, dated=bool(head and head.until))
        return row_of(values)

    def confirm(self, *, known: Mapping[str, str] | None = None) -> None:
        """Verify the journal, and date its head anew: it expires after :data:`VALID`."""
        self.verify(known=known)
        with self.engine.writing() as connection:
            if head := head_of(connection):
                require_head(head, key=self._signing().public)
                self._renew(connection, head.rows(), dated=True)

    def _signing(self) -> Signer:
        if self._signer is None:
            raise CannotSign
        return self._signer

    def _renew(self, connection: sa.Connection, rows: Mapping[str, str], *, dated: bool = False) -> None:
        """Replace the head by one with these last rows (digests by model)."""
        at = self._clock().astimezone(UTC)
        until = (at + VALID).isoformat(timespec="seconds") if dated else None
        head = JournalHead(at.isoformat(timespec="seconds"), until, canonical(rows))
        signature = self._signing().sign(head.to_sign()).hex()
        connection.execute(sa.delete(journal_head))
        connection.execute(sa.insert(journal_head), asdict(head) | {"signature": signature})


def signed(who: str, why: str) -> dict[str, str]:
    """Return the person ``who`` and the reason ``why`` as fields of a journal row, without white space at the ends."""
    decided = {"who": who.strip(), "why": why.strip()}
    for where, text in decided.items():
        if not text or len(text) > CHARACTERS[where] or not text.isprintable():
            detail = f"needs one line of 1 to {CHARACTERS[where]} characters, because every decision is recorded"
            raise BadParams(where=where, detail=detail)
    if decided["who"].partition("(")[0].strip().casefold() in ANONYMOUS:
        raise BadParams(where="who", detail="needs the name of a person or a step, because every decision is recorded")
    return decided


# The person of a rejection because of a question that was not answered in time.
NO_ANSWER = "no answer"


class SamePerson(RegistryError):
    """A decision that needs two persons was asked for and made by the same one, or the first is unknown."""


@dataclass(frozen=True)
class ApprovalRecord:
    """The decision of a user of Airflow, on its way from the task that asked for it to the task that carries it out.

    Users of Airflow can change what tasks pass on, so it is authenticated with the project secret. It is valid in one
    Dag run, for one subject and for the answer that was given.

    Args:
        subject: what the question was about, such as ``promote crisis-posts 2``.
    """

    run: str
    subject: str
    yes: bool
    who: str
    why: str
    asked_by: str | None

    @classmethod
    def answered(cls, *, user: str | None, asked_by: str | None, **question: Any) -> ApprovalRecord:
        """Return the decision of a user of Airflow; a ``user`` of ``None`` means that there was no answer in time."""
        if user is None and not question["yes"]:
            return cls(who=NO_ANSWER, asked_by=None, **question)
        if user is None or user.strip().casefold() in ANONYMOUS:
            raise RegistryError("DecisionRefused", detail="the answer came from a user who was not logged in")
        return cls(who=f"airflow:{user}", asked_by=f"airflow:{asked_by}" if asked_by else None, **question)

    def token(self, secret: bytes) -> dict[str, Any]:
        """Return this decision as JSON values with a message authentication code (a token)."""
        return asdict(self) | {"mac": _mac(asdict(self), secret)}

    @classmethod
    def verified(cls, text: str, secret: bytes, *, run: str, subject: str, yes: bool) -> ApprovalRecord:
        """Return the decision in a token, after checking its code and that it is of this run, subject and answer."""
        try:
            values = json.loads(text)
            mac = values.pop("mac")
            record = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RegistryError("DecisionRefused", detail="it is not a decision of this project") from None
        if not hmac.compare_digest(str(mac).encode(), _mac(values, secret).encode()):
            raise RegistryError("DecisionRefused", detail="it was changed after the answer")
        if (record.run, record.subject, record.yes) != (run, subject, yes):
            raise RegistryError(
                "DecisionRefused", detail="the answer was another one, in another run, or about something else"
            )
        signed(record.who, record.why)
        return record


def require_two(who: str, *, asked_by: str | None) -> None:
    """Check that one person asked for a decision (``asked_by``) and another one made it (``who``)."""
    if not asked_by or _login(who) == _login(asked_by):
        raise SamePerson(who=who)


def _login(who: str) -> str:
    return who.rpartition("(")[2].removesuffix(")")


def _mac(values: dict[str, Any], secret: bytes) -> str:
    key = derive(secret, purpose="approval", length=32)
    return hmac.new(key, json.dumps(values, sort_keys=True).encode(), sha256).hexdigest()
