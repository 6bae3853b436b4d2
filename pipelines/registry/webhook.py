"""Deliver webhooks about champion changes in order, and about drift, at least once.

A queue (outbox) is filled from the journal's rows, so no recorded change is lost; notices of drift have no row there,
because a row between the gate's verdict and the decision would make the decision stale. Each delivery is marked after
it was answered: if the process is killed between the two, the delivery is sent again under the same id. A webhook
proves nothing: receivers should query :mod:`crisis_corpus.client`, which trusts only the journal. MLflow's own webhooks
are not used: they go from a pool of threads in the server's memory, so that they have no order and are lost with it.

The tables of subscribers and deliveries are in the journal's database and hold the signing secrets: consumer accounts
may read the table ``journal`` but not these tables. The format is Standard Webhooks 1.0
(https://www.standardwebhooks.com). Of a receiver's answer only the HTTP status is read, never the body.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column

from crisis_corpus.journal import VISIBLE, JournalRow, canonical
from crisis_corpus.versions import UnknownModel
from crisis_corpus.webhook import PREFIX, signature
from pipelines.core.config.label import on_this_machine
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.process import now, silent
from pipelines.registry.journal import Clock, Journal, utc_now
from pipelines.store.metrics_file import read_metrics
from pipelines.workspace.clone import workspace

# Delays between attempts (the example schedule of Standard Webhooks: 75 hours in all). The delivery is dead when the
# attempt after the last delay fails.
DELAYS = tuple(timedelta(seconds=s) for s in (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400))
# With this status a receiver ends its subscription (Standard Webhooks, "delivery success and failure").
GONE = 410
INSECURE = "insecure"
# The shortest timeout that Standard Webhooks recommends.
TIMEOUT_SECONDS = 15
# Standard Webhooks requires 24 to 64 bytes.
SECRET_BYTES = 32
URL_CHARACTERS = 500


def new_secret() -> str:
    """Create the signing secret of a webhook subscription: ``whsec_`` followed by base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _body(event: str, *, at: str, **data: Any) -> str:
    """Return the webhook's body for an event: of a row of the journal, or ``drift``."""
    return canonical({"type": f"model.{event}", "timestamp": at, "data": data | {"event": event, "at": at}})


def _row_body(row: JournalRow) -> str:
    """Return the webhook's body for a journal row: the row without the reason (``why``)."""
    versions = {"from": row.from_version, "to": row.to_version}
    return _body(row.event, at=row.at, name=row.name, who=row.who, token=row.digest, **versions)


def check(url: str) -> None:
    """Check the address of a webhook receiver, and reject an address that is unsafe or malformed."""
    if not _safe(url):
        detail = "must be an https address (http on this machine only) without a user name or password"
        raise BadParams("BadArgument", where="url", detail=detail)


def _safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "https" or (parts.scheme == "http" and on_this_machine(url))
        good = good and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return good and len(url) <= URL_CHARACTERS and url.isprintable()


