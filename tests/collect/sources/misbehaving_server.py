"""A small HTTP server on loopback that answers as the cases of ``misbehaviour.yaml`` say, byte for byte."""

from __future__ import annotations

import itertools
import json
import re
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("misbehaviour.yaml").read_text())
TARGETS = ("listing", "token", "info", "arctic_shift", "image")
VARIED = ("status", "body", "headers", "set", "timing", "raw")
PATHS = {"/api/v1/access_token": "token", "/api/info": "info", "/api/posts/search": "arctic_shift", "/new": "listing"}
PICTURE = b"\x89PNG" + b"picture" * 40
NOTES = {"kind": "Listing", "data": {"after": None, "children": []}}


def grown(number: int) -> dict[str, Any]:
    """Return a page of one post with a new cursor, however often it is requested."""
    post = dict(TABLE["bodies"]["page"]["data"]["children"][0]["data"], id=f"e{number}", name=f"t3_e{number}")
    return {"kind": "Listing", "data": {"after": f"t3_e{number}", "children": [{"kind": "t3", "data": post}]}}


def grown_archive(number: int) -> dict[str, Any]:
    post = dict(TABLE["bodies"]["arctic"]["data"][0], id=f"e{number}", created_utc=1669900000 + 2 * number)
    return {"data": [post]}


def same_second(_: int) -> dict[str, Any]:
    return {"data": [dict(TABLE["bodies"]["arctic"]["data"][0], id=f"s{n}") for n in range(40)]}


MADE: dict[str, Any] = {
    "deep": lambda _: b"[" * 200_000,
    "digits": lambda _: b'{"kind": "Listing", "data": ' + b"9" * 5000 + b"}",
    "large": lambda _: _json(TABLE["bodies"]["page"]) + b" " * 2**18,
    "picture": lambda _: PICTURE,
    "endless": grown,
    "endless_arctic": grown_archive,
    "same_second": same_second,
    "long_header": lambda _: b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**17,
    "many_headers": lambda _: b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n{}",
}


@dataclass
class Case:
    """One behaviour: the answers to one target, and what the source must make of them."""

    target: str
    name: str
    answers: list[dict[str, Any]]
    expect: dict[str, Any]
    requests: int
    counts: Counter[str] = field(default_factory=Counter)
    limits: list[int] = field(default_factory=list)

    @property
    def slow(self) -> bool:
        return any(set(answer.get("timing", ())) & {"stall", "trickle"} for answer in self.answers)


def cases(target: str) -> list[Case]:
    """Return the cases of a target, one for each combination of the listed values."""
    found = []
    for row in TABLE[target]:
        expect, most = row["expect"], row.get("requests", 4)
        if "answers" in row:
            found.append(Case(target, row["id"], row["answers"], expect, most))
            continue
        fixed = {key: row[key] for key in (*VARIED, "drop", "whole") if key in row}
        for number, answer in enumerate(_varied(fixed)):
            found.append(Case(target, f"{row['id']} {number}", [answer], expect, most))
    return found


