"""Digests come from a registry's answers, here those of a registry on loopback that asks for a token."""

from __future__ import annotations

import hashlib
import json
import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docker" / "resolve_digests.py"))
MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


class Registry(BaseHTTPRequestHandler):
    """A registry with two images, of which one has a false digest in its header."""

    def do_GET(self) -> None:
        host = self.headers["Host"]
        if self.path.startswith("/token?"):
            return self._answer(200, json.dumps({"token": self.path.partition("scope=")[2]}).encode())
        if self.headers["Authorization"] != "Bearer repository%3Ateam%2Ftool%3Apull":
            challenge = f'Bearer realm="http://{host}/token",service="registry",scope="repository:team/tool:pull"'
            return self._answer(401, b"", {"WWW-Authenticate": challenge})
        stated = {"/v2/team/tool/manifests/1.0": DIGEST, "/v2/team/tool/manifests/false": "sha256:" + "0" * 64}
        if self.path not in stated or "image.index.v1+json" not in self.headers["Accept"]:
            return self._answer(404, b"")
        return self._answer(200, MANIFEST, {"Docker-Content-Digest": stated[self.path]})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def folder(place: Path, image: str, digest: str | None) -> Path:
    content = {"TOOL_IMAGE": {"image": image, "digest": digest}}
    (place / "images.json").write_text(json.dumps(content))
    return place


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("postgres:16", ("registry-1.docker.io", "library/postgres", "16")),
        ("apache/airflow:3.3", ("registry-1.docker.io", "apache/airflow", "3.3")),
        ("ghcr.io/mlflow/mlflow:v3", ("ghcr.io", "mlflow/mlflow", "v3")),
        ("localhost:5000/a/b:c", ("localhost:5000", "a/b", "c")),
    ],
)
def test_a_name_is_read_as_docker_reads_it(image: str, parts: tuple[str, str, str]) -> None:
    assert SCRIPT["parts"](image) == parts


def test_a_missing_digest_is_resolved_once_and_given_to_compose(registry: str, tmp_path: Path) -> None:
    place = folder(tmp_path, f"{registry}/team/tool:1.0", None)
    assert SCRIPT["main"]([], folder=place) == 0
    assert json.loads((place / "images.json").read_text())["TOOL_IMAGE"]["digest"] == DIGEST
    assert (place / ".env").read_text() == f"TOOL_IMAGE={registry}/team/tool:1.0@{DIGEST}\n"
    kept = folder(tmp_path, f"{registry}/team/tool:gone", DIGEST)
    assert SCRIPT["main"](["--check"], folder=kept) == 0 and SCRIPT["main"]([], folder=kept) == 0
    assert SCRIPT["main"](["--all"], folder=kept) == 1, "the tag is gone"


@pytest.mark.parametrize("tag", ["false", "absent"])
def test_nothing_is_written_for_an_image_without_a_digest(
    registry: str, tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder(tmp_path, f"{registry}/team/tool:{tag}", None)
    before = (place / "images.json").read_text()
    assert SCRIPT["main"]([], folder=place) == 1 and f"tool:{tag}" in capsys.readouterr().err
    assert (place / "images.json").read_text() == before and not (place / ".env").exists()


def test_a_release_with_an_unresolved_digest_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, "postgres:16", None)
    assert SCRIPT["main"](["--check"], folder=place) == 1 and "TOOL_IMAGE" in capsys.readouterr().err
    assert not (place / ".env").exists()
