"""What a published corpus says of its records, read in a clone of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.params import Settings
from pipelines.privacy.partitions import published
from pipelines.store import publish
from pipelines.store.git import git
from pipelines.store.workspace import workspace
from tests.privacy.partition import write_posts


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A corpus repository with nothing in it."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings, code = Settings.from_env(), tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "data/.gitignore").write_text("*.parquet\n")
    git("init", "--quiet", "-b", "corpus", cwd=code)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=code, check=True)
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "code", cwd=code)
    git("clone", "--quiet", "--bare", str(code), settings.repo)
    git("--git-dir", settings.repo, "branch", "code", "corpus")
    Path(settings.remote).mkdir(parents=True)
    return settings


def test_a_column_is_read_from_every_month_of_the_tip(settings: Settings) -> None:
    assert published(settings, corpus="memes", column="subreddit") == {}
    for month, record, subreddit in (("2022-11", "a" * 32, "SuicideMeme"), ("2022-12", "b" * 32, "lonely")):
        with workspace(settings) as clone:
            path = clone.path / f"data/memes/{month}/posts.parquet"
            write_posts(path, rows={record: {"subreddit": subreddit}})
            pointers = clone.add([path])
        publish.publish_partition(settings, corpus="memes", month=month, pointers=pointers, leave_out=lambda *_: 0)
    assert published(settings, corpus="memes", column="subreddit") == {"a" * 32: "SuicideMeme", "b" * 32: "lonely"}
    assert published(settings, corpus="posts", column="source") == {}
    assert not list((settings.home / "scratch").iterdir())
