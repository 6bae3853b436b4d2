"""The commands: a release from approval to the hub and away again, as a person types it; and a model's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.cli import release as release_commands
from pipelines.cli.main import app
from pipelines.core.config.settings import Settings
from pipelines.registry.packaging.register import put
from pipelines.release import access
from pipelines.release.export.folder import NotExportable
from pipelines.release.release_store import NoSuchRelease
from pipelines.workspace import repository
from tests.export.hub_server import TOKEN, HubServer
from tests.refusals import refused
from tests.registry import packs, small_registry
from tests.release.small_release import NOW, SECRET, World
from tests.small_checkout import checkout

REPO = "my-lab/small-posts"
PERSON = ("--who", "A. Person", "--why", "request 12")
Corpus = Callable[..., str]


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Corpus:
    monkeypatch.chdir(tmp_path)

    def run(*argv: str, group: str = "export") -> str:
        app([group, *argv], standalone_mode=False)
        told = capsys.readouterr()
        assert TOKEN not in told.out + told.err
        return told.out

    return run


def told(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_a_release_to_the_hub_and_away(
    world: World, hub: HubServer, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(world.home))
    monkeypatch.setenv("CORPUS_SECRET", SECRET.hex())
    monkeypatch.setenv("CORPUS_HUB_URL", f"{hub.url}/")
    monkeypatch.setenv("CORPUS_HUB_TOKEN", TOKEN)
    permitted: list[tuple[str, str]] = []
    monkeypatch.setattr(release_commands, "_permit", lambda use, name, **_: permitted.append((use, name)))
    written = ("release", "p1", "--repo", REPO, "--to", "out")
    with pytest.raises(NoSuchRelease):
        corpus(*written)
    world.release("posts", "p1")
    with pytest.raises(NotExportable, match="a draft that no person has approved"):
        corpus(*written)
    assert not [*tmp_path.glob("*out*")]
    world.approve("p1")
    assert told(corpus(*written))["folder"] == str(tmp_path / "out")
    assert {*permitted} == {("export", "p1")}
    assert told(corpus("push", "out"))["sent"] is False
    with pytest.raises(typer.BadParameter):
        corpus("push", "out", "--send")
    files = sum(path.is_file() for path in (tmp_path / "out").rglob("*"))
    with refused("NotConfirmed", match=f"sends {files} files to {REPO}"):
        corpus("push", "out", "--send", *PERSON)
    assert hub.requests == []
    sent = told(corpus("push", "out", "--send", "--yes", *PERSON))
    assert sent["sent"] is True and sent["repo"] == REPO and ("dataset", REPO) in hub.repos
    assert corpus("list") == f"{hub.url} dataset {REPO}: release p1, current\n"
    access.retire("p1", who="A. Person", why="replaced", settings=world.settings, now=NOW)
    [copy] = told(corpus("list", "--json"))["copies"]
    assert copy["state"] == "remove" and "retired" in copy["why"] and copy["do"] in corpus("list")
    with pytest.raises(NotExportable, match="retired"):
        corpus("push", "out", "--send", "--yes", *PERSON)
    # the printed command, with a person and a reason in place of the dots
    words = copy["do"].replace("--who … --why …", "").split()[2:]
    assert told(corpus(*(word for word in words if word != "--send")))["sent"] is False
    with refused("NotConfirmed", match="deletes the repository"):
        corpus(*words, *PERSON)
    assert ("dataset", REPO) in hub.repos
    assert told(corpus(*words, "--yes", *PERSON))["sent"] is True
    assert hub.repos == {} and corpus("list") == "The journal has no copies on the Hub.\n"
    with refused("NotPushed"):
        corpus(*words, "--yes", *PERSON)


@pytest.mark.faults
def test_a_model_to_the_hub_until_it_is_withdrawn(
    small: Path, hub: HubServer, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CORPUS_SECRET": small_registry.SECRET.hex(),
        "CORPUS_REPO": str(tmp_path / "corpus.git"),
        "CORPUS_HUB_URL": hub.url,
        "CORPUS_HUB_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(name, value)
    made = packs.made("encoder")
    with small_registry.opened(small) as context:
        put(packs.NAME, made.saved, context=context, who="tester", why="a test")
    code = checkout(tmp_path / "code")
    repository.init(Settings.from_env(), checkout=code, profile="sandbox")
    found = told(corpus("model", packs.NAME, "1", "--repo", "my-lab/crisis-posts", "--to", "out"))
    assert (found["kind"], found["champion"], found["passed"]) == ("encoder", False, None)
    corpus("push", "out", "--send", "--yes", *PERSON)
    weights = hub.repos["model", "my-lab/crisis-posts"].files["model.safetensors"]
    assert weights == (made.pack / "model.safetensors").read_bytes()
    assert "model crisis-posts 1, current" in corpus("list")
    corpus(packs.NAME, "1", *PERSON, group="withdraw")
    assert "corpus export remove my-lab/crisis-posts --kind model --send" in corpus("list")
    with pytest.raises(NotExportable, match="withdrawn"):
        corpus("push", "out")
    [copy] = told(corpus("run-pending", group="takedown"))["hub"]
    assert (copy["repo"], copy["state"]) == ("my-lab/crisis-posts", "remove")
    corpus("remove", "my-lab/crisis-posts", "--kind", "model", "--send", "--yes", *PERSON)
    assert hub.repos == {}
