"""Only a request that was signed with the secret just now is a webhook."""

from __future__ import annotations

import pytest

from crisis_corpus import BadWebhook, verify
from crisis_corpus.webhook import signature
from pipelines.registry.webhook import new_secret

SECRET, NOW = new_secret(), 1_700_000_000
BODY = b'{"type": "model.promoted", "data": {"name": "crisis-posts"}}'


def headers(body: bytes = BODY, *, at: int = NOW, secret: str = SECRET) -> dict[str, str]:
    signed = signature(secret, id="one", at=at, body=body)
    return {"Webhook-Id": "one", "Webhook-Timestamp": str(at), "Webhook-Signature": f"v1,AAAA {signed}"}


def test_a_signed_request_is_read() -> None:
    found = verify(SECRET, headers=headers(), body=BODY, now=NOW + 299)
    assert (found.id, found.type, found.data) == ("one", "model.promoted", {"name": "crisis-posts"})


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (headers(), BODY + b" "),
        (headers(secret=new_secret()), BODY),
        (headers(at=NOW - 301), BODY),
        (headers(at=NOW + 301), BODY),
        ({**headers(), "Webhook-Timestamp": "soon"}, BODY),
        ({}, BODY),
        (headers(b"[]"), b"[]"),
    ],
)
def test_anything_else_is_refused(given: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadWebhook):
        verify(SECRET, headers=given, body=body, now=NOW)
