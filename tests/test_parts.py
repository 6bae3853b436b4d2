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
POINTS = """
[crisis_corpus.own_parts]
foreign = foreign_part:Foreign
other = foreign_part:Other
own = foreign_part:Foreign
"""


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


def test_a_part_of_the_package_is_not_replaced_and_needs_no_distribution(registry: Parts[object]) -> None:
    changed = {name: Distribution(version="1", sha256="0" * 64) for name in ("nowhere", "foreign")}
    for permitted in (allowed(), changed):
        assert registry.get("own", permitted).__name__ == "Own" and registry.origin("own", permitted) == ""
    # what is not there does not stop the part of another one
    assert registry.get("foreign", {"nowhere": changed["nowhere"]} | allowed()).__name__ == "Foreign"
    assert registry.origin("foreign", allowed()) == small_distribution.entry()["sha256"]


def test_a_part_that_fails_at_its_import_is_refused(registry: Parts[object], tmp_path: Path) -> None:
    (tmp_path / "foreign_part.py").write_text("raise RuntimeError")
    parts.installed.cache_clear()
    with pytest.raises(ConfigError) as refused:
        registry.get("foreign", allowed())
    assert refused.value.code == "BadPart"


def test_the_digest_is_of_the_code_and_not_of_the_way_of_its_installation(
    registry: Parts[object], tmp_path: Path
) -> None:
    before, info = parts.installed("foreign"), tmp_path / "foreign-2.dist-info"
    record = (info / "RECORD").read_text()
    for name in ("INSTALLER", "REQUESTED", "direct_url.json", "../../script"):
        (info / name).write_text("text")
        record += f"{info.name}/{name},sha256=AAAA,1\n" if name[0] != "." else "../script,sha256=AAAA,1\n"
    (info / "RECORD").write_text(record)
    parts.installed.cache_clear()
    assert parts.installed("foreign") == before


def test_an_editable_install_is_refused(registry: Parts[object], tmp_path: Path) -> None:
    info = tmp_path / "foreign-2.dist-info"
    names = ("__editable__.foreign-2.pth", "__editable___foreign_2_finder.py", f"{info.name}/METADATA")
    for name in names[:2]:
        (tmp_path / name).write_text("")
    (info / "RECORD").write_text("".join(f"{name},sha256=AAAA,1\n" for name in names))
    parts.installed.cache_clear()
    with pytest.raises(ConfigError) as refused:
        small_distribution.entry()
    assert refused.value.code == "EditableDistribution"


def test_a_distribution_that_is_not_installed_is_named(registry: Parts[object]) -> None:
    with pytest.raises(ConfigError, match="not installed") as refused:
        registry.names({"nowhere": Distribution(version="1", sha256="0" * 64)})
    assert refused.value.code == "NoDistribution"
