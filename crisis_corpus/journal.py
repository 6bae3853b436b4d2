"""Read the journal of decisions about models: what was decided, who decided, when, why and on which numbers.

The journal defines which version is champion; MLflow's alias follows it. The rows of a model are numbered from 1,
without gaps, and each row has the digest of the row before, so a row that is changed, moved or removed breaks the
chain. Each row is signed with a key that is not in the database, so that a person who can write to the database cannot
forge a row; ``CORPUS_JOURNAL_KEY`` has the public key. Rows removed at the end break neither chain nor signature: the
signed and dated head names the last row of each model, and a consumer remembers the last row that it saw. Only
:mod:`pipelines.registry.journal` writes rows. The state of a model (:class:`Standing`) follows from its rows.

SQLite by default, PostgreSQL by URL (``CORPUS_JOURNAL_URL``).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import sqlalchemy as sa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from crisis_corpus import formats, last_seen
from crisis_corpus.errors import BadParams, ConfigError, RegistryError

# Ours: room for one or two sentences and a request number.
CHARACTERS = {"who": 128, "why": 500}
# Longer than any transaction of a writer.
BUSY_SECONDS = 60
BEGINNING = "0" * 64
# Where the public key is stored in a home; consumers elsewhere get it by CORPUS_JOURNAL_KEY.
KEY_FILE = "journal.pub"

# Names of releases in the journal, beside those of registered models.
RELEASE = "release/"
Event = Literal[
    "registered",
    "looked",
    "gated",
    "refused",
    "intended",
    "promoted",
    "rolled_back",
    "withdrawn",
    "abandoned",
    "stale",
    "pushing",
    "pushed",
    "unpushed",
]

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
    sa.Column("signature", sa.String(128)),
)

# One row, renewed with every row of the journal and by the weekly housekeeping.
journal_head = sa.Table(
    "journal_head",
    metadata,
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("until", sa.String(32)),
    sa.Column("last", sa.Text, nullable=False),
    sa.Column("signature", sa.String(128), nullable=False),
)


class NoJournal(ConfigError):
    """The journal of decisions about models does not exist at the given address."""

    message = "There is no journal of the model registry at the given address."
    remedy = (
        "Nothing is loaded without it, because it says which versions were withdrawn. On the registry's machine, set "
        "CORPUS_HOME to its folder; elsewhere CORPUS_JOURNAL_URL to the journal's database; see docs/registry.md."
    )


class JournalUnavailable(RegistryError):
    """The database of the model registry's journal is busy, cannot be reached or refuses to write."""

    message = "The journal of the model registry cannot be used now: {detail}."
    remedy = "Check CORPUS_JOURNAL_URL, then repeat the command: completed steps are not repeated."
    exit_code = 75


class JournalBroken(RegistryError):
    """A row of the model registry's journal was changed after it was written."""

    message = "The journal of '{name}' was altered at row {number}: {detail}."
    remedy = (
        "Restore the journal's database from a backup, and compare the backup with the altered database to see what "
        "changed. Do not use the model's aliases before that."
    )
    exit_code = 65


class JournalUnsigned(JournalBroken):
    """A row of the model registry's journal has no signature of the key that signs the journal."""

    message = "The journal of '{name}' is not signed at row {number}."
    remedy = (
        "The row was forged, or CORPUS_JOURNAL_KEY is the key of another corpus: restore the journal's database from a "
        "backup."
    )


