"""Verify signed webhooks about changes of a model's champion (the version in use).

The format is Standard Webhooks 1.0 (https://www.standardwebhooks.com). A webhook proves nothing about the champion:
after a valid one, call :func:`crisis_corpus.load`, which trusts only the journal. Deliveries are repeated after
failures: drop a :attr:`Webhook.id` that was handled before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crisis_corpus.errors import RegistryError

PREFIX = "whsec_"
# An older or newer timestamp may be of a recorded request that is sent again (Standard Webhooks recommends a bound; its
# libraries use five minutes).
TOLERANCE_SECONDS = 300
TIMESTAMP_DIGITS = 12


class BadWebhook(RegistryError):
    """The webhook request was not signed with this secret, or was not signed recently."""

    message = "The webhook is refused: {detail}."
    remedy = "Answer with status 401 and ignore the request."
    exit_code = 77


@dataclass(frozen=True)
class Webhook:
    """A webhook whose signature was verified.

    Args:
        type: ``model.promoted``, ``model.rolled_back`` or ``model.withdrawn``.
        data: ``name``, ``event``, ``from``, ``to``, ``who``, ``at`` and ``token``.
    """

    id: str
    type: str
    data: Mapping[str, Any] = field(repr=False)


def signature(secret: str, *, id: str, at: int, body: bytes) -> str:
    """Return the header ``webhook-signature`` of a webhook: the HMAC-SHA256 of ``id.at.body``, in base64.

    Args:
        secret: ``whsec_`` and base64, as ``corpus subscribe`` prints it.
        at: the time of the delivery attempt, in seconds since 1970.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError("the secret is not 'whsec_' and base64: take the one that `corpus subscribe` printed")
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


def verify(secret: str, *, headers: Mapping[str, str], body: bytes, now: float | None = None) -> Webhook:
    """Verify signature and time of a webhook request, and return the webhook that it contains."""
    by_name = {name.lower(): value for name, value in headers.items()}
    try:
        id, at, signatures = (by_name[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise BadWebhook(detail=f"the header {error.args[0]} is missing") from None
    # a number of thousands of digits is refused by int and by float
    if not (at.isascii() and at.isdecimal() and len(at) <= TIMESTAMP_DIGITS):
        raise BadWebhook(detail="its timestamp is not a number of seconds since 1970")
    # servers hand over bytes that are not UTF-8 as lone surrogates
    if not (id.isascii() and signatures.isascii()):
        raise BadWebhook(detail="its id or signature is not ASCII")
    wanted = signature(secret, id=id, at=int(at), body=body)
    # a sender that changes its secret signs with both
    if not any(hmac.compare_digest(wanted, candidate) for candidate in signatures.split()):
        raise BadWebhook(detail="its signature does not match")
    if abs((time.time() if now is None else now) - int(at)) > TOLERANCE_SECONDS:
        raise BadWebhook(detail=f"its timestamp is more than {TOLERANCE_SECONDS} seconds off")
    return _read(body, id=id)


def _read(body: bytes, *, id: str) -> Webhook:
    try:
        payload = json.loads(body)
        return Webhook(id, str(payload["type"]), dict(payload["data"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadWebhook(detail="its body is not a webhook of this project") from None
