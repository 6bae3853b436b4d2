"""Records of a published corpus, read in a separate clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from pipelines.takedown.selection import published
from pipelines.workspace import publish
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.privacy.partition import write_posts


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A corpus repository with nothing in it."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    small_corpus.begin(settings, code=small_corpus.code_of(tmp_path / "code", small_corpus.BASIC))
    Vault.create(settings).close()
    return settings


def test_a_column_is_read_from_every_month_of_the_tip(settings: Settings) -> None:
    assert published(settings, corpus="memes", column="subreddit") == {}
    for month, record, subreddit in (("2022-11", "a" * 32, "SuicideMeme"), ("2022-12", "b" * 32, "lonely")):
        with workspace(settings) as clone:
            path = clone.path / f"data/memes/{month}/records.parquet"
            write_posts(path, rows={record: {"subreddit": subreddit}})
            pointers = clone.add([path])
        publish.publish_partition(settings, corpus="memes", month=month, pointers=pointers, leave_out=lambda *_: 0)
    assert published(settings, corpus="memes", column="subreddit") == {"a" * 32: "SuicideMeme", "b" * 32: "lonely"}
    assert published(settings, corpus="posts", column="source") == {}
    assert not list((settings.home / "scratch").iterdir())