@dataclass(frozen=True)
class JournalRow:
    """One decision about a model, or event of a model, in the journal.

    Args:
        number: the row's number among the model's rows, from 1.
        at: the time of the decision, UTC, as ISO 8601.
        event: the kind of row. ``looked`` is written before the gate compares ``to_version``; ``intended`` before the
            alias is changed; ``promoted``, ``rolled_back``, ``withdrawn`` or ``abandoned`` afterwards. ``stale``: a
            record on which ``from_version`` was trained was taken down. ``pushing`` is written before files of
            ``to_version`` are sent to a repository of a hub, ``pushed`` afterwards, and ``unpushed`` when that
            repository was deleted.
        to_version: the version concerned; for the three events that change the alias, the champion afterwards
            (``None``: no champion).
        metrics: the numbers on which the decision is based, names of checks and labels, digests; no content.
        previous: the digest of the previous row, zeros for the first.
        signature: Ed25519 signature of the digest, in hexadecimal digits.
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
    signature: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class JournalHead:
    """What the journal had at a time: rows that are missing from it were removed later.

    Args:
        at: the time, UTC, as ISO 8601.
        until: when the head expires, or ``None`` if no housekeeping renews it.
        last: the digest of each model's last row by model, as JSON.
        signature: Ed25519 signature of the three, in hexadecimal digits.
    """

    at: str
    until: str | None
    last: str
    signature: str = field(default="", repr=False)

    def to_sign(self) -> bytes:
        return f"crisis-corpus/head {canonical({'at': self.at, 'until': self.until, 'last': self.last})}".encode()

    def rows(self) -> dict[str, str]:
        """Return the digests by model; only of a head whose signature was verified."""
        return dict(json.loads(self.last))


class JournalDatabase(Protocol):
    """An open journal database that converts its driver's errors to this project's errors."""

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction that sees one consistent state of the database."""


class _Connection:
    """A database that is only read."""

    def __init__(self, url: sa.URL) -> None:
        try:
            if (backend := url.get_backend_name()) not in {"sqlite", "postgresql"}:
                raise BadParams(where="CORPUS_JOURNAL_URL", detail="is neither sqlite nor postgresql")
            waiting = {"timeout": BUSY_SECONDS} if backend == "sqlite" else {}
            self.sql = sa.create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=waiting)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise BadParams(where="CORPUS_JOURNAL_URL", detail=f"cannot be used ({type(error).__name__})") from None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        try:
            with self.sql.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise JournalUnavailable(detail=f"the database returned {type(error.orig).__name__}") from None


class JournalReader:
    """A reader of the journal of all models in an open database.

    Args:
        key: the public key, or ``None`` if it is unknown.
        seen: the file with the last rows that a consumer saw, or ``None`` for the journal's own machine.
    """

    def __init__(self, database: JournalDatabase, *, key: bytes | None, seen: Path | None = None) -> None:
        self._database, self.key, self._seen = database, key, seen

    def rows(self, name: str | None = None) -> list[JournalRow]:
        """Return the journal rows of one model, oldest first, or of all models, sorted by model name."""
        query = sa.select(journal).order_by(journal.c.name, journal.c.number)
        if name is not None:
            query = query.where(journal.c.name == name)
        with self._database.reading() as connection:
            return [row_of(values) for values in connection.execute(query).mappings()]

    def models(self) -> list[str]:
        """Return the names of the models that the journal has."""
        return sorted({row.name for row in self.rows() if not row.name.startswith(RELEASE)})

    def last(self, name: str) -> JournalRow | None:
        with self._database.reading() as connection:
            return last_row(connection, name=name)

    def head(self) -> JournalHead | None:
        """Return the journal's head, whose signature is verified if the key is known; ``None`` if it has none."""
        with self._database.reading() as connection:
            head = head_of(connection)
        if head is not None and self.key is not None:
            require_head(head, key=self.key)
        return head

    def verify(self, name: str | None = None, *, known: Mapping[str, str] | None = None) -> int:
        """Check hash chain and signatures of one model's journal rows, or of all; return the number of rows checked.

        ``known`` has by model the digest of an earlier last row, which must still exist; it reveals a cut journal.
        """
        # before the rows: a writer may add some meanwhile
        head = self.head()
        rows = self.rows(name)
        chains = chained(rows)
        if self.key is not None:
            for row in rows:
                if not signed_by(row, key=self.key):
                    raise JournalUnsigned(name=row.name, number=row.number)
        missing = "a row that existed is missing"
        wanted = [(model, digest, missing) for model, digest in (known or {}).items()]
        if self.key is not None and rows and head is None:
            raise JournalBroken(name=rows[0].name, number=len(rows) + 1, detail="its signed head is missing")
        if self.key is not None and head is not None:
            wanted += [(model, digest, missing) for model, digest in head.rows().items()]
        if self.key is not None and self._seen is not None:
            detail = f"a row that was seen here before is missing; if that is meant, delete {self._seen}"
            stored = last_seen.known(self._seen, key=self.key.hex())
            wanted += [(model, digest, detail) for model, digest in stored.items()]
        for model, digest, detail in wanted:
            chain = chains.get(model, [])
            if name in (None, model) and digest not in {row.digest for row in chain}:
                raise JournalBroken(name=model, number=len(chain) + 1, detail=detail)
        if self.key is not None and self._seen is not None:
            newest = {model: chain[-1].digest for model, chain in chains.items()}
            last_seen.remember(self._seen, newest, key=self.key.hex())
        return len(rows)


