"""An audit of a small corpus by the sandbox's moderation systems, which make no mistake unless a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.label.conftest import CALM, VendorHost
from tests.moderation.small_audit import Audit, audit


@pytest.fixture
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorHost]:
    host = VendorHost(tmp_path_factory.mktemp("vendors"))
    host.vendors.tempers.update(dict.fromkeys(("openai", "azure", "guard"), CALM))
    with host.server:
        yield host


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendors: VendorHost) -> Iterator[Audit]:
    with audit(tmp_path, vendors.server.address, monkeypatch) as made:
        yield made
