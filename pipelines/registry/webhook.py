"""Build, sign and send webhook requests about champions and drift.

The format is Standard Webhooks 1.0 (https://www.standardwebhooks.com), for which libraries exist. Of a receiver's
answer only the HTTP status is read, never the body.
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self
from urllib.parse import urlsplit

import httpx

from crisis_corpus.journal import JournalRow, canonical
from crisis_corpus.webhook import PREFIX, signature
from pipelines.errors import BadArgument

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


def body(row: JournalRow) -> str:
    """Return the webhook's body for a journal row: the row without the reason (``why``)."""
    data = {
        "name": row.name,
        "event": row.event,
        "from": row.from_version,
        "to": row.to_version,
        "who": row.who,
        "at": row.at,
        "token": row.digest,
    }
    return canonical({"type": f"model.{row.event}", "timestamp": row.at, "data": data})


def drift_body(name: str, *, version: int, months: Mapping[str, Sequence[str]], at: str) -> str:
    """Return the webhook's body for a drifting champion: by month, the names of the quantities that have drifted."""
    data = {"name": name, "event": "drift", "version": version, "months": dict(months), "at": at}
    return canonical({"type": "model.drift", "timestamp": at, "data": data})


def check(url: str) -> None:
    """Check the address of a webhook receiver, and reject an address that is unsafe or malformed."""
    if not _safe(url):
        raise BadArgument(
            where="url", detail="must be an https address (http on this machine only) without a user name or password"
        )


def _safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "https" or (parts.scheme == "http" and _is_local(parts.hostname or ""))
        good = good and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return good and len(url) <= URL_CHARACTERS and url.isprintable()


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class WebhookSender:
    """An HTTP client that sends webhooks and follows no redirects, because a request is signed for one address."""

    def __init__(self) -> None:
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False)

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._client.close()

    def post(self, url: str, *, secret: str, id: str, body: str, now: datetime) -> str:
        """Send one signed webhook request; return the HTTP status, or the error's name if there was no response.

        Nothing is sent to an unsafe address that an earlier version accepted; :data:`INSECURE` is returned.
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
            with self._client.stream("POST", url, content=content, headers=headers) as answer:
                return str(answer.status_code)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return type(error).__name__