def chained(rows: Sequence[JournalRow]) -> dict[str, list[JournalRow]]:
    """Check the hash chain of each model's journal rows, and return the rows by model."""
    chains: dict[str, list[JournalRow]] = {}
    for row in rows:
        chain = chains.setdefault(row.name, [])
        expected = (len(chain) + 1, chain[-1].digest if chain else BEGINNING)
        if (row.number, row.previous) != expected:
            raise JournalBroken(name=row.name, number=expected[0], detail="a row is missing or out of place")
        values = asdict(row) | {"metrics": canonical(row.metrics)}
        values.pop("signature")
        if values.pop("digest") != sealed(values):
            raise JournalBroken(name=row.name, number=row.number, detail="its digest does not match its values")
        chain.append(row)
    return chains


def signed_by(row: JournalRow, *, key: bytes) -> bool:
    """Return whether a journal row has a valid signature of this public key."""
    return _signed(row.signature or "", to_sign(row.digest), key=key)


def _signed(signature: str, data: bytes, *, key: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def to_sign(digest: str) -> bytes:
    """Return the bytes that the signature of a journal row covers, which contain the row's digest."""
    return f"crisis-corpus/journal {digest}".encode()


def public_key(home: Path | None = None) -> bytes | None:
    """Return the journal's public key from ``CORPUS_JOURNAL_KEY``, else from a file in the home, or ``None``.

    The home is by default ``CORPUS_HOME``.
    """
    text, place = os.environ.get("CORPUS_JOURNAL_KEY"), home or os.environ.get("CORPUS_HOME")
    if not text and place and (path := Path(place) / KEY_FILE).is_file():
        text = path.read_text().strip()
    if not text:
        return None
    try:
        key = bytes.fromhex(text)
        Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise BadParams(where="CORPUS_JOURNAL_KEY", detail="needs 64 hexadecimal digits") from None
    return key


@contextmanager
def opened(url: str, *, home: Path | None = None, seen: Path | None = None) -> Iterator[JournalReader]:
    """Open an existing journal and close it at the end of the context; a missing journal is not created.

    Signatures are verified if there is a :func:`public_key`.
    """
    try:
        address = sa.make_url(url)
    except ArgumentError:
        raise NoJournal() from None
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        raise NoJournal()
    database = _Connection(address)
    try:
        with database.reading() as connection:
            if not sa.inspect(connection).has_table(journal.name):
                raise NoJournal()
            require_in(connection, name=journal.name, known=formats.JOURNAL)
        yield JournalReader(database, key=public_key(home), seen=seen)
    finally:
        database.sql.dispose()


def canonical(values: Mapping[str, Any]) -> str:
    """Serialise a mapping as canonical JSON: sorted keys, no spaces."""
    try:
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadParams(where="metrics", detail=f"cannot be written as JSON ({type(error).__name__})") from None


def sealed(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of a journal row's fields."""
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def last_row(connection: sa.Connection, *, name: str) -> JournalRow | None:
    """Return the last row of a model's journal, or ``None`` if there is none."""
    query = sa.select(journal).where(journal.c.name == name).order_by(journal.c.number.desc()).limit(1)
    values = connection.execute(query).mappings().first()
    return None if values is None else row_of(values)


def head_of(connection: sa.Connection) -> JournalHead | None:
    """Return the head in an open journal; it is not verified."""
    if not sa.inspect(connection).has_table(journal_head.name):
        return None  # of an earlier release
    values = connection.execute(sa.select(journal_head)).mappings().first()
    return None if values is None else JournalHead(**values)


def require_head(head: JournalHead, *, key: bytes) -> None:
    """Check the signature of a head."""
    if not _signed(head.signature, head.to_sign(), key=key):
        raise JournalBroken(name="all models", number=1, detail="its head is not signed with the journal's key")


def row_of(values: Mapping[Any, Any]) -> JournalRow:
    """Convert a row of the journal's database table to a :class:`JournalRow`."""
    try:
        return JournalRow(**{**values, "metrics": json.loads(values["metrics"])})
    except ValueError:
        detail = "its metrics are not valid JSON"
        raise JournalBroken(name=values["name"], number=values["number"], detail=detail) from None


# Events that put the alias on ``to_version``.
MOVES = ("promoted", "rolled_back", "withdrawn")
# Events that consumers see: the token changes, and webhooks are sent.
VISIBLE = (*MOVES, "stale")


@dataclass(frozen=True)
class Standing:
    """The state of one model (its champion and other versions), as its journal rows determine it.

    Args:
        champion: the version that MLflow's alias must point to, or ``None`` if the alias must not exist.
        before: the earlier champions that a rollback can restore, oldest first, without withdrawn versions.
        intention: the row ``intended`` of a champion change that is not finished, or ``None`` if there is none.
        stale: the versions that were trained on records taken down since, and when (ISO 8601) they are removed.
    """

    name: str
    head: int = 0
    champion: int | None = None
    before: tuple[int, ...] = ()
    intention: JournalRow | None = None
    withdrawn: frozenset[int] = frozenset()
    stale: Mapping[int, str] = field(default_factory=dict)

    def after(self, row: JournalRow) -> Standing:
        champion, before, intention, withdrawn = self.champion, list(self.before), self.intention, self.withdrawn
        stale = self.stale
        match row.event:
            case "intended":
                intention = row
            case "abandoned":
                intention = None
            case "promoted" | "rolled_back":
                intention, champion = None, row.to_version
                if row.event == "promoted" and self.champion is not None:
                    before.append(self.champion)
                elif row.event == "rolled_back":
                    # back to the last time at which it was champion
                    while before and before.pop() != champion:
                        pass
            case "withdrawn":
                # ``to_version`` is the champion afterwards
                intention, gone = None, int(row.from_version or 0)
                before = [version for version in before if version != gone]
                withdrawn |= {gone}
                champion = None if champion == gone else champion
            case "stale":
                # a later takedown does not move the deadline
                version = int(row.from_version or 0)
                until = str(row.metrics["until"])
                stale = {**stale, version: min(until, stale.get(version, until))}
        return Standing(self.name, row.number, champion, tuple(before), intention, withdrawn, stale)


def of_rows(name: str, rows: Iterable[JournalRow]) -> Standing:
    """Return the state of a model that follows from its journal rows, oldest first."""
    standing = Standing(name)
    for row in rows:
        standing = standing.after(row)
    return standing


def standing(journal: JournalReader, name: str) -> Standing:
    """Verify a model's journal and return the present state of the model."""
    journal.verify(name)
    return of_rows(name, journal.rows(name))


def require_in(connection: sa.Connection, *, name: str, known: int) -> int:
    """Return the version of the format ``name`` in a database, from its table ``<name>_format`` of one row."""
    table = sa.Table(f"{name}_format", sa.MetaData(), sa.Column("version", sa.Integer))
    there = sa.inspect(connection).has_table(table.name)
    version = connection.scalar(sa.select(table.c.version)) if there else None
    return formats.require(version, name=name, known=known)
