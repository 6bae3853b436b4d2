"""Parse requests and write answers or errors in the three model vendors' wire formats, as labellers use them.

Each class rejects what the real vendor rejects (an unsupported sampling parameter, a schema keyword, a missing header),
so a client that works with the simulated vendors works with the real ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from crisis_corpus_sandbox.vendors.mind import Reply, VendorQuestion

Body = dict[str, Any]
# A fixed creation time, so that equal requests get equal bytes.
MADE = 1_767_225_600
MADE_TEXT = "2026-01-01T00:00:00Z"
UNTEXTUAL = ("image_url", "input_image", "image")


class Rejected(Exception):
    """A request that the simulated vendor rejects with status 400 (or ``status``) and a reason in its own format."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to a simulated vendor, with the vendor's address and the names in the path."""

    vendor: str
    address: str
    headers: Mapping[str, str]
    body: bytes
    kind: str = ""
    name: str = ""
    model: str = ""

    def json(self) -> Body:
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise Rejected("The body is not a JSON object.")
        return value


@dataclass(frozen=True, slots=True)
class Sent:
    """One HTTP response of a simulated vendor."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    refused: bool = False

    @property
    def final(self) -> bool:
        """Return whether the client will not repeat its request: true for an answer or refusal, false for an error."""
        return self.status < 300 or self.refused


def name_of(*parts: object) -> str:
    """Return an identifier derived from ``parts``, the same in every run."""
    return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()[:24]


def text_of(content: Any) -> str:
    """Return the text of a chat message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(str(p["text"]) for p in content or () if isinstance(p, dict) and isinstance(p.get("text"), str))


def images_of(content: Any) -> int:
    parts = content if isinstance(content, list) else ()
    return sum(p.get("type") in UNTEXTUAL for p in parts if isinstance(p, dict))


def last_asked(messages: Iterable[Mapping[str, Any]]) -> Any:
    """Return the content of the last user message of a request."""
    asked = [m.get("content", m.get("parts")) for m in messages if m.get("role", "user") == "user"]
    if not asked:
        raise Rejected("There is no user message.", param="messages")
    return asked[-1]


def strings(value: Any) -> tuple[str, ...]:
    """Return the stop strings of a request, given as one string or a list, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value or ())


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
        _, family, usual, text = self.KINDS[kind]
        return {"error": {"message": message or text, "type": family, "param": param, "code": code or usual}}


class Responses(OpenAI):
    """The wire format of OpenAI's Responses API."""

    def read(self, body: Body, *, model: str = "") -> VendorQuestion:
        """Parse a request to OpenAI's endpoint `responses`, as a chat completion of the same content."""
        entries, form = body.get("input") or [], (body.get("text") or {}).get("format") or {}
        messages = [{"role": "user", "content": entries}] if isinstance(entries, str) else entries
        instructions = {"role": "system", "content": str(body.get("instructions") or "")}
        chat = body | {
            "messages": [instructions, *(m for m in messages if "content" in m)],
            "response_format": {"type": form.get("type"), "json_schema": form},
            "max_completion_tokens": body.get("max_output_tokens"),
        }
        return super().read(chat, model=model)

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
    """Reject a schema that OpenAI's strict mode rejects."""
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


