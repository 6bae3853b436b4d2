"""A published corpus of texts for notebooks: months, split, gold, silver, votes, and the predictions of a model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.core.config.params import texts_below
from pipelines.core.config.settings import Settings
from pipelines.store.seal import write_rows
from pipelines.workspace.clone import Workspace, workspace
from tests import small_corpus
from tests.built_once import built_once
from tests.train import small_posts
from tests.train.small_posts import SmallPost

CORPUS, MODEL = "posts", "gpt"
SIZES = {"train": 40, "dev": 24, "test": 24}


@dataclass(frozen=True)
class Published:
    """A home with a corpus repository; ``posts`` has what went in, by record id."""

    settings: Settings
    posts: Mapping[str, SmallPost]

    def of(self, split: str) -> list[str]:
        return sorted(r for r, post in self.posts.items() if post.split == split)


def published(home: Path) -> Published:
    """Give a copy of the corpus, for a test to do with as it likes."""
    made = small_posts.made(SIZES)
    shutil.copytree(built_once("notebook", _make), home)
    return Published(settings_of(home), made.posts)


def settings_of(home: Path) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        return Settings.from_env()


def _make(home: Path) -> None:
    original, settings = small_posts.made(SIZES), settings_of(home)
    home.mkdir(exist_ok=True)
    shutil.copy(original.root / "vault.sqlite", home)
    code = small_corpus.code_of(home / "code", small_corpus.BASIC | texts_below(small_corpus.ROOT))
    small_corpus.begin(settings, code=code)
    shutil.rmtree(code)
    with workspace(settings) as clone, small_posts.opened(home) as vault:
        for part in ("data", "snapshot"):
            shutil.copytree(original.root / part, clone.path / part, dirs_exist_ok=True)
        for path in sorted((clone.path / "data" / CORPUS).glob("*/records.parquet")):
            ids = sorted(r for n, r in enumerate(original.posts) if path.parent.name == small_corpus.MONTHS[n % 2])
            rows = [small_corpus.full("texts", record_id=r, words=len(original.posts[r].body.split())) for r in ids]
            write_rows(rows, path.parent / "texts" / "000.parquet", name="texts", vault=vault)
        _predictions(clone.path, original.posts)
        publish(clone)


def _predictions(root: Path, posts: Mapping[str, SmallPost]) -> None:
    """Let a model say what is true of three items in four, and nothing of the others."""
    asked = [(r, post) for r, post in sorted(posts.items()) if post.split != "train"]
    rows = [
        {"record_id": r, "task": "labels", "model": MODEL, "seed": 0, "split": post.split, "outcome": "vote"}
        | {"labels": sorted(post.labels) if number % 4 else ["no_crisis"]}
        for number, (r, post) in enumerate(asked)
    ]
    path = root / "snapshot" / CORPUS / "predictions" / f"labels-{MODEL}" / "predictions.parquet"
    small_corpus.write_table(path, rows, name="predictions")


def publish(clone: Workspace) -> str:
    """Commit the tables of a clone: those of months by pointers, those of stages by the lock."""
    clone.add(sorted((clone.path / "data").rglob("*.parquet")))
    outs = []
    for path in sorted((clone.path / "snapshot").rglob("*.parquet")):
        digest, size = clone.objects.put(path), path.stat().st_size
        outs.append({"path": str(path.relative_to(clone.path)), "hash": "md5", "md5": digest, "size": size})
    clone.objects.push(out["md5"] for out in outs)
    clone.write_lock({"everything": {"cmd": "python -m pipelines everything", "outs": outs}})
    (clone.path / "snapshot" / ".gitignore").write_text("*\n!.gitignore\n")
    commit = clone.commit("a corpus")
    assert commit
    return commit
