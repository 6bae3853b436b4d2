"""A server on loopback that keeps repositories as the Hub does, for the requests of ``huggingface_hub`` that push uses.

A repository keeps the files of every commit until a squash, and large files in a store apart. Requests are recorded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.json_server import QuietHandler, serving

TOKEN = "hf_a-token-of-tests"
LARGE = (".parquet", ".safetensors")
MISSING = (404, {"error": "Repository not found"})


@dataclass
class Repository:
    private: bool
    gated: Any = False
    # what was true when the first file arrived
    first: tuple[bool, Any] | None = None
    # the files of each commit that is still in the history, newest last
    history: list[Mapping[str, bytes]] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)

    def add(self, files: Mapping[str, bytes], *, squash: bool = False) -> str:
        self.history = [*([] if squash else self.history), dict(files)]
        sha = self.refs["refs/heads/main"] = secrets.token_hex(20)
        return sha

    @property
    def files(self) -> Mapping[str, bytes]:
        return self.history[-1]

    def everything(self) -> list[bytes]:
        """Return all bytes that a person with access can still get, of every version."""
        return [data for files in (*self.history, self.large) for data in files.values()]


class HubServer:
    """The server; ``repos`` by kind and name, ``requests`` as (method, path), ``fail`` answers 500 to a path's end."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repository] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self.fail = ""
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[HubServer]:
        with serving(self._handler()) as self.url:
            yield self

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return status and JSON of a request."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[0] == "store":
            kind, repo, oid = parts[1], "/".join(parts[2:4]), parts[4]
            if hashlib.sha256(body).hexdigest() != oid:
                return 400, {"error": "another digest"}
            self.repos[kind, repo].large[oid] = body
            return 200, {}
        if parts[-1] == "batch" and "info" in parts:
            return 200, self._lfs_batch(parts, json.loads(body))
        if parts == ["api", "validate-yaml"]:
            return 200, {"errors": [], "warnings": []}
        if parts in (["api", "repos", "create"], ["api", "repos", "delete"]):
            told = json.loads(body)
            key = (told.get("type") or "model", f"{told['organization']}/{told['name']}")
            if parts[-1] == "delete":
                return (200, {}) if self.repos.pop(key, None) else MISSING
            return self._create(key, private=told.get("visibility") == "private")
        key = (parts[1].removesuffix("s"), "/".join(parts[2:4]))
        if key not in self.repos:
            return MISSING
        return self._about(method, self.repos[key], repo=key[1], asked="".join(parts[4:5]), body=body)

    def _create(self, key: tuple[str, str], *, private: bool) -> tuple[int, Any]:
        url = f"{self.url}/{'datasets/' if key[0] == 'dataset' else ''}{key[1]}"
        if key in self.repos:
            return 409, {"url": url, "error": "exists"}
        self.repos[key] = Repository(private=private)
        self.repos[key].add({".gitattributes": b"*.parquet filter=lfs\n"})
        return 200, {"url": url}

    def _about(self, method: str, found: Repository, *, repo: str, asked: str, body: bytes) -> tuple[int, Any]:
        match (method, asked):
            case "GET", "":
                told = {"id": repo, "sha": found.refs["refs/heads/main"], "private": found.private, "likes": 0}
                siblings = [{"rfilename": name} for name in found.files]
                return 200, told | {"siblings": siblings, "tags": [], "downloads": 0}
            case "GET", "tree":
                return 200, [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in found.files.items()
                ]
            case "GET", "refs":
                kinds = {"branches": "/heads/", "tags": "/tags/", "pullRequests": "/pr/", "converts": "/convert/"}
                refs = [{"name": r.rpartition("/")[2], "ref": r, "targetCommit": sha} for r, sha in found.refs.items()]
                return 200, {name: [ref for ref in refs if part in ref["ref"]] for name, part in kinds.items()}
            case "PUT", "settings":
                found.gated = json.loads(body).get("gated", found.gated)
                return 200, {}
            case "POST", "preupload":
                paths = [file["path"] for file in json.loads(body)["files"]]
                modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
                files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
                return 200, {"files": files}
            case "POST", "commit":
                return self._commit(found, repo=repo, body=body)
            case "POST", "super-squash":
                found.add(found.files, squash=True)
                return 200, {}
            case "GET", "lfs-files":
                about = {"filename": "unknown", "pushedAt": "2026-01-01T00:00:00.000Z", "ref": "main"}
                sizes = {oid: len(data) for oid, data in found.large.items()}
                return 200, [about | {"fileOid": f"f{oid[1:]}", "oid": oid, "size": n} for oid, n in sizes.items()]
            case "POST", "lfs-files":
                for sha in json.loads(body)["deletions"]["sha"]:
                    found.large = {oid: kept for oid, kept in found.large.items() if f"f{oid[1:]}" != sha}
                return 200, {}
        return 404, {"error": "unknown request"}

    def _commit(self, found: Repository, *, repo: str, body: bytes) -> tuple[int, Any]:
        files = dict(found.files)
        found.first = found.first or (found.private, found.gated)
        for line in body.splitlines():
            told = json.loads(line)
            value = told["value"]
            match told["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    if value["oid"] not in found.large:
                        return 400, {"error": "the file was not uploaded"}
                    files[value["path"]] = found.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        sha = found.add(files)
        url = f"{self.url}/{repo}/commit/{sha}"
        return 200, {"commitOid": sha, "commitUrl": url, "hookOutput": "", "success": True}

    def _lfs_batch(self, parts: list[str], told: dict[str, Any]) -> dict[str, Any]:
        kind, names = ("dataset", parts[1:3]) if parts[0] == "datasets" else ("model", parts[:2])
        repo = "/".join(names).removesuffix(".git")
        place = f"{self.url}/store/{kind}/{repo}"
        return {
            "transfer": "basic",
            "objects": [{**one, "actions": {"upload": {"href": f"{place}/{one['oid']}"}}} for one in told["objects"]],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = urlsplit(self.path).path
                hub.requests.append((self.command, path))
                given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                hub.tokens.add(given)
                if hub.fail and path.endswith(hub.fail):
                    status, value = 500, {"error": "broken"}
                elif given != TOKEN and not path.startswith("/store/"):
                    status, value = 401, {"error": "who are you"}
                else:
                    status, value = hub.answer(self.command, self.path, body)
                data = json.dumps(value).encode()
                self.send_response(status)
                if (status, value) == MISSING:
                    self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _reply

        return Handler
