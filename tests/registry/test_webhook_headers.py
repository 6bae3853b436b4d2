"""What a stranger may send to a consumer's webhook address: it is refused, and nothing else happens."""

from __future__ import annotations

import base64

import pytest

from crisis_corpus.webhook import BadWebhook, signature, verify

SECRET, NOW, BODY = "whsec_" + base64.b64encode(b"k" * 24).decode(), 1_700_000_000, b'{"type": "t", "data": {}}'
HEADERS = {"webhook-id": "one", "webhook-timestamp": str(NOW), "webhook-signature": "v1,x"}


def test_the_sender_is_believed() -> None:
    signed = HEADERS | {"Webhook-Signature": f"v1,old {signature(SECRET, id='one', at=NOW, body=BODY)}"}
    assert verify(SECRET, headers=signed, body=BODY, now=NOW).id == "one"


@pytest.mark.parametrize("value", ["\udcff", "é", "9" * 5000, "9" * 400, "", "-1", "1e9", "\x00"])
@pytest.mark.parametrize("name", HEADERS)
def test_odd_headers_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadWebhook):
        verify(SECRET, headers=HEADERS | {name: value}, body=BODY, now=NOW)


def test_a_nested_body_is_refused() -> None:
    body = b"[" * 100_000
    signed = HEADERS | {"webhook-signature": signature(SECRET, id="one", at=NOW, body=body)}
    with pytest.raises(BadWebhook, match="its body"):
        verify(SECRET, headers=signed, body=body, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "whsec_ =", "\udcff"])
def test_a_secret_without_a_key_verifies_nothing(secret: str) -> None:
    with pytest.raises(ValueError, match="corpus subscribe"):
        verify(secret, headers=HEADERS, body=BODY, now=NOW)
