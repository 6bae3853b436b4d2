"""Parse requests and write responses in OpenAI's wire formats: chat completions, and Responses (for batches).

The simulated endpoints reject what the real API rejects: sampling parameters for reasoning models, schemas outside the
strict subset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from crisis_corpus_sandbox.vendors.mind import Reply, VendorQuestion
from crisis_corpus_sandbox.vendors.protocols import (
    MADE,
    Body,
    Rejected,
    images_of,
    last_asked,
    name_of,
    strings,
    text_of,
)


class OpenAI:
    """The wire format of OpenAI's chat completions."""

    REASONS: ClassVar = re.compile(r"gpt-5(?!.*chat)|o[134]\b")
    ENDED: ClassVar = {"stop": "stop", "stop_string": "stop", "length": "length"}
    KINDS: ClassVar = {
        "key": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
        "quota": (429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota."),
        "throttled": (429, "requests", "rate_limit_exceeded", "Rate limit reached."),
        "overloaded": (500, "server_error", None, "The server had an error while processing your request."),
        "missing": (404, "invalid_request_error", "model_not_found", "The requested resource does not exist."),
        "invalid": (400, "invalid_request_error", None, "The request is not valid."),
    }

    def read(self, body: Body, *, model: str = "") -> VendorQuestion:
        """Parse a chat completion request as a question to the model."""
        model = str(body.get("model") or model)
        self._sampling(body, model=model)
        if self.REASONS.match(model) and body.get("max_tokens") is not None:
            message = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            raise Rejected(message, param="max_tokens", code="unsupported_parameter")
        messages = body.get("messages") or []
        last = last_asked(messages)
        form = body.get("response_format") or {}
        form = form["json_schema"] if form.get("type") == "json_schema" else {}
        if form.get("strict"):
            _strict(form["schema"])
        return VendorQuestion(
            model=model,
            system="\n".join(text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer")),
            text=text_of(last),
            images=images_of(last),
            schema=form.get("schema"),
            most_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
            stops=strings(body.get("stop")),
        )

    def _sampling(self, body: Body, *, model: str) -> None:
        if body.get("stream"):
            raise Rejected("Streaming is not supported here.", param="stream", code="unsupported_value")
        if not self.REASONS.match(model):
            return
        if body.get("temperature") not in (None, 1, 1.0):
            message = "'temperature' does not support this value with this model. Only the default (1) is supported."
            raise Rejected(f"Unsupported value: {message}", param="temperature", code="unsupported_value")
        for name in ("top_p", "stop", "logprobs", "presence_penalty", "frequency_penalty"):
            if body.get(name) is not None:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                raise Rejected(message, param=name, code="unsupported_parameter")

    def write(self, asked: VendorQuestion, answer: Reply) -> tuple[int, Body]:
        """Return status and body of a chat completion; a content policy refusal is an error with status 400."""
        if answer.refused == "policy":
            return 400, self._policy()
        message: Body = {"role": "assistant", "content": answer.text, "refusal": None, "annotations": []}
        ended = self.ENDED.get(answer.ended, "stop")
        if answer.refused:
            message |= {"content": None, "refusal": "I'm sorry, but I can't help with that."}
        return 200, {
            "id": f"chatcmpl-{name_of(asked.model, asked.system, asked.text)}",
            "object": "chat.completion",
            "created": MADE,
            "model": asked.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": ended}],
            "usage": {
                "prompt_tokens": answer.input_tokens,
                "completion_tokens": answer.output_tokens + answer.hidden_tokens,
                "total_tokens": answer.input_tokens + answer.output_tokens + answer.hidden_tokens,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": answer.hidden_tokens},
            },
            "service_tier": "default",
        }

    def _policy(self) -> Body:
        message = "Your request was rejected as a result of our safety system: content policy."
        return self.fail("invalid", message=message, code="content_policy_violation")

    def fail(self, kind: str, *, message: str = "", param: str | None = None, code: str | None = None) -> Body:
        """Return the body of an error of this ``kind`` in OpenAI's format."""
        _, family, usual, text = self.KINDS[kind]
        return {"error": {"message": message or text, "type": family, "param": param, "code": code or usual}}


class Responses(OpenAI):
    """The wire format of OpenAI's Responses API."""

    def read(self, body: Body, *, model: str = "") -> VendorQuestion:
        """Parse a request to OpenAI's endpoint `responses` as a question to the model."""
        model = str(body.get("model") or model)
        self._sampling(body, model=model)
        entries = body.get("input") or []
        messages = [{"role": "user", "content": entries}] if isinstance(entries, str) else entries
        last = last_asked(m for m in messages if "content" in m)
        form = (body.get("text") or {}).get("format") or {}
        if form.get("type") == "json_schema" and form.get("strict"):
            _strict(form["schema"])
        inner = [text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer")]
        return VendorQuestion(
            model=model,
            system="\n".join([str(body.get("instructions") or ""), *inner]),
            text=text_of(last),
            images=images_of(last),
            schema=form.get("schema"),
            most_tokens=body.get("max_output_tokens"),
        )

    def write(self, asked: VendorQuestion, answer: Reply) -> tuple[int, Body]:
        """Return status and body of a response; a content policy refusal is an error with status 400."""
        if answer.refused == "policy":
            return 400, self._policy()
        name = name_of(asked.model, asked.system, asked.text)
        part: Body = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.refused:
            part = {"type": "refusal", "refusal": "I'm sorry, but I can't help with that."}
        output: Body = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed"}
        output["content"] = [part]
        cut = answer.ended == "length"
        return 200, {
            "id": f"resp_{name}",
            "object": "response",
            "created_at": MADE,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "model": asked.model,
            "output": [output] if answer.text or answer.refused else [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": answer.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": answer.output_tokens + answer.hidden_tokens,
                "output_tokens_details": {"reasoning_tokens": answer.hidden_tokens},
                "total_tokens": answer.input_tokens + answer.output_tokens + answer.hidden_tokens,
            },
        }


def _strict(schema: Mapping[str, Any]) -> None:
    for place in _places(schema):
        if "uniqueItems" in place:
            raise _unfit("'uniqueItems' is not permitted.")
        if place.get("type") == "object":
            if place.get("additionalProperties") is not False:
                raise _unfit("'additionalProperties' must be false.")
            if set(place.get("required", ())) != set(place.get("properties", {})):
                raise _unfit("'required' must name every key.")


def _unfit(message: str) -> Rejected:
    return Rejected(f"Invalid schema: {message}", param="response_format", code="invalid_json_schema")


def _places(schema: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _places(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _places(value)
