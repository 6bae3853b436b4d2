"""Classify a provider's answer or error: an outcome for the record, a reason to wait, or the end of the run.

Refusals take many forms (SPEC 2.2): an answer with ``refusal``, a stop reason, a blocked prompt, no choices at all, a
400 that names a content policy. All of them are answers, so that they are neither requested again nor counted as votes.
Error texts may quote a post: none is passed on.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, TextPart

from pipelines.llm.addresses import Target
from pipelines.llm.outcome import TOO_LONG, UNREADABLE, Passing, Raw, Throttled
from pipelines.llm.transport import Exchange

# how providers and gateways word a content policy in an error; kept strict, because an unrelated 400 must end the run
POLICY = re.compile(
    r"content[_ -]?(?:policy|filter|management)|usage polic|safety system|moderation_blocked|flagged"
    r"|prohibited_content|invalid_prompt|responsibleai"
)
POLICY_STATUS = frozenset({400, 403, 422, 451})
WORD = re.compile(r"\A[a-z0-9_.-]{1,40}\Z")
LONGEST_MESSAGE = 500
COUNTS = (
    ("prompt_tokens", "input_tokens", "promptTokenCount"),
    ("completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount"),
)


def read(response: ModelResponse, *, asked: Target, effective: dict[str, Any]) -> Raw:
    """Return a provider's response that arrived in full as the raw answer that is stored."""
    details = response.provider_details or {}
    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    named = response.finish_reason or details.get("finish_reason") or ""
    return Raw(
        text="".join(texts) if texts else None,
        finish=str(named).lower(),
        refused=_refusal(response, details, asked=asked),
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        effective=effective,
        truncated=response.finish_reason == "length",
    )


def _refusal(response: ModelResponse, details: dict[str, Any], *, asked: Target) -> str | None:
    if response.finish_reason != "content_filter" and "refusal" not in details:
        # Google sends no candidate at all; others send an empty list of choices
        nothing = asked.api == "google" and not response.parts and response.finish_reason is None
        return "empty" if nothing and "finish_reason" not in details else None
    if asked.api == "anthropic" or "refusal" in details:
        return "model_refusal"
    return "blocked_prompt" if "block_reason" in details else "content_filter"


def understand(error: Exception, *, asked: Target, exchange: Exchange | None, effective: dict[str, Any]) -> Raw:
    """Return a provider's error as a raw answer if it is one: a refusal, a too long post, or an unknown response.

    Raises:
        Throttled: the provider asks the client to wait.
        Passing: a temporary failure: a timeout, no connection, a fault of the provider. Send the request again.
        LabellerRefused: the key, the model, the account or the request itself is rejected.

    ``exchange`` is the HTTP request with its response, ``None`` for a request in a batch.
    """
    if isinstance(error, TimeoutError | exceptions.ModelTimeoutError):
        raise Passing(reason="timeout") from None
    if isinstance(error, exceptions.ModelConnectionError):
        raise Passing(reason="connection") from None
    if isinstance(error, exceptions.ModelHTTPError):
        return _status(error, asked=asked, effective=effective)
    if exchange is None:
        # one item of a batch: an error without a status means that it was never run
        if isinstance(error, exceptions.ModelAPIError):
            raise Passing(reason="not_run") from None
        return _without_text(UNREADABLE, effective)
    if exchange.response is None:
        raise error
    body = exchange.body()
    if isinstance(body.get("error"), dict):
        raise Passing(reason="server") from None
    if exchange.response.status_code != 200:
        raise asked.refused(f"HTTP {exchange.response.status_code}") from None
    empty = "choices" in body and not body["choices"]
    return _without_text("empty" if empty else UNREADABLE, effective, refused="empty" if empty else None, body=body)


def _status(error: exceptions.ModelHTTPError, *, asked: Target, effective: dict[str, Any]) -> Raw:
    words, status = _words(error), error.status_code
    if isinstance(error, exceptions.ModelQuotaExceededError) or "insufficient_quota" in words:
        raise asked.refused("insufficient_quota") from None
    if status in POLICY_STATUS and POLICY.search(words):
        return _without_text("content_filter", effective, refused="content_filter")
    if isinstance(error, exceptions.ModelContextWindowExceededError) or status == 413:
        return _without_text(TOO_LONG, effective)
    if status == 429 or (status >= 500 and error.retry_after is not None):
        raise Throttled(retry_after=error.retry_after) from None
    if status >= 500 or status in (408, 409, 425):
        raise Passing(reason="overloaded" if isinstance(error, exceptions.ModelOverloadedError) else "server") from None
    code = next((c for c in _codes(error) if WORD.match(c)), "")
    raise asked.refused(f"HTTP {status} {code}".strip()) from None


def _codes(error: exceptions.ModelHTTPError) -> list[str]:
    return [c for c in (error.provider_error_code, error.provider_error_type) if isinstance(c, str)]


def _words(error: exceptions.ModelHTTPError) -> str:
    """Return the machine words and the start of the message of an error, in lower case."""
    found = _codes(error)
    body: object = error.body
    while isinstance(body, dict):
        found += [value[:LONGEST_MESSAGE] for value in body.values() if isinstance(value, str)]
        found += ["flagged"] if "flagged_input" in body else []
        body = body.get("error") or body.get("innererror") or body.get("metadata")
    return " ".join(found).lower()


def _without_text(
    finish: str, effective: dict[str, Any], *, refused: str | None = None, body: dict[str, Any] | None = None
) -> Raw:
    usage = (body or {}).get("usage") or (body or {}).get("usageMetadata")
    counts = usage if isinstance(usage, dict) else {}
    read_, written = (sum(n for name in names if isinstance(n := counts.get(name), int)) for names in COUNTS)
    return Raw(
        text=None, finish=finish, refused=refused, input_tokens=read_, output_tokens=written, effective=effective
    )
