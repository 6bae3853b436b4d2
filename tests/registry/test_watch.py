"""Subscribers get a webhook for each recorded change of the champion: signed, in order, again after a crash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import pytest
import sqlalchemy as sa

from crisis_corpus import BadWebhook, verify
from crisis_corpus.client import changed, token
from crisis_corpus.journal import JournalBroken, JournalUnavailable
from crisis_corpus.versions import UnknownModel
from crisis_corpus.webhook import signature
from pipelines.core.errors import BadParams
from pipelines.registry.journal import Journal
from pipelines.registry.webhook import DEAD, DELAYS, DELIVERED, WAITING, Watch, new_secret, subscribers
from tests.refusals import refused
from tests.registry.receiver import Receiver, receiver
from tests.registry.small_registry import altered

__all__ = ["receiver"]
NAME, OTHER = "crisis-posts", "meme-severity"
WHO: dict[str, Any] = {"who": "ada", "why": "a reason that is not sent"}
NOW = datetime(2023, 1, 2, 9, tzinfo=UTC)
SECRET = b"5" * 64


class Clock:
    """A clock that does not move until it is advanced."""

    now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with Journal.open(url, clock=lambda: NOW, secret=SECRET) as journal:
        yield journal


@pytest.fixture
def watch(journal: Journal, clock: Clock) -> Watch:
    return Watch.open(journal, clock=clock)


def moved(journal: Journal, event: str, version: int | None, *, name: str = NAME) -> None:
    journal.append(name, event=event, to_version=version, **WHO)  # type: ignore[arg-type]


def test_a_change_of_champion_is_sent_signed_and_without_its_reason(
    watch: Watch, journal: Journal, receiver: Receiver, url: str
) -> None:
    made = watch.subscribe(receiver.url)
    moved(journal, "registered", 3)
    moved(journal, "gated", 3)
    moved(journal, "intended", 3)
    moved(journal, "promoted", 3)
    assert watch.deliver() == {"delivered": 1, "failed": 0, "dead": 0, "waiting": 0}
    ((headers, body),) = receiver.came
    told = json.loads(body)
    assert told["type"] == "model.promoted" and told["timestamp"] == NOW.isoformat(timespec="microseconds")
    assert told["data"] == {
        "name": NAME, "event": "promoted", "from": None, "to": 3, "who": "ada",
        "at": told["timestamp"], "token": token(NAME, journal_url=url),
    }  # fmt: skip
    assert b"reason" not in body
    # as https://www.standardwebhooks.com says
    key = base64.b64decode(made.secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert len(key) == 32 and headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    # polling gives the same result as the webhook
    assert changed(NAME, told["data"]["token"], journal_url=url) is None
    assert watch.deliver()["delivered"] == 0 and len(receiver.came) == 1


def test_each_subscriber_gets_events_of_its_model_since_it_subscribed(
    watch: Watch, journal: Journal, receiver: Receiver
) -> None:
    moved(journal, "promoted", 1)
    watch.subscribe(f"{receiver.url}/all")
    watch.subscribe(f"{receiver.url}/one", name=NAME)
    moved(journal, "promoted", 2)
    moved(journal, "promoted", 1, name=OTHER)
    moved(journal, "rolled_back", 1)
    moved(journal, "withdrawn", 1)
    assert watch.deliver()["delivered"] == 7
    by_model = [(d["name"], d["event"]) for d in (json.loads(body)["data"] for _, body in receiver.came)]
    assert by_model.count((OTHER, "promoted")) == 1
    own = [event for name, event in by_model if name == NAME]
    assert own == ["promoted", "rolled_back", "withdrawn"] * 2
    assert len({*receiver.ids()}) == 7


def test_an_unreachable_receiver_is_retried_in_order_and_blocks_no_other(
    watch: Watch, journal: Journal, receiver: Receiver, clock: Clock
) -> None:
    watch.subscribe("http://127.0.0.1:9/closed")
    watch.subscribe(receiver.url)
    receiver.answers = [503, 204]
    moved(journal, "promoted", 1)
    moved(journal, "promoted", 2)
    assert watch.deliver() == {"delivered": 0, "failed": 2, "dead": 0, "waiting": 4}
    # not yet due: nothing is sent, the second least of all
    assert watch.deliver()["failed"] == 0 and receiver.told() == [("promoted", 1)]
    clock.now += DELAYS[0]
    assert watch.deliver() == {"delivered": 2, "failed": 1, "dead": 0, "waiting": 2}
    assert receiver.told() == [("promoted", 1), ("promoted", 1), ("promoted", 2)]
    first, again, _ = receiver.came
    assert first[0]["webhook-id"] == again[0]["webhook-id"] and first[1] == again[1]
    assert int(again[0]["webhook-timestamp"]) - int(first[0]["webhook-timestamp"]) == DELAYS[0].seconds
    assert [found["answer"] for found in watch.status() if found[WAITING]] == ["ConnectError"]


def test_after_the_last_attempt_it_is_shown_as_dead_and_the_next_is_sent(
    watch: Watch, journal: Journal, receiver: Receiver, clock: Clock
) -> None:
    watch.subscribe(receiver.url)
    receiver.answers = [500] * (len(DELAYS) + 1) + [204]
    moved(journal, "promoted", 1)
    moved(journal, "promoted", 2)
    for delay in DELAYS:
        assert watch.deliver()["failed"] == 1
        clock.now += delay - timedelta(seconds=1)
        assert watch.deliver()["failed"] == 0
        clock.now += timedelta(seconds=1)
    assert watch.deliver() == {"delivered": 1, "failed": 0, "dead": 1, "waiting": 0}
    (shown,) = watch.status()
    assert (shown[DEAD], shown[DELIVERED], shown["host"]) == (1, 1, "127.0.0.1")
    assert [(d.number, d.attempts, d.answer) for d in watch.deliveries(status=DEAD)] == [(1, len(DELAYS) + 1, "500")]
    assert receiver.told()[-1] == ("promoted", 2)


@pytest.mark.parametrize(("answer", "status"), [(410, DEAD), (302, WAITING), (404, WAITING), (299, DELIVERED)])
def test_what_an_answer_means(watch: Watch, journal: Journal, receiver: Receiver, answer: int, status: str) -> None:
    watch.subscribe(receiver.url)
    receiver.answers = [answer]
    moved(journal, "promoted", 1)
    watch.deliver()
    assert [delivery.status for delivery in watch.deliveries()] == [status]
    assert len(receiver.came) == 1


def test_killed_between_sending_and_marking_it_is_sent_again_under_the_same_id(
    watch: Watch, journal: Journal, receiver: Receiver, clock: Clock, url: str
) -> None:
    watch.subscribe(receiver.url)
    moved(journal, "promoted", 1)
    script = """import os, signal, sys
