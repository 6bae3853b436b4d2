"""Simulate fallible vendors of language models and of moderation: keys, rate limits, transport errors, counts.

``/openai/v1`` serves chat completions, Responses, moderations, files and batches; ``/anthropic`` messages and their
batches; ``/google`` generateContent, files and batches; ``/azure`` Azure AI Content Safety; ``/guard/v1`` a guard
model; ``/local/v1`` open models as vLLM serves them, with ``/local/health``. Every key is valid except ``wrong`` (401)
and ``empty`` (429, insufficient_quota). A request with an already answered ``Idempotency-Key`` gets the same bytes
again.

``vendors.jsonl`` in the sandbox's folder has one line per question, batched ones included: vendor, model, SHA-256 of
the key (for a batched question: of its custom id), status, whether the answer was sent completely, the batch. The file
holds no content.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson

from crisis_corpus_sandbox.reddit import seeded
from crisis_corpus_sandbox.vendors.endpoints import SERVICES, Batches, BatchLine, Result, Service
from crisis_corpus_sandbox.vendors.mind import TEMPERS, Temper, reply
from crisis_corpus_sandbox.vendors.moderations import AzureContentSafety, judged
from crisis_corpus_sandbox.vendors.protocols import Anthropic, Body, Call, Google, OpenAI, Rejected, Responses, Sent

LOG = "vendors.jsonl"
WRONG, EMPTY = "wrong", "empty"
Wires = OpenAI | Anthropic | Google
# Vendor -> the paths of its questions; all other paths are served by SERVICES and are not counted.
QUESTIONS = {
    "openai": re.compile(r"/v1/(?P<kind>chat/completions|responses|moderations)"),
    "azure": re.compile(r"/contentsafety/(?P<kind>(?:text|image):analyze)"),
    "guard": re.compile(r"/v1/(?P<kind>chat/completions)"),
    "local": re.compile(r"/v1/(?P<kind>chat/completions)"),
    "anthropic": re.compile(r"/v1/(?P<kind>messages)"),
    "google": re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?P<kind>generateContent)"),
}
WIRES: Mapping[str, Wires] = {
    "chat/completions": OpenAI(),
    "responses": Responses(),
    "messages": Anthropic(),
    "generateContent": Google(),
}
USUAL: Mapping[str, Wires | AzureContentSafety] = {
    **dict.fromkeys(("openai", "guard", "local"), OpenAI()),
    "anthropic": Anthropic(),
    "google": Google(),
    "azure": AzureContentSafety(),
}
SETTLING_SECONDS = 2.0


class Vendors:
    """The simulated model vendors of one sandbox folder; each answer is delayed by ``latency`` seconds."""

    def __init__(self, root: Path, *, seed: int = 0, tempers: Mapping[str, Temper] | None = None) -> None:
        self.tempers: dict[str, Temper] = {**TEMPERS, **(tempers or {})}
        self.latency = 0.0
        self._seed = seed
        self._path = root / LOG
        self._booked = threading.Condition()
        self._open = 0
        self._entries: list[tuple[dict[str, Any], Sent]] = []
        self._now: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._tried: set[tuple[str, str]] = set()
        self._answered: dict[tuple[str, str], Sent] = {}
        self._batches = {vendor: Batches(partial(self._judge, vendor)) for vendor in QUESTIONS}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return counts of each vendor's requests and complete answers; ``keys`` are distinct idempotency keys.

        An answer is final if a retry would not change it: a refusal is final, 429 and 5xx are not.
        """
        self.settle()
        with self._booked:
            return {vendor: self._counted(vendor) for vendor in QUESTIONS}

    def _counted(self, vendor: str) -> dict[str, int]:
        rows = [(entry, sent) for entry, sent in self._entries if entry["vendor"] == vendor]
        throttled = sum(sent.status == HTTPStatus.TOO_MANY_REQUESTS and not sent.final for _, sent in rows)
        return {
            "received": len(rows),
            "answered": sum(entry["answered"] and sent.final for entry, sent in rows),
            "throttled": throttled,
            "errors": sum(not sent.final for _, sent in rows) - throttled,
            "refused": sum(sent.refused for _, sent in rows),
            "most_at_once": self._most[vendor],
            "keys": len({entry["key"] for entry, _ in rows} - {None}),
        }

    def settle(self) -> None:
        """Wait until all sent answers are counted, because clients may receive an answer before it is counted."""
        with self._booked:
            self._booked.wait_for(lambda: not self._open, timeout=SETTLING_SECONDS)

    def serve(self, request: BaseHTTPRequestHandler, *, vendor: str, path: str, query: str, body: bytes) -> None:
        """Answer an HTTP request for ``path`` below a vendor's address; count it if it is a question to a model."""
        address = f"http://{request.headers.get('Host')}/{vendor}"
        call = partial(Call, vendor, address, {name.lower(): value for name, value in request.headers.items()}, body)
        if request.command == "POST" and (match := QUESTIONS[vendor].fullmatch(path)):
            self._question(request, call=call(**match.groupdict()), query=query)
            return
        for method, pattern, service in SERVICES[vendor]:
            if request.command == method and (match := pattern.fullmatch(path)):
                attended = call(**{name: value or "" for name, value in match.groupdict().items()})
                sent = self._stopped(attended, query=query) or self._attended(attended, service=service)
                _send(request, sent)
                return
        _send(request, self._failed(vendor, "missing"))

    def _attended(self, call: Call, *, service: Service) -> Sent:
        try:
            sent = service(self._batches[call.vendor], call)
        except (Rejected, KeyError, TypeError, AttributeError, ValueError) as error:
            return self._unfit(call.vendor, error)
        return sent or self._failed(call.vendor, "missing")

    def _question(self, request: BaseHTTPRequestHandler, *, call: Call, query: str) -> None:
        """Answer a question and log it, whether or not the answer is sent completely."""
        key = _digest(call.headers.get("idempotency-key"))
        with self._booked:
            self._open += 1
            self._now[call.vendor] += 1
            self._most |= self._now
        whole, model, sent = False, call.model, Sent(500, b"{}")
        try:
            sent, model = self._answer(call, key=key, query=query)
            with self._booked:  # before sending, so that a client at its limit is never counted above it
                self._now[call.vendor] -= 1
            whole = _send(request, sent)
        finally:
            self._enter(call.vendor, model=model, key=key, sent=sent, whole=whole, batch=None)
            with self._booked:
                self._open -= 1
                self._booked.notify_all()

    def _answer(self, call: Call, *, key: str | None, query: str) -> tuple[Sent, str]:
        if self.latency:
            time.sleep(self.latency)
        if stopped := self._stopped(call, query=query):
            return stopped, call.model
        model = call.model
        try:
            body = call.json()
            model = str(model or body.get("model") or "")[:80]
            if key and (known := self._answered.get((call.vendor, key))):
                return known, model
            if accident := self._accident(call, key=key, temper=self.tempers[call.vendor]):
                return accident, model
            sent = self._said(call.vendor, call.kind, body=body, model=call.model)
        except Rejected as error:
            return self._unfit(call.vendor, error), model
        return (self._answered.setdefault((call.vendor, key), sent) if key else sent), model

    def _accident(self, call: Call, *, key: str | None, temper: Temper) -> Sent | None:
        """Return the transport error of a question's first try, if it gets one; delay some other questions."""
        content = hashlib.sha256(call.body).hexdigest()
        tried = (call.vendor, key or content)
        with self._booked:
            first = tried not in self._tried
            self._tried.add(tried)
        if not first:
            return None
        chance = seeded(self._seed, call.vendor, "wire", content).random()
        if chance < temper.throttled:
            return self._throttled(call.vendor, seconds=temper.retry_after)
        if chance < temper.throttled + temper.failing:
            return self._failed(call.vendor, "overloaded")
        if chance < temper.throttled + temper.failing + temper.slow:
            time.sleep(temper.slow_seconds)
        return None

    def _said(self, vendor: str, kind: str, *, body: Body, model: str) -> Sent:
        wire, temper = WIRES.get(kind, WIRES["chat/completions"]), self.tempers[vendor]
        try:
            if verdict := judged(vendor, kind, body=body, temper=temper, seed=self._seed):
                return Sent(verdict[0], orjson.dumps(verdict[1]))
            asked = wire.read(body, model=model)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise Rejected(f"The request does not have the documented form ({type(error).__name__}).") from None
        if asked.model.startswith("no-such"):
            raise Rejected(f"The model {asked.model[:80]} does not exist.", status=404)
        answer = reply(asked, vendor=vendor, temper=temper, seed=self._seed)
        status, value = wire.write(asked, answer)
        return Sent(status, orjson.dumps(value), refused=answer.refused is not None)

    def _judge(self, vendor: str, line: BatchLine, batch: str) -> Result:
        """Answer one request of a batch and log it."""
        try:
            sent = self._said(vendor, line.kind, body=line.body, model=line.model)
        except Rejected as error:
            sent = self._unfit(vendor, error)
        model = str(line.model or line.body.get("model") or "")[:80]
        self._enter(vendor, model=model, key=_digest(line.custom_id), sent=sent, whole=True, batch=batch)
        return Result(line.custom_id, sent.status, orjson.loads(sent.body))

    def _enter(self, vendor: str, *, model: str, key: str | None, sent: Sent, whole: bool, batch: str | None) -> None:
        entry = {"vendor": vendor, "model": model, "key": key, "status": sent.status, "answered": whole, "batch": batch}
        with self._booked:
            self._entries.append((entry, sent))
            with self._path.open("ab") as file:
                file.write(orjson.dumps(entry) + b"\n")

    def _stopped(self, call: Call, *, query: str) -> Sent | None:
        """Return the error for a request with a bad key or without the header that its vendor requires."""
        names = ("x-api-key", "x-goog-api-key", "ocp-apim-subscription-key")
        key = next((call.headers[name] for name in names if name in call.headers), None)
        key = key or call.headers.get("authorization", "").partition(" ")[2]
        if not key and (match := re.search(r"(?:^|&)key=([^&]+)", query)):
            key = match[1]
        if not key and call.headers.get("x-goog-upload-command", "start") != "start":
            return None  # the address of an upload is its credential
        if not key or key == WRONG:
            return self._failed(call.vendor, "key")
        if key == EMPTY:
            return self._failed(call.vendor, "quota")
        if call.vendor == "anthropic" and "anthropic-version" not in call.headers:
            return self._failed(call.vendor, "invalid", message="anthropic-version: header is required")
        if call.vendor == "azure" and "api-version=" not in query:
            return self._failed(call.vendor, "missing", message="The api-version query parameter is required.")
        return None

    def _unfit(self, vendor: str, error: Exception) -> Sent:
        if not isinstance(error, Rejected):
            return self._failed(vendor, "invalid", message="The request does not have the documented form.")
        if error.status == HTTPStatus.NOT_FOUND:
            return self._failed(vendor, "missing", message=error.message)
        return self._failed(vendor, "invalid", message=error.message, param=error.param, code=error.code)

    def _throttled(self, vendor: str, *, seconds: float) -> Sent:
        """Return 429 with the time to wait: in the body for Google, in headers for the others."""
        body = USUAL[vendor].fail("throttled")
        headers = {"Retry-After": str(math.ceil(seconds)), "retry-after-ms": f"{seconds * 1000:g}"}
        if vendor == "google":
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            body["error"]["details"] = [{"@type": kind, "retryDelay": f"{seconds:g}s"}]
            headers = {}
        return Sent(HTTPStatus.TOO_MANY_REQUESTS, orjson.dumps(body), headers=headers)

    def _failed(self, vendor: str, kind: str, **details: Any) -> Sent:
        usual = USUAL[vendor]
        return Sent(usual.KINDS[kind][0], orjson.dumps(usual.fail(kind, **details)))


def _digest(key: str | None) -> str | None:
    return hashlib.sha256(key.encode()).hexdigest() if key else None


def _send(request: BaseHTTPRequestHandler, sent: Sent) -> bool:
    try:
        phrase = HTTPStatus(sent.status).phrase
    except ValueError:  # 529
        phrase = "Overloaded"
    fields = {"Content-Type": sent.content_type, "Content-Length": str(len(sent.body)), **sent.headers}
    if request.close_connection:
        fields["Connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    try:
        request.wfile.write(f"HTTP/1.1 {int(sent.status)} {phrase}\r\n{head}\r\n".encode("latin-1") + sent.body)
        request.wfile.flush()
    except OSError:
        request.close_connection = True
        return False
    return True
