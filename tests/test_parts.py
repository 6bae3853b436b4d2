"""Registries of parts: modules of a package, and entry points of distributions that a deployment allows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core import parts
from pipelines.core.config.base import Distribution
from pipelines.core.errors import ConfigError
from pipelines.core.parts import Parts
from tests import small_distribution

BASE = "class Base:\n    pass\n"
OWN = "from own_parts_base import Base\nclass Own(Base):\n    pass\n"
FOREIGN = "from own_parts_base import Base\nclass Foreign(Base):\n    pass\nclass Other:\n    pass\n"
POINTS = "[crisis_corpus.own_parts]\nforeign = foreign_part:Foreign\nother = foreign_part:Other\n"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts[object]]:
    own = {"own_parts_base.py": BASE, "own_parts/__init__.py": "", "own_parts/own.py": OWN}
    with small_distribution.installed(tmp_path, monkeypatch, files={**own, "foreign_part.py": FOREIGN}, points=POINTS):
        from own_parts_base import Base  # type: ignore[import-not-found]

        yield Parts("own_parts", Base)


def allowed() -> dict[str, Distribution]:
    return {"foreign": Distribution(**small_distribution.entry())}


def test_a_part_of_the_package_is_known_without_an_import(registry: Parts[object]) -> None:
    assert registry.names({}) == ("own",) and "own_parts.own" not in sys.modules
    assert registry.get("own", {}).__name__ == "Own"
    with pytest.raises(ConfigError, match="known: own") as refused:
        registry.get("foreign", {})
    assert refused.value.code == "UnknownName"


def test_a_part_of_another_distribution_needs_its_version_and_digest(registry: Parts[object], tmp_path: Path) -> None:
    permitted = allowed()
    assert registry.names(permitted) == ("foreign", "other", "own")
    assert registry.get("foreign", permitted).__name__ == "Foreign"
    with pytest.raises(ConfigError) as refused:
        registry.get("other", permitted)
    assert refused.value.code == "BadPart"
    (tmp_path / "foreign_part.py").write_text(FOREIGN + "# changed\n")
    parts.installed.cache_clear()
    with pytest.raises(ConfigError) as refused:
        registry.get("foreign", permitted)
    assert refused.value.code == "OtherDistribution"


def test_a_distribution_that_is_not_installed_is_named(registry: Parts[object]) -> None:
    with pytest.raises(ConfigError, match="not installed") as refused:
        registry.names({"nowhere": Distribution(version="1", sha256="0" * 64)})
    assert refused.value.code == "NoDistribution"
