"""Pushing is a dry run unless it is asked for, leaves one version on the hub, and is on record before it begins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from pipelines.cli.takedown import _on_hub
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.registry.journal import Journal
from pipelines.release import removal
from pipelines.release.export import hub as copies
from pipelines.release.export.folder import RemovalsDue
from pipelines.release.export.hub import HubRefused, HubUnavailable
from tests.export import test_release_export
from tests.export.hub_server import TOKEN, HubServer, Repository
from tests.export.test_release_export import REPO, destroy_some
from tests.refusals import refused
from tests.release.small_release import NOW, SECRET, World

WHO: dict[str, Any] = {"who": "Ada Writer", "why": "request 12"}
LATER = NOW + timedelta(days=20)


@pytest.fixture
def journal(world: World) -> Iterator[Journal]:
    with Journal.open(f"sqlite:///{world.home}/journal.sqlite", clock=lambda: NOW, secret=SECRET) as journal:
        yield journal


@pytest.fixture
def settings(world: World, hub: HubServer) -> Settings:
    return world.settings.model_copy(update={"hub_url": hub.url, "hub_token": SecretStr(TOKEN)})


@pytest.fixture
def given(world: World, settings: Settings, journal: Journal) -> dict[str, Any]:
    return {"settings": settings, "journal": journal, "vault": world.vault, "now": NOW}


@pytest.fixture
def folder(world: World, settings: Settings, tmp_path: Path) -> Path:
    world.approved("posts", "p1")
    return export(world, settings, tmp_path / "out")


def export(world: World, settings: Settings, to: Path, **given: Any) -> Path:
    test_release_export.export(world, "p1", to, settings=settings, **given)
    return to


def on_hub(hub: HubServer, repo: str = REPO) -> Repository:
    return hub.repos["dataset", repo]


def events(journal: Journal) -> list[tuple[str, str]]:
    return [(row.name, row.event) for row in journal.rows()]


def states(given: dict[str, Any], **changed: Any) -> list[tuple[str, str]]:
    return [(copy.repo, copy.state) for copy in copies.Hub(**given | changed).listing()]


def remove_some(world: World) -> set[str]:
    """Take posts down and publish their removal; return their ids in the release."""
    destroy_some(world)
    removal.refresh(settings=world.settings, vault=world.vault, now=LATER)
    found = json.loads((world.folder("p1") / "removal.json").read_text())["ids"]
    assert len(found) >= 3
    return set(found)


def test_a_push_sends_the_folder_to_a_private_gated_repository(
    folder: Path, hub: HubServer, given: dict[str, Any], journal: Journal
) -> None:
    told = copies.Hub(**given).push(folder, **WHO)
    repository = on_hub(hub)
    expected = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {name: data for name, data in repository.files.items() if name != ".gitattributes"} == expected
    assert repository.first == (True, "manual"), "before the first file arrived"
    assert told["commit"] == repository.refs["refs/heads/main"] and told["url"] == f"{hub.url}/datasets/{REPO}"
    assert len(repository.history) == 1 and told["other_refs"] == []
    assert events(journal) == [("release/p1", "pushing"), ("release/p1", "pushed")]
    row = journal.rows()[-1]
    assert (row.who, row.why) == ("Ada Writer", "request 12")
    assert (row.metrics["commit"], row.metrics["repo"]) == (told["commit"], REPO)
    assert hub.tokens <= {TOKEN, ""} and states(given) == [(REPO, "current")]


def test_after_removals_the_copy_is_outdated_and_a_push_leaves_nothing_of_them(
    folder: Path, world: World, settings: Settings, hub: HubServer, given: dict[str, Any], tmp_path: Path
) -> None:
    copies.Hub(**given).push(folder, **WHO)
    later = given | {"now": LATER}
    gone = remove_some(world)
    [copy] = copies.Hub(**later).listing()
    assert copy.state == "outdated" and f"corpus export release p1 --repo {REPO} --to" in copy.do
    with refused("ExportChanged", match="has changed since the export"):
        copies.Hub(**later).push(folder, **WHO)
    new = export(world, settings, tmp_path / "new", now=LATER)
    old = {name: data for name, data in on_hub(hub).files.items() if name.endswith(".parquet")}
    told = copies.Hub(**later).push(new, **WHO)
    repository = on_hub(hub)
    changed = [data for name, data in old.items() if repository.files[name] != data]
    assert changed and told["deleted"] == len(changed)
    assert not set(changed) & set(repository.everything()), "not in history and not in the store"
    rows = [row for data in repository.everything() if data[:4] == b"PAR1" for row in _ids(data, tmp_path)]
    assert rows and not gone & set(rows)
    plain = [data for data in repository.everything() if data[:4] != b"PAR1" and b'"removal list"' not in data]
    named = [name for name in repository.files if name != "package/removal.json"]
    assert not [i for i in gone for name in named if i.encode() in repository.files[name]] and plain
    assert [copy.state for copy in copies.Hub(**later).listing()] == ["current"]


def _ids(data: bytes, place: Path) -> list[str]:
    (place / "one.parquet").write_bytes(data)
    found: list[str] = pq.read_table(place / "one.parquet")["id"].to_pylist()
    return found


def test_due_removals_come_first(
    folder: Path, world: World, settings: Settings, hub: HubServer, given: dict[str, Any]
) -> None:
    copies.Hub(**given).push(folder, **WHO)
    destroy_some(world)
    assert states(given) == [(REPO, "current")], "they wait for their day, as in the package"
    [copy] = copies.Hub(**given | {"now": LATER}).listing()
    assert copy.state == "outdated" and copy.do.startswith("corpus release refresh; corpus export release p1")
    sent = len(hub.requests)
    with pytest.raises(RemovalsDue):
        copies.Hub(**given | {"now": LATER}).push(folder, **WHO)
    assert len(hub.requests) == sent


def test_a_takedown_names_the_copies_that_are_outdated(
    folder: Path, world: World, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(world.home))
    monkeypatch.setenv("CORPUS_SECRET", SECRET.hex())
    copies.Hub(**given).push(folder, **WHO)
    settings = Settings.from_env()
    # now is years later than the release
    assert _on_hub(settings, vault=world.vault) == {}
    world.vault.destroy([world.record("t3_p009")], reason="test", now=NOW)
    removal.refresh(settings=settings, vault=world.vault, now=None, at_once=True)
    [copy] = _on_hub(settings, vault=world.vault)["hub"]
    assert (copy["repo"], copy["state"]) == (REPO, "outdated")


def test_a_repository_with_files_of_others_is_left_alone(
    folder: Path, hub: HubServer, given: dict[str, Any], journal: Journal
) -> None:
    theirs = hub.repos["dataset", REPO] = Repository(private=False)
    theirs.add({".gitattributes": b"", "data.csv": b"theirs"})
    with refused("NotOurs", match="1 files"):
        copies.Hub(**given).push(folder, **WHO)
    assert theirs.files["data.csv"] == b"theirs" and theirs.gated is False and events(journal) == []
    assert {method for method, _ in hub.requests} == {"GET"}


LAST = pytest.param("/lfs-files", marks=pytest.mark.faults)  # huggingface_hub tries for 20 s


@pytest.mark.parametrize("path", ["/create", "/settings", "/commit/main", "/super-squash/main", LAST])
def test_a_push_that_fails_is_listed_and_can_be_repeated(
    folder: Path, hub: HubServer, given: dict[str, Any], journal: Journal, path: str
) -> None:
    hub.fail = path
    with pytest.raises(HubUnavailable, match="it answered 500"):
        copies.Hub(**given).push(folder, **WHO)
    [copy] = copies.Hub(**given).listing()
    assert copy.state == "unfinished" and "corpus export push" in copy.do
    hub.fail = ""
    copies.Hub(**given).push(folder, **WHO)
    assert states(given) == [(REPO, "current")] and len(on_hub(hub).history) == 1


def test_a_wrong_token_and_a_hub_that_does_not_answer(
    folder: Path, settings: Settings, hub: HubServer, given: dict[str, Any], journal: Journal
) -> None:
    def push(token: str) -> None:
        changed = settings.model_copy(update={"hub_token": SecretStr(token)})
        copies.Hub(**given | {"settings": changed}).push(folder, **WHO)

    with refused("NoToken"):
        push("")
    assert hub.requests == []
    with pytest.raises(HubRefused, match="it answered 401") as caught:
        push("no")
    assert caught.value.exit_code == 77
    assert events(journal) == []


@pytest.mark.parametrize("url", ["http://hub.example", "ftp://127.0.0.1", "hub.example"])
def test_a_token_is_not_sent_without_encryption(
    folder: Path, settings: Settings, given: dict[str, Any], url: str
) -> None:
    with pytest.raises(BadParams, match="CORPUS_HUB_URL"):
        copies.Hub(**given | {"settings": settings.model_copy(update={"hub_url": url})}).plan(folder)


def test_a_changed_folder_and_an_unnamed_person_are_refused(
    folder: Path, hub: HubServer, given: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadParams, match="who"):
        copies.Hub(**given).push(folder, who=" ", why="a reason")
    changed = shutil.copytree(folder, tmp_path / "changed")
    (changed / "posts.txt").write_text("words")
    here = copies.Hub(**given)
    for call in (here.plan, partial(here.push, **WHO)):
        with refused("ExportChanged", match=r"posts\.txt"):
            call(changed)
    assert hub.requests == []


def test_other_branches_and_tags_are_named(folder: Path, hub: HubServer, given: dict[str, Any]) -> None:
    copies.Hub(**given).push(folder, **WHO)
    repository = on_hub(hub)
    main = repository.refs["refs/heads/main"]
    repository.refs |= {"refs/tags/v1": main, "refs/pr/1": main}
    assert copies.Hub(**given).push(folder, **WHO)["other_refs"] == ["refs/pr/1", "refs/tags/v1"]
