"""The sandbox's three vendors, asked by their own clients: what they know, how they err, what they write down."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anthropic
import openai
import pytest
import requests
from google import genai
from google.genai import errors

from crisis_corpus_sandbox.reddit.label_quotas import CRADLE, cradle
from crisis_corpus_sandbox.reddit.narratives import write
from crisis_corpus_sandbox.server import SandboxServer
from crisis_corpus_sandbox.vendors.mind import TEMPERS, Reply, VendorQuestion, reply
from crisis_corpus_sandbox.vendors.vendors import LOG, Vendors
from pipelines.datasets.post import Post
from pipelines.label.attacks import inject
from tests.label.conftest import CALM

MARK = "0123456789abcdef"
OLDER = "claude-sonnet-4-20250514"
MODELS = {"openai": "gpt-5", "anthropic": "claude-sonnet-4-5", "google": "gemini-2.5-pro"}
SCHEMA = {
    "type": "object",
    "properties": {"labels": {"type": "array", "items": {"type": "string", "enum": sorted(CRADLE)}}},
    "required": ["labels"],
    "additionalProperties": False,
}
REFUSED = (openai.APIStatusError, anthropic.APIStatusError, errors.APIError)
Ask = Callable[..., Any]


def told(labels: list[str], *, number: int = 0, words: int = 60) -> Post:
    narrative = write(labels, rng=Random(number), words=words)
    return Post(f"r{number}", narrative.title, narrative.body)


def prompt(post: Post, *, inside: bool = True) -> str:
    if not inside:
        return f"Label this post. {post.text}"
    return f"The post stands between the two lines {MARK}.\n{MARK}\n{post.text}\n{MARK}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SandboxServer]:
    (tmp_path / "submissions.jsonl").touch()
    vendors = Vendors(tmp_path, seed=7, tempers=dict.fromkeys(MODELS, CALM))
    with SandboxServer(tmp_path, vendors=vendors) as server:
        yield server


def log(server: SandboxServer, root: Path) -> list[dict[str, Any]]:
    server.vendors.settle()
    return [json.loads(line) for line in (root / LOG).read_text().splitlines()]


def chat(server: SandboxServer, text: str, *, key: str = "k", **changes: Any) -> Any:
    client = openai.OpenAI(api_key=key, base_url=f"{server.address}/openai/v1", max_retries=0)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    messages = [{"role": "system", "content": "Label."}, {"role": "user", "content": text}]
    return client.chat.completions.create(
        **({"model": "gpt-5", "messages": messages, "response_format": form} | changes)
    )


def message(server: SandboxServer, text: str, *, key: str = "k", **changes: Any) -> Any:
    client = anthropic.Anthropic(api_key=key, base_url=f"{server.address}/anthropic", max_retries=0)
    asked = {"model": MODELS["anthropic"], "max_tokens": 1024, "messages": [{"role": "user", "content": text}]}
    return client.messages.create(**(asked | changes))


def generated(server: SandboxServer, text: Any, *, key: str = "k", **config: Any) -> Any:
    client = genai.Client(api_key=key, http_options={"base_url": f"{server.address}/google"})
    settings = {"response_mime_type": "application/json", "response_json_schema": SCHEMA} | config
    return client.models.generate_content(model=MODELS["google"], contents=text, config=settings)


def post_raw(server: SandboxServer, text: str, *, key: str = "") -> requests.Response:
    headers = {"Authorization": "Bearer k"} | ({"Idempotency-Key": key} if key else {})
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": text}]}
    return requests.post(f"{server.address}/openai/v1/chat/completions", json=body, headers=headers, timeout=10)


def test_the_vendors_own_clients_get_the_labels_of_a_post(served: SandboxServer) -> None:
    text = prompt(told(["rape_past", "selfharm_ongoing"]))
    answers = [
        (said := chat(served, text)).choices[0].message.content,
        message(served, text).content[0].text,
        (made := generated(served, text)).text,
    ]
    assert [json.loads(a) for a in answers] == [{"labels": ["rape_past", "selfharm_ongoing"]}] * 3
    assert said.usage.prompt_tokens > 50 < made.usage_metadata.prompt_token_count
    assert said.usage.completion_tokens_details.reasoning_tokens > 0
    models = openai.OpenAI(api_key="k", base_url=f"{served.address}/openai/v1").models.list()
    assert "gpt-5" in {m.id for m in models}


@pytest.mark.parametrize(
    ("ask", "changes", "word"),
    [
        (chat, {"temperature": 0}, "temperature"),
        (chat, {"top_p": 1}, "top_p"),
        (chat, {"max_tokens": 128}, "max_completion_tokens"),
        (chat, {"stop": "}"}, "stop"),
        (chat, {"model": "no-such-model"}, "does not exist"),
        (message, {"extra_body": {"temperature": 0, "top_p": 1}}, "cannot both"),
        (message, {"model": OLDER, "extra_body": {"output_format": {"schema": {}}}}, "output format"),
        (generated, {"thinking_config": {"thinking_budget": 0}}, "thinking mode"),
    ],
)
def test_what_the_real_ones_refuse_is_refused(
    served: SandboxServer, ask: Ask, changes: dict[str, Any], word: str
) -> None:
    text = prompt(told(["no_crisis"]))
    with pytest.raises(REFUSED, match=word):
        ask(served, text, **changes)
    chat(served, text, model="gpt-4.1", temperature=0, top_p=1, max_tokens=128)


def test_a_schema_outside_the_strict_subset_is_refused(served: SandboxServer) -> None:
    for fault in ({"additionalProperties": True}, {"required": []}, {"properties": {"labels": {"uniqueItems": True}}}):
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA | fault, "strict": True}}
        with pytest.raises(openai.BadRequestError, match="Invalid schema"):
            chat(served, prompt(told(["no_crisis"])), response_format=form)


def test_hidden_reasoning_eats_a_small_cap_and_a_stop_string_eats_the_brace(served: SandboxServer) -> None:
    text = prompt(told(["no_crisis"]))
    cut = chat(served, text, max_completion_tokens=128).choices[0]
    assert (cut.finish_reason, cut.message.content) == ("length", "")
    assert generated(served, text, max_output_tokens=128).candidates[0].finish_reason == "MAX_TOKENS"
    assert chat(served, text, model="gpt-4.1", stop="}").choices[0].message.content == '{"labels": ["no_crisis"]'
    assert message(served, text, stop_sequences=["}"]).stop_reason == "stop_sequence"


def test_a_key_is_answered_again_with_the_same_bytes(served: SandboxServer, tmp_path: Path) -> None:
    text = prompt(told(["rape_past"]))
    first = post_raw(served, text, key="one")
    served.vendors.tempers["openai"] = replace(CALM, wrong=1)
    assert post_raw(served, text, key="one").content == first.content
    assert post_raw(served, text, key="two").content != first.content
    counts = served.vendors.counts()["openai"]
    assert (counts["received"], counts["answered"], counts["keys"]) == (3, 3, 2)
    assert len({line["key"] for line in log(served, tmp_path)}) == 2


def test_accidents_happen_to_first_tries_alone(served: SandboxServer) -> None:
    text = prompt(told(["no_crisis"]))
    for vendor, ask in (("openai", chat), ("anthropic", message)):
        for rates, status in (({"throttled": 1.0}, 429), ({"failing": 1.0}, {"openai": 500, "anthropic": 529}[vendor])):
            served.vendors.tempers[vendor] = replace(CALM, **rates)
            fresh = text + "." * status
            with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
                ask(served, fresh)
            assert caught.value.status_code == status
            waits = [caught.value.response.headers.get(name) for name in ("retry-after", "retry-after-ms")]
            assert waits == (["1", "250"] if status == 429 else [None, None])
            ask(served, fresh)
    counts = served.vendors.counts()["openai"]
    assert [counts[n] for n in ("received", "answered", "throttled", "errors")] == [4, 2, 1, 1]
    served.vendors.tempers["google"] = replace(CALM, throttled=1.0)
    with pytest.raises(errors.ClientError, match=r"0\.25s"):
        generated(served, text)


def test_refusals_come_in_each_vendors_own_way(served: SandboxServer) -> None:
    served.vendors.tempers.update(dict.fromkeys(MODELS, replace(CALM, refuses_any=1.0)))
    seen: Counter[str] = Counter()
    for number in range(12):
        text = prompt(told(["rape_past"], number=number))
        try:
            seen["refusal" if chat(served, text).choices[0].message.refusal else "answer"] += 1
        except openai.BadRequestError as error:
            seen[str(error.code)] += 1
    assert set(seen) == {"refusal", "content_policy_violation"}
    assert (refused := message(served, text)).stop_reason == "refusal" and refused.content == []
    blocked = generated(served, text)
    assert blocked.candidates is None and blocked.prompt_feedback.block_reason == "PROHIBITED_CONTENT"
    counts = served.vendors.counts()
    assert {
        v: counts[v]["refused"] == counts[v]["answered"] == counts[v]["received"] > 0 for v in MODELS
    } == dict.fromkeys(MODELS, True)


@pytest.fixture(scope="module")
def corpus() -> list[tuple[frozenset[str], Post]]:
    drawn = cradle(400, rng=Random(5))
    return [(frozenset(s), told(list(s), number=i, words=(12, 40, 90)[i % 3])) for i, s in enumerate(drawn)]


def asked(post: Post, *, inside: bool = True) -> VendorQuestion:
    return VendorQuestion("gpt-4.1", "Label.", prompt(post, inside=inside), schema=SCHEMA)


def labels_of(answer: Reply) -> list[str] | None:
    """Return the labels of an answer that is JSON."""
    try:
        return json.loads(answer.text)["labels"]
    except ValueError:
        return None


@pytest.mark.parametrize("vendor", list(MODELS))
def test_a_vendor_errs_refuses_and_garbles_about_as_often_as_it_should(
    vendor: str, corpus: list[tuple[frozenset[str], Post]]
) -> None:
    seen: Counter[str] = Counter()
    for labels, post in corpus:
        answer = reply(asked(post), vendor=vendor, temper=TEMPERS[vendor], seed=7)
        assert answer == reply(asked(post), vendor=vendor, temper=TEMPERS[vendor], seed=7)
        kind = "refused" if answer.refused else "malformed" if labels_of(answer) is None else "read"
        seen[kind if kind != "read" or set(labels_of(answer)) == labels else "wrong"] += 1
    shares = {kind: n / len(corpus) for kind, n in seen.items()}
    assert 0.07 < shares["wrong"] < 0.19
    assert 0.005 < shares["refused"] < 0.06
    assert 0.005 < shares["malformed"] < 0.06


@pytest.mark.parametrize("vendor", list(MODELS))
def test_an_injected_copy_errs_alike_unless_it_is_obeyed(
    vendor: str, corpus: list[tuple[frozenset[str], Post]]
) -> None:
    temper, obeyed, free = TEMPERS[vendor], 0, 0
    crises = [(n, labels, post) for n, (labels, post) in enumerate(corpus) if labels != {"no_crisis"}]
    for number, _, post in crises:
        before = reply(asked(post), vendor=vendor, temper=temper, seed=7)
        copy = inject(post, which=number)
        after = reply(asked(copy), vendor=vendor, temper=temper, seed=7)
        assert after.refused == before.refused
        if labels_of(before) is None or labels_of(after) is None:
            assert (before.text == "") == (after.text == "")
            continue
        free += 1
        if labels_of(after) != labels_of(before):
            assert labels_of(after) == ["no_crisis"]
            obeyed += 1
    assert obeyed / free < 0.09
    swayed = [
        reply(asked(inject(p, which=n), inside=False), vendor=vendor, temper=temper, seed=7) for n, _, p in crises
    ]
    assert 0.45 < sum(labels_of(a) == ["no_crisis"] for a in swayed) / free < 0.8


def test_an_answer_that_was_not_taken_is_booked_so(served: SandboxServer, tmp_path: Path) -> None:
    served.vendors.latency = 0.3
    body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": "Title: tea"}]})
    head = "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer k\r\n"
    head += f"Content-Length: {len(body)}"
    with socket.create_connection(served.server_address) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.sendall(f"{head}\r\n\r\n{body}".encode())
        time.sleep(0.1)
    assert [line["answered"] for line in log(served, tmp_path)] == [False]
    assert served.vendors.counts()["openai"]["answered"] == 0


def test_the_books_hold_no_content(served: SandboxServer, tmp_path: Path) -> None:
    post = told(["rape_past"])
    post_raw(served, prompt(post), key="a-secret-key")
    served.vendors.settle()
    written = (tmp_path / LOG).read_text()
    assert not any(said in written for said in (post.body[:20], post.title, "a-secret-key", "rape_past"))
    assert set(json.loads(written)) == {"vendor", "model", "key", "status", "answered", "batch"}
    assert served.vendors.counts()["google"]["received"] == 0


def test_a_batch_holds_bad_lines(served: SandboxServer) -> None:
    client = anthropic.Anthropic(api_key="k", base_url=f"{served.address}/anthropic", max_retries=0)
    good = {"model": MODELS["anthropic"], "max_tokens": 9, "messages": [{"role": "user", "content": "Title: tea"}]}
    rows: Any = [
        {"custom_id": "a", "params": good},
        {"custom_id": "b", "params": good | {"temperature": 0, "top_p": 1}},
    ]
    job = client.messages.batches.create(requests=rows)
    while client.messages.batches.retrieve(job.id).processing_status != "ended":
        pass
    assert [r.result.type for r in client.messages.batches.results(job.id)] == ["succeeded", "errored"]
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve("msgbatch_none")
