"""What is sent to who wants to be told, and how it is signed: Standard Webhooks 1.0 (https://www.standardwebhooks.com).

Receivers find libraries for it. Nothing that is answered but the status is read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Self
from urllib.parse import urlsplit

import httpx

from pipelines.errors import BadParams
from pipelines.registry.journal import Row, canonical

# How long after each failed attempt the next one is (Standard Webhooks, its example schedule: 75 hours in all); after
# the last the delivery is dead.
DELAYS = tuple(timedelta(seconds=s) for s in (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400))
# A receiver says by it that it wants no more (there, "delivery success and failure").
GONE = 410
# The least of what is advised there.
TIMEOUT_SECONDS = 15
# Within the 24 to 64 that are asked for there.
SECRET_BYTES = 32
PREFIX = "whsec_"
URL_CHARACTERS = 500


def new_secret() -> str:
    """Return a secret for signatures: ``whsec_`` and base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, *, id: str, at: int, body: bytes) -> str:
    """Return the header ``webhook-signature``: HMAC-SHA256 of ``id.at.body``.

    Args:
        secret: as :func:`new_secret` gives it.
        id: of the delivery.
        at: of the attempt, in seconds since 1970.
        body: as it is sent.
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    found = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(found).decode()}"


def body(row: Row) -> str:
    """Return what is told of a row: name, event, versions, who, when, and the token of who polls; no reason."""
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


def check(url: str) -> None:
    """Refuse what is no address of a receiver.

    Raises:
        BadParams: it is not http or https, or has a user name or password.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        good = False
    if not good or len(url) > URL_CHARACTERS or not url.isprintable():
        raise BadParams(where="url", detail="is no http(s) address without a user name")


class Sender:
    """Sends; follows no redirect, for what was signed was for one address."""

    def __init__(self) -> None:
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False)

    def __enter__(self) -> Self:
        """Give the sender itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self._client.close()

    def post(self, url: str, *, secret: str, id: str, body: str, now: datetime) -> str:
        """Send a delivery once; return the status of the answer, or the name of what kept it from one."""
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
