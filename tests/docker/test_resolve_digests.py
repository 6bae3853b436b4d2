"""Digests come from a registry's answers, here those of a registry on loopback that asks for a token."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.json_server import Request, json_server

ROOT = Path(__file__).resolve().parents[2]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docker" / "resolve_digests.py"))
MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def answer(request: Request) -> tuple[int, Any, dict[str, str]]:
    """Answer as a registry with two images, of which one has a false digest in its header."""
    if request.path == "/token":
        return 200, {"token": quote(request.query["scope"], safe="")}, {}
    if request.headers["Authorization"] != "Bearer repository%3Ateam%2Ftool%3Apull":
        realm = f"http://{request.headers['Host']}/token"
        asks = f'Bearer realm="{realm}",service="registry",scope="repository:team/tool:pull"'
        return 401, b"", {"WWW-Authenticate": asks}
    stated = {"/v2/team/tool/manifests/1.0": DIGEST, "/v2/team/tool/manifests/false": "sha256:" + "0" * 64}
    if request.path not in stated or "image.index.v1+json" not in request.headers["Accept"]:
        return 404, b"", {}
    return 200, MANIFEST, {"Docker-Content-Digest": stated[request.path]}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with json_server(answer) as address:
        yield address.removeprefix("http://")


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