def _varied(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    headers = answer.get("headers", {})
    for one in headers if isinstance(headers, list) else [headers]:
        lists = {name: value if isinstance(value, list) else [value] for name, value in one.items()}
        for values in itertools.product(*lists.values()):
            choices = [answer[k] if isinstance(answer.get(k), list) else [answer.get(k)] for k in VARIED]
            choices[VARIED.index("headers")] = [dict(zip(lists, values, strict=True))]
            for combined in itertools.product(*choices):
                made = dict(zip(VARIED, combined, strict=True)) | {key: answer.get(key) for key in ("drop", "whole")}
                yield {key: value for key, value in made.items() if value is not None}


def rendered(answer: dict[str, Any], *, number: int, after: int = 0) -> tuple[bytes, bytes]:
    """Return head and body of an answer to the request of this number."""
    if "raw" in answer:
        raw = MADE[answer["raw"]](number) if answer["raw"] in MADE else _bytes(answer["raw"])
        return raw, b""
    name = answer.get("body", "empty")
    body = MADE[name](number) if name in MADE else TABLE["bodies"].get(name, name)
    if "set" in answer or "drop" in answer:
        body = _changed(body, answer)
    if name == "arctic" and "whole" not in answer and isinstance(body.get("data"), list):
        body = body | {"data": [row for row in body["data"] if _created(row) > after]}
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else _json(body)
    kind = "image/png" if name == "picture" or name in ("empty", "large") else "application/json"
    headers = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"}
    headers |= answer.get("headers", {})
    lines = [f"HTTP/1.1 {answer.get('status', 200)} X", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode(), data


def _created(row: Any) -> float:
    """Return a row's time, or the start of the month, so that a row without one is in the first page only."""
    created = row.get("created_utc") if isinstance(row, dict) else None
    return created if isinstance(created, int) else 1669852800


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _bytes(text: str) -> bytes:
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())


def _changed(body: Any, answer: dict[str, Any]) -> Any:
    body = deepcopy(body)
    for path, value in answer.get("set", {}).items():
        place, (*way, last) = body, [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in way:
            place = place[key]
        if isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    if "drop" in answer:
        outer, name = answer["drop"].split(".")
        del body[outer][name]
    return body


class MisbehavingServer(socketserver.ThreadingTCPServer):
    """Answers each request of a case as its table row says; a case is named in the user agent or in the path."""

    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self) -> None:
        self.cases: list[Case] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> MisbehavingServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: most clients here end their connection early."""

    def add(self, case: Case) -> int:
        self.cases.append(case)
        return len(self.cases) - 1


class Handler(socketserver.StreamRequestHandler):
    server: MisbehavingServer

    def handle(self) -> None:
        head = b""
        while line := self.rfile.readline():
            if line in (b"\r\n", b"\n"):
                break
            head += line
        path = head.split(b" ", 2)[1].decode() if head.count(b" ") > 1 else ""
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        self.rfile.read(int(length[1]) if length else 0)
        named = re.search(rb"case-(\d+)-", head)
        if named is None:
            return
        case = self.server.cases[int(named[1])]
        target = next((name for end, name in PATHS.items() if path.partition("?")[0].endswith(end)), "image")
        number = case.counts[target]
        case.counts[target] += 1
        if asked := re.search(r"[?&]limit=(\d+)", path):
            case.limits.append(int(asked[1]))
        if case.counts[target] > 2 * case.requests + 60:
            return  # a loop without end ends here, and fails the test by its count
        if target != case.target:
            self.send(*rendered(good(target, path), number=number), timing={})
        else:
            answer = case.answers[min(number, len(case.answers) - 1)]
            [after] = re.findall(r"[?&]after=(\d+)", path) or [0]
            self.send(*rendered(answer, number=number, after=int(after)), timing=answer.get("timing", {}))

    def send(self, head: bytes, body: bytes, *, timing: dict[str, int]) -> None:
        data = head + body
        for how, after in timing.items():
            # 150 and more are meant for the body
            at = min(after if after < 150 else len(head) + after // 4, len(data) - 1)
            with suppress(OSError):
                self.wfile.write(data[:at])
                getattr(self, how)(data[at:])
            return
        with suppress(OSError):
            self.wfile.write(data)

    def cut(self, _: bytes) -> None:
        """End the connection in the middle of the answer."""

    def reset(self, _: bytes) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()

    def stall(self, _: bytes) -> None:
        self.request.settimeout(3)
        self.request.recv(1)

    def trickle(self, rest: bytes) -> None:
        for byte in rest[:100]:
            self.wfile.write(bytes([byte]))
            time.sleep(0.05)


def good(target: str, path: str) -> dict[str, Any]:
    """Return a good answer to a request that is not the case's target."""
    if target == "listing" and "/Control/" in path:
        post = dict(TABLE["bodies"]["page"]["data"]["children"][0]["data"], id="c1", name="t3_c1", subreddit="Control")
        return {"body": json.dumps({**NOTES, "data": {"after": None, "children": [{"kind": "t3", "data": post}]}})}
    return {"body": {"listing": "page", "token": "token", "arctic_shift": "arctic"}.get(target, "page")}
