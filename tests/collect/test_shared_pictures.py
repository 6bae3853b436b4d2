"""Pictures that many authors posted are reported by digests and counts, over one month and over all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.collect.partition import shared_pictures, shared_pictures_of
from pipelines.core.config.params import texts_below
from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]


def test_authors_are_counted_once_and_the_rest_stays_unnamed() -> None:
    rows = [(f"{author}{n}", author, "a" * 64) for n, author in enumerate("uvwxy")]
    rows += [(f"one{n}", "one", "b" * 64) for n in range(9)] + [("z0", "z", "c" * 64), ("u9", "u", "a" * 64)]
    items = pa.table({"record_id": [r[0] for r in rows] + ["gone"], "sha256": [r[2] for r in rows] + ["a" * 64]})
    posts = pa.table({"record_id": [r[0] for r in rows], "author_id": [r[1] for r in rows]})
    assert shared_pictures(items, posts=posts, by=5) == [{"sha256": "a" * 64, "authors": 5, "posts": 6}]
    assert [found["authors"] for found in shared_pictures(items, posts=posts, by=2)] == [5]
    assert shared_pictures(items.slice(0, 0), posts=posts, by=2) == []


def test_the_command_lists_those_of_all_months(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    files = small_corpus.BASIC | texts_below(ROOT)
    small_corpus.begin(settings, code=small_corpus.code_of(tmp_path / "code", files))
    assert shared_pictures_of(settings, corpus="memes") == []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault, workspace(settings) as clone:
        for month, authors in (("2022-11", "abc"), ("2022-12", "cde")):
            names = {vault.record_id(f"t3_{month[-2:]}{a}"): (f"t3_{month[-2:]}{a}", a) for a in authors}
            small_corpus.admit(vault, {r: name for r, (name, _) in names.items()}, corpus="memes", month=month)
            posts = [
                {"record_id": r, "author_id": a, "title": "t", "body": "", "media": "[]", "kind": "image",
                 "created": datetime(2022, int(month[-2:]), 1, tzinfo=UTC), "subreddit": "SuicideMeme"}
                for r, (_, a) in names.items()
            ]  # fmt: skip
            image = {"image": 0, "sha256": "a" * 64, "bytes": b"x", "text": "", "words": 0}
            images = [image | {"record_id": r} for r in names]
            paths = [small_corpus.write_posts(clone.path, posts, corpus="memes", month=month, vault=vault)]
            paths += small_corpus.write_images(clone.path, [images], corpus="memes", month=month, vault=vault)
            clone.add(paths)
        clone.commit("data(memes): two months", paths=["data"])
    result = CliRunner().invoke(app, ["shared-pictures", "memes"])
    assert json.loads(result.stdout) == [{"sha256": "a" * 64, "authors": 5, "posts": 6}]
    with refused("UnknownName", match="memes"):
        shared_pictures_of(settings, corpus="posts")
