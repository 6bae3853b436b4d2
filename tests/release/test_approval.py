"""A package is a draft until a person signs it; records taken down or files altered meanwhile prevent signing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.core.errors import BadParams
from pipelines.release import access, removal
from pipelines.release.release_store import NoSuchRelease, PackageAltered, ReleaseEntry, summary
from tests.refusals import refused
from tests.release.small_release import NOW, World


def manifest(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "manifest.json").read_text())
    return found


def test_only_what_was_signed_says_approved(world: World) -> None:
    folder = Path(world.release("posts", "p1")["package"])
    draft = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert manifest(folder)["status"] == "DRAFT"
    told = world.approve("p1")
    assert told["status"] == "APPROVED"
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after["manifest.json"] != draft["manifest.json"]
    assert after | {"manifest.json": b""} == draft | {"manifest.json": b""}
    assert manifest(folder)["status"] == "APPROVED"
    assert manifest(folder)["approved_on"] == "2023-02-01"
    # who signed and why stays here
    assert not any(b"Person" in data or b"board" in data for data in after.values())
    assert json.loads((world.folder("p1") / "release.json").read_text())["who"] == "A. Person"
    assert world.approve("p1") == told
    assert [(r["release"], r["status"], r["who"], r["withdrawn"]) for r in summary(world.settings)] == [
        ("p1", "APPROVED", "A. Person", 0)
    ]


def test_a_draft_with_a_tombstone_is_not_signed(world: World) -> None:
    for name in ("p1", "p2"):
        world.release("posts", name)
    world.vault.destroy([world.record("t3_m001"), "0" * 32], reason="test", now=NOW)
    world.approve("p1")  # neither is in it
    world.vault.destroy([world.record("t3_p002")], reason="test", now=NOW)
    for refreshed in (False, True):
        if refreshed:
            removal.refresh(settings=world.settings, vault=world.vault, now=None)
        with refused("DraftOutdated", match="1 records of draft 'p2'"):
            world.approve("p2")
        assert manifest(world.folder("p2") / "package")["status"] == "DRAFT"
    world.release("posts", "p2")
    assert world.approve("p2")["status"] == "APPROVED"


@pytest.mark.parametrize("file", ["dev.csv", "fetch.csv", "hydrate.py", "DATASHEET.md", "manifest.json"])
def test_an_altered_draft_is_not_signed(world: World, file: str) -> None:
    path = Path(world.release("posts", "p1")["package"]) / file
    path.write_text(path.read_text() + "\n")
    with pytest.raises(PackageAltered, match=file):
        world.approve("p1")
    path.unlink()
    with pytest.raises(PackageAltered, match=file):
        world.approve("p1")


def test_a_manifest_that_a_kill_left_behind_follows(world: World) -> None:
    folder = Path(world.release("posts", "p1")["package"])
    before = (folder / "manifest.json").read_bytes()
    world.approve("p1")
    after = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(before)
    assert ReleaseEntry.of(world.settings, "p1").state()["status"] == "APPROVED"
    world.approve("p1")
    assert (folder / "manifest.json").read_bytes() == after


def test_an_empty_person_or_reason_cannot_sign(world: World) -> None:
    world.release("posts", "p1")
    given = {"settings": world.settings, "vault": world.vault, "now": NOW}
    for who, why in (("", "why"), ("who", " "), ("who", "two\nlines")):
        with pytest.raises(BadParams):
            access.approve("p1", who=who, why=why, **given)
    with pytest.raises(NoSuchRelease):
        access.approve("p9", who="who", why="why", **given)
