"""`corpus import FILE` proposes a mapping, takes the edited one, and says how many items have a picture."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from pipelines.annotate.imports.propose import EDIT
from pipelines.cli.main import app
from pipelines.core.config.settings import Settings
from pipelines.workspace import repository
from pipelines.workspace.git import git
from tests.annotate import further_layouts as layouts
from tests.annotate.further_layouts import ITEMS, MOODS, TOPICS
from tests.annotate.test_further_layouts import BOTH, LAYOUTS, MOOD, SPLITS, scheme_of
from tests.commands import answered, output
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
CODE = ("params.yaml", "catalogue.yaml", "rows.yaml", "dvc.yaml", ".dvc/config", ".dvc/.gitignore", "data/.gitignore")
CODE += ("pipelines/stages.yaml", "pipelines/libraries.yaml")
REGISTERED = ("crisis-posts", "meme-severity", "meme-figurative", "meme-related")
MOODS_ALONE = {
    **{"content": "texts", "scheme": "mood", "subreddits": ["lonely"], "source": "dump"},
    **{"first_month": "2018-01", "last_month": "2018-02"},
}
NO_SANDBOX = {"sandbox": "accepted_without"}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose corpora have label schemes of the team's own, with a home beside it."""
    folder = tmp_path_factory.mktemp("made") / "code"
    folder.mkdir()
    for name in CODE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "annotations").mkdir()
    (folder / "annotations/.gitignore").write_text("*.csv\n")
    for name, categories in {"both": BOTH, "mood": MOOD}.items():
        (folder / "schemes").mkdir(exist_ok=True)
        text = folder / "schemes" / f"{name}.yaml"
        text.write_text(scheme_text(categories, name=name, folder=folder))
    profile = {
        "corpora": {"posts": {"scheme": "both"}, "memes": {"scheme": "mood"}, "moods": MOODS_ALONE},
        "images": {"decode": NO_SANDBOX, "ocr": NO_SANDBOX},
        "registry": {name: {"task": "mood", "candidates": []} for name in REGISTERED},
    }
    (folder / "profiles").mkdir()
    (folder / "profiles/own.yaml").write_text(yaml.safe_dump(profile))
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "code", cwd=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(folder.parent / "var"))
        repository.init(Settings.from_env(), checkout=folder, profile="own")
    return folder


def scheme_text(categories: Any, *, name: str, folder: Path) -> str:
    scheme_of(categories, folder)
    (path := folder / "small.yaml").rename(folder.parent / "small.yaml")
    return (folder.parent / path.name).read_text().replace("name: small\n", f"name: {name}\n")


@pytest.fixture(autouse=True)
def here(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of one's own, and a folder to work in."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    shutil.copytree(code.parent / "var", tmp_path / "var")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(code)
    return tmp_path


def proposed(corpus: str, *files: Path, at: Path) -> Path:
    """Ask for a proposal, edit what says EDIT, and return its file."""
    argv = ["import", corpus, *map(str, files), "--mapping", str(at)]
    with refused("NoMapping", match=rf"Edit {at} where it says EDIT, then `corpus import {corpus}"):
        CliRunner().invoke(app, argv, catch_exceptions=False)
    lines = at.read_text().splitlines()
    assert any("EDIT" in line for line in lines) and EDIT not in at.read_text()
    made = yaml.safe_load(at.read_text())
    made |= {"title": "A set", "source": "made here", "rights": "ours"}
    at.write_text(yaml.safe_dump(made))
    return at


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mapping_is_proposed_edited_and_imported(layout: str, here: Path) -> None:
    getattr(layouts, layout)(here / "data")
    files, corpus = sorted((here / "data").iterdir()), "posts" if LAYOUTS[layout] is BOTH else "moods"
    edited = proposed(corpus, *files, at=here / "mine.yaml")
    argv = ("import", corpus, *map(str, files), "--mapping", str(edited))
    tried = answered(*argv, "--dry-run")
    assert (tried["items"], tried["bad"], tried["dry_run"]) == (12, {}, True)
    repo = Settings.from_env().repo
    before = git("--git-dir", repo, "rev-parse", "corpus")
    done = answered(*argv)
    assert (done["gold"], done["texts"]["kept"], done["changed"]) == (12, 12, True)
    assert git("--git-dir", repo, "rev-parse", "corpus^") == before
    assert done["splits"] == (sum(SPLITS[layout]) if layout in SPLITS else 0)
    found = [part["labels"] for part in done["parts"].values()]
    assert {mood: sum(part["mood"].get(mood, 0) for part in found) for mood in MOODS} == dict.fromkeys(MOODS, 4)
    if corpus == "posts":
        assert {topic: sum(part["topic"].get(topic, 0) for part in found) for topic in TOPICS} == {
            "garden": 8,
            "kitchen": 4,
        }
    assert answered(*argv)["changed"] is False, "once more changes nothing"


def test_a_proposal_that_is_edited_is_not_overwritten(here: Path) -> None:
    layouts.one_hot(here / "data")
    edited = here / "mapping.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for text in (None, "mine: yes\n"):
            if text is not None:
                edited.write_text(text)
            with refused("NoMapping", match="Edit mapping.yaml"):
                CliRunner().invoke(app, ["import", "posts", str(here / "data/labels.csv")], catch_exceptions=False)
    assert edited.read_text() == "mine: yes\n"


def test_pictures_come_by_their_folder_and_those_that_have_none_are_counted(here: Path) -> None:
    lines = [f"{key},{key}.png,{mood}" for key, _, mood, _ in ITEMS[:4]]
    (here / "labels.csv").write_text("\n".join(["id,image,mood", *lines]) + "\n")
    edited = proposed("memes", here / "labels.csv", at=here / "mine.yaml")
    argv = ("import", "memes", str(here / "labels.csv"), "--mapping", str(edited))
    with refused("BadImport", match="0 of 4 items have a picture: .* pass --pictures FOLDER"):
        CliRunner().invoke(app, argv, catch_exceptions=False)
    for n, (key, *_) in enumerate(ITEMS[:3]):
        Image.effect_noise((200, 160), 40 + 9 * n).convert("RGB").save(here / "data" / f"{key}.png")
    said = output(*argv, "--pictures", str(here / "data"))
    assert "3 of 4 items have a picture." in said and '"no_picture_file": 1' in said
    step = re.search("Next: corpus (params set .* --reason) TEXT makes them gold", said)
    assert step, said
    output(*step[1].split(), "a test")
    assert "Next: corpus run memes --months none goes on with them." in output(*argv, "--pictures", str(here / "data"))


def test_labels_whose_pictures_are_not_collected_say_so(here: Path) -> None:
    lines = [f"https://www.reddit.com/r/a/comments/zz{n:04d}/t/,{mood}" for n, (_, _, mood, _) in enumerate(ITEMS)]
    (here / "labels.csv").write_text("\n".join(["url,mood", *lines]) + "\n")
    edited = proposed("memes", here / "labels.csv", at=here / "mine.yaml")
    said = output("import", "memes", str(here / "labels.csv"), "--mapping", str(edited))
    assert "0 of 12 items have a picture; 0 match posts of the corpus, 12 are of other posts." in said
    assert "The labels wait for their posts" in said
