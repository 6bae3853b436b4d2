"""After a takedown a release that is out holds no more of it than its id there, on the removal list."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipelines.release import removal
from tests.release.small_release import NOW, World, listed, table

TAKEN = ("t3_m001", "t3_m004")  # the second is a gallery


class Killed(Exception):
    pass


def refresh(world: World, **given: object) -> dict[str, dict[str, object]]:
    plan = {"now": NOW, "at_once": True} | given
    return removal.refresh(settings=world.settings, vault=world.vault, **plan)  # type: ignore[arg-type]


def state(world: World, name: str) -> dict[str, bytes]:
    return {str(p.relative_to(world.home)): p.read_bytes() for p in world.folder(name).rglob("*") if p.is_file()}


def take(world: World, *fullnames: str) -> None:
    world.vault.destroy([world.record(name) for name in fullnames], reason="test", now=NOW)


def test_rows_go_and_the_others_keep_their_bytes(world: World) -> None:
    folder = world.approved("memes", "m1")
    before = {p.name: p.read_text() for p in folder.iterdir()}
    asked = {"settings": world.settings, "vault": world.vault}
    assert removal.holding([world.record(n) for n in (*TAKEN, "t3_p001")], **asked) == {"m1": 2}
    take(world, *TAKEN, "t3_p001")
    assert refresh(world) == {"m1": {"withdrawn": 2, "new": 2, "waiting": 0, "package": True, "altered": 0}}
    assert removal.holding([world.record(n) for n in TAKEN], **asked) == {}
    ids = {world.of("m1", name) for name in TAKEN}
    after = {p.name: p.read_text() for p in folder.iterdir()}
    for name in ("annotations.csv", "splits.csv", "fetch.csv"):
        kept = [line for line in before[name].splitlines() if line.partition(",")[0] not in ids]
        assert after[name].splitlines() == kept
        assert len(kept) == 57 - 4
    assert listed(folder / "removal.json") == ids
    assert (world.folder("m1") / "removal.json").read_text() == after["removal.json"]
    # nothing leads from the id to what it was
    gone = [line for name in ("annotations.csv", "fetch.csv") for line in before[name].splitlines() if line[:32] in ids]
    forbidden = [value for line in gone for value in line.split(",")[2:] if re.fullmatch("[0-9a-f]{32,}", value)]
    forbidden += [world.record(name) for name in TAKEN]
    assert len(forbidden) > 10
    for path, data in state(world, "m1").items():
        assert not [value for value in forbidden if value.encode() in data], path
    facts = json.loads(after["manifest.json"])
    assert (facts["status"], facts["withdrawn"]) == ("APPROVED", 2)


def test_repeating_changes_nothing_and_the_list_only_grows(world: World) -> None:
    world.approved("memes", "m1")
    world.approved("posts", "p1")
    take(world, TAKEN[0])
    assert refresh(world)["m1"]["new"] == 1
    then = state(world, "m1")
    assert refresh(world) == {
        "m1": {"withdrawn": 1, "new": 0, "waiting": 0, "package": True, "altered": 0},
        "p1": {"withdrawn": 0, "new": 0, "waiting": 0, "package": True, "altered": 0},
    }
    assert state(world, "m1") == then
    take(world, TAKEN[1], "t3_p002")
    assert {name: told["new"] for name, told in refresh(world).items()} == {"m1": 1, "p1": 1}
    assert len(listed(world.folder("m1") / "removal.json")) == 2


@pytest.mark.parametrize("more", [False, True])
def test_killed_anywhere_it_ends_the_same(world: World, more: bool) -> None:
    world.approved("memes", "m1")
    steps: list[str] = []
    for die_at in range(6):
        (world.folder("m1") / "x").unlink(missing_ok=True)
        take(world, f"t3_m{10 + die_at:03d}")

        def say(step: str, die_at: int = die_at) -> None:
            steps.append(step)
            if len(steps) == die_at + 1:
                raise Killed

        steps.clear()
        with pytest.raises(Killed):
            refresh(world, say=say)
        if more:
            take(world, f"t3_m{20 + die_at:03d}")
        refresh(world)
    taken = [*range(10, 16), *(range(20, 26) if more else ())]
    folder = world.folder("m1") / "package"
    ids = {world.of("m1", f"t3_m{n:03d}") for n in taken}
    assert listed(folder / "removal.json") == ids
    assert not ids & {row["id"] for name in ("annotations", "splits", "fetch") for row in table(folder / f"{name}.csv")}
    then = state(world, "m1")
    refresh(world)
    assert state(world, "m1") == then
    # the package itself is whole
    own = {"key": world.key("m1"), "out": world.home / "out"}
    world.turned_away(folder, status=78, said="REDDIT_CLIENT_ID: not set", REDDIT_CLIENT_ID="", **own)


def test_a_package_that_went_elsewhere_has_its_list_here(world: World) -> None:
    folder = world.approved("memes", "m1")
    folder.rename(world.home / "shared")
    take(world, *TAKEN)
    assert refresh(world) == {"m1": {"withdrawn": 2, "new": 2, "waiting": 0, "package": False, "altered": 0}}
    assert len(listed(world.folder("m1") / "removal.json")) == 2


def test_rows_leave_an_altered_table_too_and_it_is_not_passed_off_as_whole(world: World) -> None:
    folder = world.approved("memes", "m1")
    path: Path = folder / "splits.csv"
    path.write_text(path.read_text().replace("train", "test"))
    (folder / "fetch.csv").unlink()
    take(world, *TAKEN)
    for new in (2, 0):
        assert refresh(world) == {"m1": {"withdrawn": 2, "new": new, "waiting": 0, "package": True, "altered": 2}}
        ids = {world.of("m1", name) for name in TAKEN}
        for file in ("annotations.csv", "splits.csv"):
            assert not ids & {row["id"] for row in table(folder / file)}
        assert listed(folder / "removal.json") == ids
    world.turned_away(folder, key=world.key("m1"), out=world.home / "out")
    assert not (world.home / "out").exists()


def test_a_vault_that_forgot_takes_nothing_off_the_list(world: World) -> None:
    world.approved("memes", "m1")
    copy = (world.home / "vault.sqlite").read_bytes()
    take(world, *TAKEN)
    refresh(world)
    world.vault.close()
    for path in world.home.glob("vault.sqlite*"):
        path.unlink()
    (world.home / "vault.sqlite").write_bytes(copy)
    assert refresh(world)["m1"]["withdrawn"] == 2
