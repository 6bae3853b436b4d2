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

BASE = "class Base:\n    pass\n"
OWN = "from own_parts_base import Base\nclass Own(Base):\n    pass\n"
FOREIGN = "from own_parts_base import Base\nclass Foreign(Base):\n    pass\nclass Other:\n    pass\n"
POINTS = "[crisis_corpus.own_parts]\nforeign = foreign_part:Foreign\nother = foreign_part:Other\n"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts[object]]:
    info = tmp_path / "foreign-2.dist-info"
    files = {
        "own_parts_base.py": BASE, "own_parts/__init__.py": "", "own_parts/own.py": OWN, "foreign_part.py": FOREIGN,
        f"{info.name}/METADATA": "Name: foreign\nVersion: 2\n", f"{info.name}/entry_points.txt": POINTS,
        f"{info.name}/RECORD": "foreign_part.py,sha256=AAAA,1\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_parts_base import Base  # type: ignore[import-not-found]

    parts.installed.cache_clear()
    yield Parts("own_parts", Base)
    parts.installed.cache_clear()
    for name in ("own_parts_base", "own_parts", "own_parts.own", "foreign_part"):
        sys.modules.pop(name, None)


def allowed() -> dict[str, Distribution]:
    version, sha256 = parts.installed("foreign")
    return {"foreign": Distribution(version=version, sha256=sha256)}


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
