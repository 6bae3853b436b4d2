"""The releases, the registry and the corpora of other folders' tests, and a hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.export.hub_server import HubServer
from tests.registry.conftest import context, made, small
from tests.release.conftest import made_release, world

__all__ = ["context", "made", "made_release", "small", "world"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    # hf_xet speaks another protocol, to another server; the Hub takes both
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with HubServer().running() as server:
        yield server


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
