"""Published corpora for notebooks, of texts and of pictures: months, split, gold, answers of a model and a champion.

The corpus of texts has silver and votes, too.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import texts_below
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import task_of
from pipelines.registry.batch_predict import Pin
from pipelines.store.metrics_file import write_metrics
from pipelines.store.seal import write_rows
from pipelines.workspace.clone import Workspace, workspace
from tests import small_corpus
from tests.built_once import built_once
from tests.train import small_memes, small_posts

CORPUS, PICTURES, MODEL = "posts", "memes", "gpt"
SIZES = {"train": 40, "dev": 24, "test": 24}
MEMES = {"train": 8, "validation": 12, "test": 8}


@dataclass(frozen=True)
class Published:
    """A home with a corpus repository; ``posts`` has what went in, by record id."""

    settings: Settings
    posts: Mapping[str, Any]

    def of(self, split: str) -> list[str]:
        return sorted(r for r, post in self.posts.items() if post.split == split)


def published(home: Path, corpus: str = CORPUS) -> Published:
    """Give a copy of the corpus, for a test to do with as it likes."""
    made = built_once(f"notebook-{corpus}", {CORPUS: _texts, PICTURES: _pictures}[corpus])
    shutil.copytree(made / "home", home)
    return Published(settings_of(home), pickle.loads((made / "posts.pickle").read_bytes()))


def settings_of(home: Path) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        return Settings.from_env()


@contextmanager
def _publishing(home: Path) -> Iterator[Workspace]:
    """Give the clone of a new corpus repository, and publish what it has at the end."""
    settings = settings_of(home)
    code = small_corpus.code_of(home / "code", small_corpus.BASIC | texts_below(small_corpus.ROOT))
    small_corpus.begin(settings, code=code)
    shutil.rmtree(code)
    with workspace(settings) as clone:
        yield clone
        publish(clone)


def _texts(place: Path) -> None:
    original = small_posts.made(SIZES)
    (place / "home").mkdir()
    shutil.copy(original.root / "vault.sqlite", place / "home")
    with _publishing(place / "home") as clone, small_posts.opened(place / "home") as vault:
        for part in ("data", "snapshot"):
            shutil.copytree(original.root / part, clone.path / part, dirs_exist_ok=True)
        for path in sorted((clone.path / "data" / CORPUS).glob("*/records.parquet")):
            ids = sorted(r for n, r in enumerate(original.posts) if path.parent.name == small_corpus.MONTHS[n % 2])
            rows = [small_corpus.full("texts", record_id=r, words=len(original.posts[r].body.split())) for r in ids]
            write_rows(rows, path.parent / "texts" / "000.parquet", name="texts", vault=vault)
        truth = {r: (post.split, sorted(post.labels)) for r, post in sorted(original.posts.items())}
        _predictions(clone.path, CORPUS, truth, task="labels", name="crisis-posts", wrong="no_crisis")
    (place / "posts.pickle").write_bytes(pickle.dumps(dict(original.posts)))


def _pictures(place: Path) -> None:
    with small_posts.opened(place / "home") as vault, _publishing(place / "home") as clone:
        memes = small_memes.write(clone.path, vault=vault, sizes=MEMES).memes
        for number, month in enumerate(small_corpus.MONTHS):
            about = {"created": small_corpus.NOW, "subreddit": "memes"}
            rows = [{"record_id": r} | about for r, _ in [*memes][number :: len(small_corpus.MONTHS)]]
            small_corpus.write_posts(clone.path, rows, corpus=PICTURES, month=month, vault=vault)
        seen = task_of(load_scheme("figsim"), "severity").seen
        truth = {r: (meme.split, sorted(seen(meme.labels["severity"]))) for (r, _), meme in sorted(memes.items())}
        _predictions(clone.path, PICTURES, truth, task="severity", name="meme-severity", wrong="None")
    (place / "posts.pickle").write_bytes(pickle.dumps({record_id: meme for (record_id, _), meme in memes.items()}))


def _predictions(
    root: Path, corpus: str, truth: Mapping[str, tuple[str, list[str]]], *, task: str, name: str, wrong: str
) -> None:
    """Let a champion say what is true, and a model the same of three items in four, but nothing of train."""
    said = [{"record_id": r, "task": task, "outcome": "vote", "labels": labels} for r, (_, labels) in truth.items()]
    asked = [row | {"split": split} for row in said if (split := truth[row["record_id"]][0]) != "train"]
    model = [row | {"model": MODEL, "seed": 0} for row in asked]
    rows = [row if number % 4 else row | {"labels": [wrong]} for number, row in enumerate(model)]
    snapshot = root / "snapshot" / corpus
    path = snapshot / "predictions" / f"{task}-{MODEL}" / "predictions.parquet"
    small_corpus.write_table(path, rows, name="predictions")
    pin = Pin(name=name, version=1, files="0" * 64)
    write_metrics(pin.model_dump(mode="json"), root / "models" / corpus / f"{name}.json")
    stored = [row | {"model": pin.model} for row in said]
    small_corpus.write_table(snapshot / "scoring" / f"{name}.parquet", stored, name="predictions")


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