from pipelines.registry.journal import Journal
from pipelines.registry.webhook import Watch
with Journal.open(sys.argv[1]) as journal:
    Watch.open(journal).deliver(say=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""
    assert subprocess.run([sys.executable, "-c", script, url], check=False).returncode == -9
    assert len(receiver.came) == 1 and len(watch.deliveries(status=WAITING)) == 1
    # the killed process has a real clock
    clock.now = datetime.now(UTC)
    assert watch.deliver()["delivered"] == 1
    assert len({*receiver.ids()}) == 1 and len(receiver.came) == 2


def test_an_altered_journal_sends_no_webhook(watch: Watch, journal: Journal, receiver: Receiver) -> None:
    watch.subscribe(receiver.url)
    moved(journal, "promoted", 1)
    altered(journal, "UPDATE journal SET to_version = 2")
    with pytest.raises(JournalBroken):
        watch.deliver()
    assert receiver.came == [] and watch.deliveries() == []


@pytest.mark.parametrize("address", ["https://a.example/", "http://127.0.0.1:9/", "http://[::1]/", "http://localhost/"])
def test_https_and_this_machine_can_be_subscribed(watch: Watch, address: str) -> None:
    assert watch.subscribe(address).url == address


def test_a_subscriber_from_before_gets_nothing_over_plain_http(
    watch: Watch, journal: Journal, receiver: Receiver
) -> None:
    watch.subscribe(receiver.url)
    # a name that is not known to be of this machine, though it is
    port = urlsplit(receiver.url).port
    with journal.engine.writing() as connection:
        connection.execute(sa.update(subscribers).values(url=f"http://{socket.gethostname()}:{port}/hook"))
    moved(journal, "promoted", 1)
    assert watch.deliver() == {"delivered": 0, "failed": 0, "dead": 1, "waiting": 0}
    assert [(d.status, d.answer) for d in watch.deliveries()] == [(DEAD, "insecure")]
    assert receiver.came == []


def test_a_removed_subscription_gets_no_webhook(watch: Watch, journal: Journal, receiver: Receiver) -> None:
    made = watch.subscribe(receiver.url)
    with refused("SubscribedAlready", match=made.id):
        watch.subscribe(receiver.url)
    receiver.answers = [500]
    moved(journal, "promoted", 1)
    watch.deliver()
    watch.unsubscribe(made.id)
    assert watch.deliver()["failed"] == 0 and watch.deliveries() == [] and watch.status() == []
    with refused("UnknownSubscriber"):
        watch.unsubscribe(made.id)
    assert watch.subscribe(receiver.url).secret != made.secret


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "ftp://a.example/", "https://", "https://ada:key@a.example/", "https://a.example:99999/"),
        *(f"http://{host}/" for host in ("a\n.b", "a.example", "10.0.0.1", "169.254.169.254", "127.0.0.1.a.example")),
        *(f"http://{host}/" for host in ("localhost.a.example", "[::2]", "0.0.0.0")),
    ],
)
def test_what_is_no_safe_address_is_refused(watch: Watch, wrong: str) -> None:
    with pytest.raises(BadParams):
        watch.subscribe(wrong)
    assert watch.subscribers() == []


