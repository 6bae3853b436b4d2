"""The page as printed, typed once for texts and once for pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.own.page import IMAGES, TEXTS, Desk, files


@pytest.fixture(scope="session", params=[TEXTS, IMAGES], ids=["texts", "images"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A team whose corpus `corpus run` has made; its pictures are served."""
    folder: Path = tmp_path_factory.mktemp("run")
    given = folder.with_name(f"{folder.name}-files")
    with files(request.param, given):
        desk = Desk.of(request.param, folder, given=given)
        desk.type("own")
        yield desk
