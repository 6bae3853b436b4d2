"""A search engine for a real Argilla server, over loopback, as far as the server asks.

Elasticsearch is in no package registry. The server keeps everything in its own database and uses the engine to find
records again, so that a dictionary with the few queries it sends is enough.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

Json = Any


class Search:
    """Indexes of documents by id; ``words`` is everything that is kept, for a test that looks for a leak."""

    def __init__(self) -> None:
        self.indexes: dict[str, dict[str, Json]] = {}
        self.lock = threading.Lock()

    def words(self) -> str:
        return json.dumps(self.indexes, ensure_ascii=False)

    def bulk(self, lines: list[Json]) -> Json:
        items, rest = [], iter(lines)
        for action in rest:
            ((name, where),) = action.items()
            index = self.indexes.setdefault(where["_index"], {})
            if name == "delete":
                index.pop(where["_id"], None)
            else:
                index[where["_id"]] = next(rest)
            items.append({name: {"_index": where["_index"], "_id": where["_id"], "status": 200}})
        return {"took": 1, "errors": False, "items": items}

    def update(self, index: str, id: str, body: Json) -> Json:
        document = self.indexes[index].setdefault(id, {})
        document.update(body.get("doc", {}))
        if script := body.get("script"):
            response = script["params"]["response"]
            others = [r for r in document.get("responses") or [] if r["id"] != response["id"]]
            document["responses"] = others + ([response] if "responses.add" in script["source"] else [])
        return {"_index": index, "_id": id, "result": "updated"}

    def search(self, index: str, body: Json) -> Json:
        found = [(i, d) for i, d in self.indexes.get(index, {}).items() if matches(d, body.get("query") or {})]
        start = body.get("from", 0)
        page = found[start : start + body.get("size", 10)]
        return {
            "took": 1,
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {
                "total": {"value": len(found), "relation": "eq"},
                "hits": [{"_index": index, "_id": id, "_score": 1.0} for id, _ in page],
            },
            "aggregations": {
                name: aggregate([d for _, d in found], spec) for name, spec in (body.get("aggregations") or {}).items()
            },
        }


def values(document: Json, field: str) -> list[Json]:
    here = [document]
    for name in field.split("."):
        nexts = [v.get(name) for v in here if isinstance(v, dict)]
        here = [v for n in nexts for v in (n if isinstance(n, list) else [n]) if v is not None]
    return here


def _all(document: Json, queries: Json) -> bool:
    return all(matches(document, query) for query in (queries if isinstance(queries, list) else [queries]))


def _bool(document: Json, parts: Mapping[str, Json]) -> bool:
    unwanted = parts.get("must_not", [])
    unwanted = unwanted if isinstance(unwanted, list) else [unwanted]
    return (
        _all(document, parts.get("must", []))
        and _all(document, parts.get("filter", []))
        and not any(matches(document, query) for query in unwanted)
        and (not parts.get("should") or any(matches(document, query) for query in parts["should"]))
    )


def _nested(document: Json, spec: Json) -> bool:
    return any(matches({spec["path"]: [inner]}, spec["query"]) for inner in document.get(spec["path"]) or [])


def _terms(document: Json, spec: Json) -> bool:
    ((field, wanted),) = spec.items()
    return bool({str(v) for v in values(document, field)} & {str(w) for w in wanted})


def _term(document: Json, spec: Json) -> bool:
    ((field, wanted),) = spec.items()
    return _terms(document, {field: [wanted["value"] if isinstance(wanted, dict) else wanted]})


def matches(document: Json, query: Json) -> bool:
    known = {
        "match_all": lambda spec: True,
        "bool": lambda spec: _bool(document, spec),
        "function_score": lambda spec: matches(document, spec["query"]),
        "nested": lambda spec: _nested(document, spec),
        "terms": lambda spec: _terms(document, spec),
        "term": lambda spec: _term(document, spec),
        "exists": lambda spec: bool(values(document, spec["field"])),
    }
    return all(known[name](spec) for name, spec in query.items())


def aggregate(documents: list[Json], spec: Json) -> Json:
    ((kind, options),) = spec.items()
    found = [v for document in documents for v in values(document, options["field"])]
    if kind == "value_count":
        return {"value": len(found)}
    return {"buckets": [{"key": key, "doc_count": found.count(key)} for key in sorted(set(found))]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    search: ClassVar[Search]

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        with self.search.lock:
            status, body = self.route(parts, raw)
        content = b"" if self.command == "HEAD" else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/vnd.elasticsearch+json;compatible-with=8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def route(self, parts: list[str], raw: bytes) -> tuple[int, Json]:
        search = self.search
        if parts == [""]:
            return 200, {"version": {"number": "8.17.0", "build_flavor": "default"}, "tagline": "You Know, for Search"}
        if parts[-1] == "_bulk":
            return 200, search.bulk([json.loads(line) for line in raw.split(b"\n") if line])
        body = json.loads(raw) if raw else {}
        if "_update" in parts:
            return 200, search.update(parts[0], parts[2], body)
        if parts[-1] == "_search":
            return 200, search.search(parts[0], body)
        return self.index(parts[0])

    def index(self, name: str) -> tuple[int, Json]:
        indexes = self.search.indexes
        if self.command == "HEAD":
            return (200 if name in indexes else 404), None
        if self.command == "DELETE":
            indexes.pop(name, None)
        else:
            indexes.setdefault(name, {})
        return 200, {"acknowledged": True, "shards_acknowledged": True, "index": name}


@contextlib.contextmanager
def search() -> Iterator[tuple[Search, str]]:
    """Run it on a free port; yield it with its address."""
    engine = Search()
    handler = type("Bound", (Handler,), {"search": engine})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield engine, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
