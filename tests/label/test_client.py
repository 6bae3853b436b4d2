"""Real HTTP in three protocols over loopback: what answers, refusals, odd shapes and errors turn into."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipelines.core.errors import LabellerRefused
from pipelines.llm.outcome import Passing, Raw, Throttled
from pipelines.llm.vendor import Client
from tests.json_server import Request, completion, json_server
from tests.label import small_settings
from tests.refusals import refused

Api = Literal["openai", "anthropic", "google"]
Reply = tuple[int, dict[str, str], Any]
SCHEMA = {
    "type": "object",
    "properties": {"labels": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}},
    "required": ["labels"],
    "additionalProperties": False,
}
ANSWER = '{"labels": ["a"]}'
MODELS: dict[Api, str] = {"openai": "gpt-4o", "anthropic": "claude-sonnet-4-5", "google": "gemini-2.5-pro"}
APIS: tuple[Api, ...] = ("openai", "anthropic", "google")
SECRET_WORDS = "an evening by the lake"


@dataclass
class Vendor:
    """Gives preset answers and keeps the requests."""

    address: str = ""
    reply: Callable[[Any], Reply] = lambda body: (500, {}, {})
    asked: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> tuple[int, Any, dict[str, str]]:
        self.asked.append(request)
        status, headers, body = self.reply(request.body)
        return status, body, headers

    def url(self, api: Api) -> str:
        return self.address + {"openai": "/v1", "anthropic": "", "google": "/google"}[api]


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    made = Vendor()
    with json_server(made.answer) as made.address:
        yield made


@pytest.fixture(autouse=True)
def _forget(vendor: Vendor) -> None:
    vendor.asked.clear()


def client(url: str | None, *, api: Api, model: str = "", timeout: float = 60, key: str = "secret-key") -> Client:
    given = {"api": api, "key": key, "timeout_seconds": timeout, "votes_": {"max_output_tokens": 1024}}
    return small_settings.client(url, model=model or MODELS[api], **given)


def send(url: str, api: Api, *, parts: Any = None, **options: Any) -> Raw:
    async def one() -> Raw:
        async with client(url, api=api, **options) as asked:
            return await asked.send("Judge.", parts or [SECRET_WORDS], schema=SCHEMA, key="key-1")

    return asyncio.run(one())


def ask(vendor: Vendor, api: Api, reply: Reply, **options: Any) -> Raw:
    vendor.reply = lambda body: reply
    return send(vendor.url(api), api, **options)


def chat(text: str | None = ANSWER, *, finish: str = "stop", **message: Any) -> Reply:
    return 200, {}, completion({"content": text, **message}, model="m", tokens=(11, 7), finish=finish)


def claude(text: str | None = ANSWER, *, stop: str = "end_turn") -> Reply:
    content = [] if text is None else [{"type": "text", "text": text}]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return 200, {}, head | {"content": content, "stop_reason": stop, "usage": {"input_tokens": 11, "output_tokens": 7}}


def gemini(text: str | None = ANSWER, *, finish: str = "STOP") -> Reply:
    candidate: dict[str, Any] = {"finishReason": finish, "index": 0}
    if text is not None:
        candidate["content"] = {"role": "model", "parts": [{"text": text}]}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "totalTokenCount": 18}
    return 200, {}, {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


GOOD: dict[Api, Callable[..., Reply]] = {"openai": chat, "anthropic": claude, "google": gemini}


@pytest.mark.parametrize("api", APIS)
def test_an_answer_with_its_tokens_and_what_was_sent(vendor: Vendor, api: Api) -> None:
    raw = ask(vendor, api, GOOD[api]())
    assert (raw.text, raw.finish, raw.refused, raw.truncated) == (ANSWER, "stop", None, False)
    # Google's hidden thoughts are paid for as output
    assert (raw.input_tokens, raw.output_tokens) == (11, 7)
    assert Raw.from_json(raw.to_json()) == raw
    assert len(vendor.asked) == 1
    headers, body = vendor.asked[0].headers, vendor.asked[0].body
    assert headers["idempotency-key"] == "key-1"
    assert "secret-key" in (
        headers.get("authorization", "") + headers.get("x-api-key", "") + headers.get("x-goog-api-key", "")
    )
    assert SECRET_WORDS in json.dumps(body)
    assert SECRET_WORDS not in json.dumps(raw.effective)
    assert "enum" in json.dumps(body)
    assert "enum" not in json.dumps(raw.effective)
    assert "tools" not in body


BLOCKED = {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}
REFUSALS: list[tuple[Api, Reply, str]] = [
    ("openai", chat(None, refusal="I would rather not."), "model_refusal"),
    ("openai", chat(None, finish="content_filter"), "content_filter"),
    ("openai", chat(ANSWER, finish="content_filter"), "content_filter"),
    ("openai", (200, {}, chat()[2] | {"choices": []}), "empty"),
    ("openai", (200, {}, chat()[2] | {"choices": None}), "empty"),
    ("openai", (400, {}, {"error": {"message": "no", "code": "content_policy_violation"}}), "content_filter"),
    ("openai", (400, {}, {"error": {"message": "flagged as against our usage policy", "code": "invalid_prompt"}}), ""),
    ("openai", (400, {}, {"error": {"code": "x", "message": "Azure's content management policy"}}), "content_filter"),
    ("openai", (403, {}, {"error": {"code": 403, "message": "no", "metadata": {"flagged_input": "x"}}}), ""),
    ("anthropic", claude("I", stop="refusal"), "model_refusal"),
    ("anthropic", claude(None, stop="refusal"), "model_refusal"),
    ("anthropic", (400, {}, {"type": "error", "error": BLOCKED}), "content_filter"),
    ("google", (200, {}, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}), "blocked_prompt"),
    ("google", gemini(None, finish="PROHIBITED_CONTENT"), "content_filter"),
    ("google", gemini(None, finish="SAFETY"), "content_filter"),
    ("google", (200, {}, {"candidates": [], "usageMetadata": {"promptTokenCount": 11}}), "empty"),
]


@pytest.mark.parametrize(("api", "reply", "reason"), REFUSALS)
def test_refusals_are_answers(vendor: Vendor, api: Api, reply: Reply, reason: str) -> None:
    raw = ask(vendor, api, reply)
    assert raw.refused == (reason or "content_filter")
    assert len(vendor.asked) == 1
    assert raw.effective
    if reply[0] == 200 and "promptFeedback" not in reply[2]:
        assert raw.input_tokens == 11


THOUGHT = "The post is short. I cannot help with this request."


@pytest.mark.parametrize(
    "reply",
    [
        chat(f"<think>{THOUGHT}</think>" + '{"labels": []}'),
        chat('{"labels": []}', reasoning_content=THOUGHT),
        chat('{"labels": []}', reasoning=THOUGHT),
    ],
)
def test_reasoning_that_declines_is_kept_with_its_answer_and_other_reasoning_is_not(
    vendor: Vendor, reply: Reply
) -> None:
    assert ask(vendor, "openai", reply).text == f"<think>{THOUGHT}</think>\n" + '{"labels": []}'
    assert ask(vendor, "openai", chat(ANSWER, reasoning_content="A lake, so a.")).text == ANSWER


@pytest.mark.parametrize("api", APIS)
def test_no_text_is_no_answer_and_output_that_ran_into_its_cap_is_marked(vendor: Vendor, api: Api) -> None:
    for text in (None, ""):
        raw = ask(vendor, api, GOOD[api](text))
        assert (raw.text or None, raw.refused) == (None, None)
    cut = {"openai": {"finish": "length"}, "anthropic": {"stop": "max_tokens"}, "google": {"finish": "MAX_TOKENS"}}
    raw = ask(vendor, api, GOOD[api]('{"labels"', **cut[api]))
    assert (raw.truncated, raw.text) == (True, '{"labels"')


NO_JSON: list[Any] = [b"", b"<html>busy</html>", b"{", b"\xff\xfe"]
NO_CHAT: list[Any] = [[], {}, "yes", {"choices": [{}]}, {"choices": [{"message": None}]}, {"choices": "no"}]
NO_OTHER: list[Any] = [{"content": 7, "usage": "x"}, {"content": [{"type": "hologram"}]}, {"candidates": 4}]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("body", [*NO_JSON, *NO_CHAT, *NO_OTHER, {"candidates": [{"content": "x"}]}])
def test_unknown_shapes_are_answers_without_labels(vendor: Vendor, api: Api, body: Any) -> None:
    raw = ask(vendor, api, (200, {}, body))
    assert raw.text is None
    assert len(vendor.asked) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "candidates", "parts", "text", "usage", "type", "error"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=VALUES, api=st.sampled_from(APIS), status=st.sampled_from([200, 200, 400, 429, 500]))
@example(body={"type": 1, "code": [2]}, api="openai", status=400)
def test_whatever_comes_is_an_answer_or_a_known_error(vendor: Vendor, body: Any, api: Api, status: int) -> None:
    with suppress(Throttled, Passing, LabellerRefused):
        assert isinstance(ask(vendor, api, (status, {}, body)), Raw)


@pytest.mark.parametrize("api", APIS)
def test_throttled_says_how_long(vendor: Vendor, api: Api) -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit_error", "status": "RESOURCE_EXHAUSTED"}}
    for headers, seconds in (({"Retry-After": "2"}, 2.0), ({}, None)):
        with pytest.raises(Throttled) as caught:
            ask(vendor, api, (429, headers, error))
        assert caught.value.fields["retry_after"] == seconds
    with pytest.raises(Throttled) as caught:
        ask(vendor, api, (503, {"Retry-After": "3"}, error))
    assert caught.value.fields["retry_after"] == 3
    assert len(vendor.asked) == 3


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("status", "reason"), [(500, "server"), (502, "server"), (529, "overloaded"), (408, "server")])
def test_the_providers_own_faults_pass(vendor: Vendor, api: Api, status: int, reason: str) -> None:
    with pytest.raises(Passing) as caught:
        ask(vendor, api, (status, {}, {"error": {"message": SECRET_WORDS}}))
    assert caught.value.fields["reason"] == reason
    assert len(vendor.asked) == 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [400, 401, 403, 404])
@pytest.mark.parametrize("code", [SECRET_WORDS, "Jane-Doe"])
def test_rejections_end_the_run_without_a_word_of_the_post(vendor: Vendor, api: Api, status: int, code: str) -> None:
    with pytest.raises(LabellerRefused) as caught:
        ask(vendor, api, (status, {}, {"error": {"message": f"no: {SECRET_WORDS}", "code": code}}))
    assert str(status) in str(caught.value)
    assert "CORPUS_MY_VENDOR_KEY" in str(caught.value)
    assert SECRET_WORDS not in str(caught.value) and code not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(vendor.asked) == 1


QUOTA: list[tuple[Api, int, Any]] = [
    ("openai", 429, {"error": {"message": "no", "type": "insufficient_quota", "code": "insufficient_quota"}}),
    ("anthropic", 400, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}),
    ("anthropic", 429, {"type": "error", "error": {"type": "insufficient_quota", "message": "no"}}),
    ("google", 429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "insufficient_quota"}}),
]


@pytest.mark.parametrize(("api", "status", "body"), QUOTA)
def test_an_empty_account_is_never_asked_again(vendor: Vendor, api: Api, status: int, body: Any) -> None:
    with pytest.raises(LabellerRefused, match="insufficient_quota"):
        ask(vendor, api, (status, {"Retry-After": "1"}, body))
    assert len(vendor.asked) == 1


def test_a_post_that_is_too_long_is_its_own_outcome(vendor: Vendor) -> None:
    long = {"error": {"code": "context_length_exceeded", "message": "maximum context length"}}
    raw = ask(vendor, "openai", (400, {}, long))
    assert (raw.text, raw.finish, raw.refused) == (None, "too_long", None)


@pytest.mark.parametrize("api", APIS)
def test_redirects_are_not_followed(vendor: Vendor, api: Api) -> None:
    with pytest.raises((LabellerRefused, Passing)):
        ask(vendor, api, (307, {"Location": f"{vendor.url(api)}/elsewhere"}, {}))
    assert len(vendor.asked) == 1


@pytest.mark.parametrize("api", APIS)
def test_a_trickling_answer_times_out_as_a_whole(api: Api) -> None:
    with trickle() as url, pytest.raises(Passing) as caught:
        began = time.monotonic()
        send(url, api, timeout=0.5)
    assert caught.value.fields["reason"] == "timeout"
    assert time.monotonic() - began < 5


@contextmanager
def trickle() -> Iterator[str]:
    """One byte each tenth of a second: no single read ever times out."""
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not stop.wait(0.1):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()
        thread.join()


@pytest.mark.parametrize("api", APIS)
def test_no_server(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Passing) as caught:
        send(url, api)
    assert caught.value.fields["reason"] == "connection"


def test_without_a_key_nothing_goes_to_the_providers_own_address() -> None:
    async def enter() -> None:
        async with client(None, api="openai", key=""):
            pass

    with pytest.raises(LabellerRefused, match="no key"):
        asyncio.run(enter())


@pytest.mark.parametrize("api", APIS)
def test_images_travel_in_their_place(vendor: Vendor, api: Api) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + b"0" * 40
    raw = ask(vendor, api, GOOD[api](), parts=["before ", picture, " after"])
    assert raw.text == ANSWER
    sent = json.dumps(vendor.asked[0].body)
    assert sent.index("before") < sent.index("iVBORw0K") < sent.index("after")
    assert "image/png" in sent
    assert "iVBORw0K" not in json.dumps(raw.effective)


def test_what_cannot_be_shown_is_not_sent(vendor: Vendor) -> None:
    with refused("CannotSee", match="no images"):
        ask(vendor, "openai", chat(), model="qwen3-14b", parts=[b"\x89PNG0"])
    with refused("CannotSee", match="neither"):
        ask(vendor, "openai", chat(), parts=[b"BM0000"])
    assert vendor.asked == []


def test_batches_need_a_provider_that_has_them(vendor: Vendor) -> None:
    async def hand_in() -> str:
        async with client(vendor.url("openai"), api="openai", model="qwen3-14b") as asked:
            return await asked.submit([("a", "s", ["x"])], schema=SCHEMA)

    with refused("NoBatches"):
        asyncio.run(hand_in())
    assert vendor.asked == []
