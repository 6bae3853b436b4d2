"""The sandbox's three vendors on a free port, for every test that asks a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from crisis_corpus_sandbox.server import SandboxServer
from crisis_corpus_sandbox.vendors.mind import Temper
from crisis_corpus_sandbox.vendors.vendors import LOG, Vendors
from pipelines.core.config.settings import Endpoint

BELOW = {"openai": "/openai/v1", "anthropic": "/anthropic", "google": "/google"}
CALM = Temper(
    wrong=0, refuses={}, refuses_any=0, malformed=0, throttled=0, failing=0, slow=0, obeys_inside=0, obeys_outside=0
)


class VendorHost:
    """A running server with the vendors of an empty sandbox; by default as fallible as the demo's."""

    def __init__(self, root: Path) -> None:
        (root / "submissions.jsonl").touch()
        self.root = root
        self.vendors = Vendors(root, seed=7)
        self.server = SandboxServer(root, vendors=self.vendors)

    def url(self, provider: str) -> str:
        """Return the base address that a provider's own client takes."""
        return self.server.address + BELOW[provider]

    def endpoint(self, provider: str, *, key: str = "sandbox") -> Endpoint:
        """Return address and key; the keys ``wrong`` and ``empty`` are turned away."""
        return Endpoint(url=self.url(provider), key=SecretStr(key))

    def environ(self, *, key: str = "sandbox") -> dict[str, str]:
        """Return the environment by which a process of its own finds all of them."""
        named = {f"CORPUS_{p.upper()}_URL": self.url(p) for p in BELOW}
        return named | {f"CORPUS_{p.upper()}_KEY": key for p in BELOW}

    def change(self, *providers: str, latency: float | None = None, **rates: Any) -> None:
        """Change the temper of the providers named, or of all: see ``Temper`` for the rates."""
        for provider in providers or tuple(BELOW):
            self.vendors.tempers[provider] = replace(self.vendors.tempers[provider], **rates)
        if latency is not None:
            self.vendors.latency = latency

    def calm(self, *, latency: float = 0.0) -> None:
        """Let all of them tell the truth at once."""
        self.vendors.tempers.update(dict.fromkeys(BELOW, CALM))
        self.vendors.latency = latency

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of vendors.jsonl: vendor, model, key, status, answered, batch."""
        self.vendors.settle()
        path = self.root / LOG
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def counts(self, provider: str) -> dict[str, int]:
        """Return received, answered, throttled, errors, refused, keys, most_at_once."""
        return self.vendors.counts()[provider]


@pytest.fixture
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorHost]:
    host = VendorHost(tmp_path_factory.mktemp("vendors"))
    with host.server:
        yield host