class Anthropic:
    """The wire format of Anthropic's Messages API."""

    # Models from 4.5 on (and Opus 4.1) accept either temperature or top_p; earlier ones have no output format.
    EITHER: ClassVar = re.compile(r"claude-(?:(?:sonnet|haiku|opus)-4-[5-9](?!\d)|opus-4-1(?!\d))")
    ENDED: ClassVar = {"stop": "end_turn", "stop_string": "stop_sequence", "length": "max_tokens"}
    KINDS: ClassVar = {
        "key": (401, "authentication_error", "invalid x-api-key"),
        "quota": (429, "insufficient_quota", "Your credit balance is too low to access the API (insufficient_quota)."),
        "throttled": (429, "rate_limit_error", "This request would exceed your organization's rate limit."),
        "overloaded": (529, "overloaded_error", "Overloaded"),
        "missing": (404, "not_found_error", "The requested resource does not exist."),
        "invalid": (400, "invalid_request_error", "The request is not valid."),
    }

    def read(self, body: Body, *, model: str = "") -> VendorQuestion:
        model = str(body.get("model") or model)
        if not isinstance(body.get("max_tokens"), int):
            raise Rejected("max_tokens: Field required")
        if body.get("stream"):
            raise Rejected("stream: streaming is not supported here")
        if self.EITHER.match(model) and None not in (body.get("temperature"), body.get("top_p")):
            raise Rejected("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
        form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        if form and not self.EITHER.match(model):
            raise Rejected(f"'{model}' does not support output format.")
        last = last_asked(body.get("messages") or [])
        return VendorQuestion(
            model=model,
            system=text_of(body.get("system")),
            text=text_of(last),
            images=images_of(last),
            schema=form.get("schema"),
            most_tokens=body["max_tokens"],
            stops=strings(body.get("stop_sequences")),
        )

    def write(self, asked: VendorQuestion, answer: Reply) -> tuple[int, Body]:
        """Return status and body of a message; a refusal is a message without content."""
        content: list[Body] = [{"type": "text", "text": answer.text}] if answer.text else []
        ended = "refusal" if answer.refused else self.ENDED[answer.ended]
        name = name_of(asked.model, asked.system, asked.text)
        return 200, {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": content,
            "stop_reason": ended,
            "stop_sequence": asked.stops[0] if ended == "stop_sequence" else None,
            "usage": {
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens + answer.hidden_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "service_tier": "standard",
            },
        }

    def fail(self, kind: str, *, message: str = "", param: str | None = None, code: str | None = None) -> Body:
        _, family, text = self.KINDS[kind]
        return {"type": "error", "error": {"type": family, "message": message or text}, "request_id": "req_sandbox"}


class Google:
    """The wire format of Google's generateContent."""

    ENDED: ClassVar = {"stop": "STOP", "stop_string": "STOP", "length": "MAX_TOKENS"}
    KINDS: ClassVar = {
        "key": (401, "UNAUTHENTICATED", "API key not valid. Please pass a valid API key."),
        "quota": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota (insufficient_quota)."),
        "throttled": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (requests per minute)."),
        "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        "missing": (404, "NOT_FOUND", "The requested resource does not exist."),
        "invalid": (400, "INVALID_ARGUMENT", "The request is not valid."),
    }

    def read(self, body: Body, *, model: str = "") -> VendorQuestion:
        config = _of(body, "generationConfig") or {}
        if _of(_of(config, "thinkingConfig") or {}, "thinkingBudget") == 0 and "2.5-pro" in model:
            raise Rejected("Budget 0 is invalid. This model only works in thinking mode.")
        parts = last_asked(body.get("contents") or []) or []
        return VendorQuestion(
            model=model,
            system=text_of((_of(body, "systemInstruction") or {}).get("parts")),
            text=text_of(parts),
            images=sum(_of(p, "inlineData") is not None for p in parts),
            schema=_of(config, "responseJsonSchema"),
            most_tokens=_of(config, "maxOutputTokens"),
            stops=strings(_of(config, "stopSequences")),
        )

    def write(self, asked: VendorQuestion, answer: Reply) -> tuple[int, Body]:
        """Return status and body of a generateContent response; a refusal has a block reason and no candidates."""
        usage = {"promptTokenCount": answer.input_tokens, "candidatesTokenCount": answer.output_tokens}
        usage |= {
            "thoughtsTokenCount": answer.hidden_tokens,
            "totalTokenCount": sum(usage.values()) + answer.hidden_tokens,
        }
        name = name_of(asked.model, asked.system, asked.text)
        body: Body = {"usageMetadata": usage, "modelVersion": asked.model, "responseId": name}
        if answer.refused:
            return 200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **body}
        parts: list[Body] = [{"text": answer.text}] if answer.text else []
        content = {"role": "model", "parts": parts} if parts else {"role": "model"}
        return 200, {"candidates": [{"content": content, "finishReason": self.ENDED[answer.ended], "index": 0}], **body}

    def fail(self, kind: str, *, message: str = "", param: str | None = None, code: str | None = None) -> Body:
        number, status, text = self.KINDS[kind]
        return {"error": {"code": number, "message": message or text, "status": status}}


def _of(value: Mapping[str, Any], name: str) -> Any:
    return value.get(name, value.get(re.sub(r"(?=[A-Z])", "_", name).lower()))