def post(client: httpx.Client, url: str, *, secret: str, id: str, body: str, now: datetime) -> str:
    """Send one signed webhook request; return the HTTP status, or the error's name if there was no response.

    Nothing is sent to an unsafe address, whoever wrote it into the table; :data:`INSECURE` is returned.
    """
    if not _safe(url):
        return INSECURE
    at, content = int(now.timestamp()), body.encode()
    headers = {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": signature(secret, id=id, at=at, body=content),
    }
    try:
        with client.stream("POST", url, content=content, headers=headers) as answer:
            return str(answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return type(error).__name__


WAITING, DELIVERED, DEAD = "waiting", "delivered", "dead"
# The number of a delivery that is about no row of the journal.
NOTICE = 0


class _Table(MappedAsDataclass, DeclarativeBase):
    """The tables of subscribers and deliveries."""


class Subscriber(_Table, kw_only=True):
    """One subscriber of webhooks.

    Args:
        id: its random id, shown in logs because the address itself may contain a secret.
        name: the registered model that it subscribes to, or ``None`` for all models.
        since: JSON: model -> number of its last row at the time of subscription.
    """

    __tablename__ = "subscribers"

    id: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    url: Mapped[str] = mapped_column(sa.String(URL_CHARACTERS), repr=False)
    name: Mapped[str | None] = mapped_column(sa.String(128))
    secret: Mapped[str] = mapped_column(sa.String(64), repr=False)
    since: Mapped[str] = mapped_column(sa.Text, repr=False)


class Delivery(_Table, kw_only=True):
    """One webhook for one subscriber; ``answer`` is the HTTP status or error of the last attempt to send it.

    ``name`` is the model and ``number`` the journal row that it is about, 0 for drift.
    """

    __tablename__ = "deliveries"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    subscriber: Mapped[str] = mapped_column(sa.String(16))
    name: Mapped[str] = mapped_column(sa.String(128))
    number: Mapped[int]
    body: Mapped[str] = mapped_column(sa.Text, repr=False)
    status: Mapped[str] = mapped_column(sa.String(16), default=WAITING)
    attempts: Mapped[int] = mapped_column(default=0)
    due: Mapped[str] = mapped_column(sa.String(32))
    answer: Mapped[str | None] = mapped_column(sa.String(64), default=None)


subscribers = Subscriber.__table__


class Watch:
    """The webhook subscribers and their queue of deliveries, stored in the journal's database."""

    def __init__(self, journal: Journal, *, clock: Clock) -> None:
        self._journal, self._engine, self._clock = journal, journal.engine, clock

    @classmethod
    def open(cls, journal: Journal, *, clock: Clock = utc_now) -> Watch:
        """Open the webhook subscribers and deliveries in the journal's database; create their tables if missing."""
        with journal.engine.writing() as connection:
            _Table.metadata.create_all(connection)
        return cls(journal, clock=clock)

    def subscribe(self, url: str, *, name: str | None = None) -> Subscriber:
        """Subscribe an address to later changes; return the subscriber with its secret, which is shown only here.

        Raises:
            BadParams: the address has another form, or contains a user name or password.
            UnknownModel: the journal has no model of this name.
        """
        check(url)
        if name is not None and name not in (models := self._journal.models()):
            raise UnknownModel(name=name, known=", ".join(models) or "the models that `corpus registry` lists")
        since = json.dumps({row.name: row.number for row in self._journal.rows()})
        for known in self.subscribers():
            if (known.url, known.name) == (url, name):
                raise ConfigError("SubscribedAlready", id=known.id, name=name or "every model")
        made = Subscriber(id=secrets.token_hex(4), url=url, name=name, secret=new_secret(), since=since)
        with self._engine.writing() as connection, Session(connection) as session:
            session.add(made)
            session.flush()
            session.expunge(made)
        return made

    def unsubscribe(self, subscriber: str) -> None:
        with self._engine.writing() as connection:
            if not connection.execute(sa.delete(Subscriber).where(Subscriber.id == subscriber)).rowcount:
                raise ConfigError("UnknownSubscriber", id=subscriber)
            connection.execute(sa.delete(Delivery).where(Delivery.subscriber == subscriber))

    def drift(self, name: str, *, version: int, months: Mapping[str, Sequence[str]]) -> int:
        """Queue a webhook about drift of the champion for each subscriber of a model, once; return how many are new.

        ``months`` has by month the names of the quantities that have drifted.
        """
        drift = {"name": name, "version": version, "months": dict(months)}
        mark, body = (_body("drift", at=at, **drift) for at in ("", self._now()))
        wanted = [subscriber for subscriber in self.subscribers() if subscriber.name in (None, name)]
        return self._queue(self._delivery(each, mark=mark, name=name, number=NOTICE, body=body) for each in wanted)

    def subscribers(self) -> list[Subscriber]:
        with self._engine.reading() as connection, Session(connection) as session:
            return list(session.scalars(sa.select(Subscriber).order_by(Subscriber.id)))

    def deliveries(self, *, status: str | None = None) -> list[Delivery]:
        """Return the webhooks to send and sent, or those with a status, sorted by subscriber, model and journal row."""
        query = sa.select(Delivery).order_by(Delivery.subscriber, Delivery.name, Delivery.number)
        if status is not None:
            query = query.where(Delivery.status == status)
        with self._engine.reading() as connection, Session(connection) as session:
            return list(session.scalars(query))

    def status(self) -> list[dict[str, Any]]:
        """Return for each subscriber ``id``, ``host``, ``name``, deliveries by status, and the last HTTP ``answer``."""
        states, deliveries = list[dict[str, Any]](), self.deliveries()
        for subscriber in self.subscribers():
            own = [delivery for delivery in deliveries if delivery.subscriber == subscriber.id]
            counts = Counter(delivery.status for delivery in own)
            states.append(
                {
                    "id": subscriber.id,
                    "host": urlsplit(subscriber.url).hostname,
                    "name": subscriber.name,
                    **{status: counts[status] for status in (WAITING, DELIVERED, DEAD)},
                    "answer": next((d.answer for d in reversed(own) if d.answer), None),
                }
            )
        return states

    def deliver(self, *, say: Callable[[str], None] = silent) -> dict[str, int]:
        """Queue webhooks for new journal rows, and send those that are due once; a failing subscriber blocks no other.

        A failed delivery holds back the later ones of the same subscriber and model until it is delivered or dead;
        champion changes and notices of drift do not hold back each other.

        Returns:
            the numbers of deliveries that were ``delivered``, ``failed`` (and will be retried) and ``dead`` (given up)
            in this call, and that are ``waiting`` after it.
        """
        self._journal.verify()
        known = {subscriber.id: subscriber for subscriber in self.subscribers()}
        rows = [row for row in self._journal.rows() if row.event in VISIBLE]
        self._queue(
            self._delivery(subscriber, mark=row.digest, name=row.name, number=row.number, body=_row_body(row))
            for subscriber in known.values()
            for row in rows
            if subscriber.name in (None, row.name) and row.number > json.loads(subscriber.since).get(row.name, 0)
        )
        results, held = Counter[str](), set[tuple[str, str, bool]]()
        # no redirects: a request is signed for one address
        with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            for delivery in self.deliveries(status=WAITING):
                subscriber, line = known.get(delivery.subscriber), _line(delivery)
                if subscriber is None or line in held:
                    continue
                if delivery.due > self._now():
                    held.add(line)
                    continue
                signing = {"secret": subscriber.secret, "id": delivery.id, "body": delivery.body}
                answer = post(client, subscriber.url, now=self._clock(), **signing)
                say(delivery.id)
                status = self._mark(delivery, answer=answer)
                results["failed" if status == WAITING else status] += 1
                if status == WAITING:
                    held.add(line)
        waiting = len(self.deliveries(status=WAITING))
        return {key: results[key] for key in (DELIVERED, "failed", DEAD)} | {WAITING: waiting}

    def _now(self) -> str:
        return _stamp(self._clock())

    def _delivery(self, subscriber: Subscriber, *, mark: str, **values: Any) -> Delivery:
        """Return a webhook that is due now, with an id that is the same for the same subscriber and ``mark``."""
        id_ = f"msg_{hashlib.sha256(f'{subscriber.id} {mark}'.encode()).hexdigest()[:32]}"
        return Delivery(id=id_, subscriber=subscriber.id, due=self._now(), **values)

    def _queue(self, new: Iterable[Delivery]) -> int:
        """Insert deliveries by id, unless they exist or their subscriber was removed; return how many are new."""
        with self._engine.writing() as connection, Session(connection) as session:
            known = set(session.scalars(sa.select(Delivery.id)))
            present = set(session.scalars(sa.select(Subscriber.id)))
            fresh = [delivery for delivery in new if delivery.id not in known and delivery.subscriber in present]
            session.add_all(fresh)
            session.flush()
        return len(fresh)

    def _mark(self, delivery: Delivery, *, answer: str) -> str:
        """Record the result of an attempt; return the delivery's status."""
        attempts, due, status = delivery.attempts + 1, delivery.due, WAITING
        if answer.startswith("2"):
            status = DELIVERED
        elif answer in (str(GONE), INSECURE) or attempts > len(DELAYS):
            status = DEAD
        else:
            due = _stamp(self._clock() + DELAYS[attempts - 1])
        # a concurrent pass may have delivered it: then its result is kept
        query = sa.update(Delivery).where(Delivery.id == delivery.id, Delivery.status == WAITING)
        with self._engine.writing() as connection:
            connection.execute(query.values(status=status, attempts=attempts, due=due, answer=answer))
        return status


def _line(delivery: Delivery) -> tuple[str, str, bool]:
    """Return what a failed delivery holds back: the later ones with the same value."""
    return delivery.subscriber, delivery.name, delivery.number == NOTICE


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def notify_drift(corpus: str, *, settings: Settings) -> dict[str, Any]:
    """Print the months whose predictions drifted, from the published ``batch_predict.json``, and send webhooks.

    A notice that was queued before is not queued again. Failed deliveries are retried by the Dag ``deliver``.

    Returns:
        ``drift``: by model, the drifted quantities by month; ``queued``: the number of new notices; and the counts of
        :meth:`Watch.deliver`, which sends the queued notices.
    """
    with workspace(settings) as clone:
        metrics = read_metrics(clone.path / "metrics" / corpus / "batch_predict.json")
    drifted = {name: model for name, model in metrics.items() if (model.get("drift") or {}).get("exceeded")}
    queued = 0
    with Journal.of(settings, clock=now) as journal:
        watch = Watch.open(journal, clock=now)
        for name, model in drifted.items():
            months = model["drift"]["exceeded"]
            for month, quantities in months.items():
                sys.stderr.write(f"drift: {name}/{model['version']} in {month}: {', '.join(quantities)}\n")
            queued += watch.drift(name, version=model["version"], months=months)
        delivered = watch.deliver()
    exceeded = {name: model["drift"]["exceeded"] for name, model in drifted.items()}
    return {"drift": exceeded, "queued": queued, **delivered}
