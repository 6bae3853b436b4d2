"""Upgrades keep the results of stages whose revision is unchanged, and rerun everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.workspace import publish, repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.small_corpus import SHELL, begin, code_of, staged
from tests.stages import reproduce, rerun

ROOT = Path(__file__).resolve().parents[2]
OLD = """
stages:
  quality:
    matrix: {corpus: [memes]}
    cmd: >-
      mkdir -p metrics/memes && cat code.txt > snapshot/counted.txt && echo '{}' > metrics/memes/quality.json
    deps: [pipelines/old, crisis_corpus, schemes, code.txt]
    params: [{pipelines/stages.yaml: [revisions.quality]}, quality, "sample.memes", "corpora.memes.scheme"]
    outs: [snapshot/counted.txt]
    metrics: ["metrics/memes/quality.json": {cache: false}]
  gold:
    matrix: {corpus: [memes]}
    cmd: cat metrics/memes/quality.json snapshot/counted.txt > snapshot/gold.txt
    deps: [pipelines/old, metrics/memes/quality.json, snapshot/counted.txt]
    params: [{pipelines/stages.yaml: [revisions.gold]}, "gold.memes", {pipelines/libraries.yaml: [numpy]}]
    outs: [snapshot/gold.txt]
"""
NEW = OLD.replace("pipelines/old", "pipelines/new")
VERSIONS = "numpy: 2.2.6\ntorch: 2.13.0\n"
REVISIONS = "revisions: {gold: 1, quality: 1}\n"
PARAMS = (ROOT / "params.yaml").read_text()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout of a corpus whose two stages were run."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    files = SHELL | {
        "params.yaml": PARAMS,
        "catalogue.yaml": (ROOT / "catalogue.yaml").read_text(),
        "profiles/sandbox.yaml": "{}\n",
        "dvc.yaml": staged(OLD),
        "code.txt": "one\n",
        "pipelines/libraries.yaml": VERSIONS,
        "pipelines/stages.yaml": REVISIONS,
        "pipelines/old/module.py": "x = 1\n",
        "crisis_corpus/module.py": "x = 1\n",
        "schemes/figsim.yaml": "of the corpus\n",
        "snapshot/.gitignore": "*\n!.gitignore\n",
    }
    folder = code_of(tmp_path / "code", files)
    settings = Settings.from_env()
    begin(settings, code=folder)
    with workspace(settings) as clone:
        reproduce(clone)
        clone.commit("snapshot(memes): gold@memes")
    return folder


def upgraded(code: Path, **changes: str) -> Any:
    """Move and change code, add a scheme, apply ``changes``, and upgrade."""
    given = {"params": PARAMS, "graph": staged(NEW), "text": "one\n"} | changes
    git("mv", "pipelines/old", "pipelines/new", cwd=code)
    given = {"own": "of the corpus\n", "versions": VERSIONS, "revisions": REVISIONS} | given
    files = {"params.yaml": "params", "dvc.yaml": "graph", "code.txt": "text", "schemes/figsim.yaml": "own"}
    files |= {"pipelines/libraries.yaml": "versions", "pipelines/stages.yaml": "revisions"}
    for name in ("pipelines/new/module.py", "crisis_corpus/module.py", "schemes/other.yaml"):
        (code / name).write_text("y = 1\n")
    for name, key in files.items():
        (code / name).write_text(given[key])
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "newer", cwd=code)
    return repository.upgrade(Settings.from_env(), checkout=code)


def test_a_moved_module_runs_nothing(code: Path) -> None:
    settings = Settings.from_env()
    found = upgraded(code)
    assert (found.kept, found.to_run) == (("gold@memes", "quality@memes"), ())
    with workspace(settings) as clone:
        assert (clone.path / "metrics/memes/quality.json").is_file()
        before = (clone.path / "dvc.lock").read_bytes()
        assert rerun(clone) == []
        assert (clone.path / "dvc.lock").read_bytes() == before
    assert "Kept the results of 2 stages; 0 have to run again." in git(
        "--git-dir", settings.repo, "log", "-1", "--format=%B", publish.head(settings)
    )


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"revisions": REVISIONS.replace("quality: 1", "quality: 2")}, "quality@memes"),
        ({"params": PARAMS.replace("quality: {truth: false}", "quality: {truth: true} ")}, "quality@memes"),
        ({"params": PARAMS.replace("size: 1050", "size: 900")}, "quality@memes"),
        ({"revisions": REVISIONS.replace("gold: 1", "gold: 2")}, "gold@memes"),
        ({"text": "two\n"}, "quality@memes"),
        ({"own": "changed\n"}, "quality@memes"),
        ({"versions": VERSIONS.replace("2.2.6", "2.3.0")}, "gold@memes"),
    ],
    ids=["revision", "section", "value", "revision below", "input in git", "scheme of the corpus", "library"],
)
def test_a_difference_runs_the_stage_again(code: Path, changes: dict[str, str], stale: str) -> None:
    assert upgraded(code, **changes).to_run == (stale,)
    with workspace(Settings.from_env()) as clone:
        assert rerun(clone)[0] == stale


def test_a_result_that_was_outdated_before_stays_outdated(code: Path) -> None:
    settings = Settings.from_env()
    with workspace(settings) as clone:
        (clone.path / "code.txt").write_text("committed, and never run\n")
        clone.commit("edit")
    assert "quality@memes" in upgraded(code).to_run


def test_a_library_that_a_stage_names_for_the_first_time_runs_nothing(code: Path) -> None:
    old = "params: [{pipelines/stages"
    named = NEW.replace(old, old.replace("[", "[{pipelines/libraries.yaml: [torch]}, ", 1), 1)
    assert upgraded(code, graph=staged(named), versions=VERSIONS.replace("2.13.0", "3.0.0")).to_run == ()