def test_an_unknown_model_is_refused(watch: Watch, journal: Journal) -> None:
    moved(journal, "promoted", 1)
    with pytest.raises(UnknownModel, match=NAME):
        watch.subscribe("https://a.example/", name="other")
    assert watch.subscribers() == []


def test_secrets_and_addresses_are_in_no_repr(watch: Watch, journal: Journal, receiver: Receiver) -> None:
    made = watch.subscribe(receiver.url)
    moved(journal, "promoted", 1)
    watch.deliver()
    shown = f"{watch.subscribers()} {watch.deliveries()} {watch.status()}"
    assert made.secret not in shown and "/hook" not in shown


@pytest.mark.faults
def test_on_postgresql_a_consumer_reads_the_journal_and_no_secret(postgres: Path, receiver: Receiver) -> None:
    def execute(statement: str, *, database: str = "consumers") -> None:
        with closing(psycopg2.connect(host=str(postgres), user="postgres", dbname=database)) as connection:
            connection.autocommit = True
            connection.cursor().execute(statement)

    execute("CREATE DATABASE consumers", database="postgres")
    address = f"postgresql+psycopg2://{{}}@/consumers?host={postgres}"
    with Journal.open(address.format("postgres"), secret=SECRET) as journal:
        watch = Watch.open(journal)
        watch.subscribe(receiver.url)
        moved(journal, "promoted", 1)
        assert watch.deliver()["delivered"] == 1 and receiver.told() == [("promoted", 1)]
        execute("CREATE ROLE consumer LOGIN; GRANT SELECT ON journal, journal_head, journal_format TO consumer")
        assert token(NAME, journal_url=address.format("consumer")) == journal.last(NAME).digest
    with Journal.open(address.format("consumer"), secret=SECRET) as journal:
        with pytest.raises(JournalUnavailable):
            moved(journal, "promoted", 2)
        with pytest.raises(JournalUnavailable):
            Watch(journal, clock=Clock()).subscribers()


def test_a_notice_of_drift_is_sent_once_and_holds_back_no_change_of_champion(
    watch: Watch, journal: Journal, receiver: Receiver, clock: Clock
) -> None:
    receiver.answers[:] = [500, 204]
    for name in (NAME, OTHER):
        moved(journal, "registered", 3, name=name)
    watch.subscribe(receiver.url, name=NAME)
    watch.subscribe(f"{receiver.url}/other", name=OTHER)
    months = {"2023-01": ["words"]}
    assert watch.drift(NAME, version=3, months=months) == 1
    assert watch.drift(NAME, version=3, months=months) == 0
    moved(journal, "promoted", 3)
    assert watch.deliver() == {"delivered": 1, "failed": 1, "dead": 0, "waiting": 1}
    clock.now += DELAYS[0]
    assert watch.deliver() == {"delivered": 1, "failed": 0, "dead": 0, "waiting": 0}
    assert [json.loads(body)["type"] for _, body in receiver.came] == ["model.drift", "model.promoted", "model.drift"]
    assert watch.drift(NAME, version=3, months=months | {"2023-02": ["alerts"]}) == 1
    assert watch.drift(NAME, version=4, months=months) == 1


SIGNING, AT = new_secret(), 1_700_000_000
BODY = b'{"type": "model.promoted", "data": {"name": "crisis-posts"}}'


def headers(body: bytes = BODY, *, at: int = AT, secret: str = SIGNING) -> dict[str, str]:
    signed = signature(secret, id="one", at=at, body=body)
    return {"Webhook-Id": "one", "Webhook-Timestamp": str(at), "Webhook-Signature": f"v1,AAAA {signed}"}


def test_a_signed_request_is_read() -> None:
    found = verify(SIGNING, headers=headers(), body=BODY, now=AT + 299)
    assert (found.id, found.type, found.data) == ("one", "model.promoted", {"name": "crisis-posts"})


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (headers(), BODY + b" "),
        (headers(secret=new_secret()), BODY),
        (headers(at=AT - 301), BODY),
        (headers(at=AT + 301), BODY),
        ({**headers(), "Webhook-Timestamp": "soon"}, BODY),
        ({}, BODY),
        (headers(b"[]"), b"[]"),
    ],
)
def test_anything_else_is_refused(given: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadWebhook):
        verify(SIGNING, headers=given, body=body, now=AT)
