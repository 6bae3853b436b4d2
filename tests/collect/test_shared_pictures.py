"""Pictures that many authors posted are reported by digests and counts, over one month and over all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.collect.partition import shared_pictures_of
from pipelines.core.config.params import texts_below
from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]


def test_the_command_lists_those_of_all_months(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    files = small_corpus.BASIC | texts_below(ROOT)
    small_corpus.begin(settings, code=small_corpus.code_of(tmp_path / "code", files))
    assert shared_pictures_of(settings, corpus="memes") == []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault, workspace(settings) as clone:
        for month, authors in (("2022-11", "abczzz"), ("2022-12", "cdezzz")):
            shown = {f"t3_{month[-2:]}{n}": author for n, author in enumerate(authors)}
            names = {vault.record_id(name): (name, author) for name, author in shown.items()}
            small_corpus.admit(vault, {r: name for r, (name, _) in names.items()}, corpus="memes", month=month)
            posts = [
                {"record_id": r, "author_id": a, "title": "t", "body": "", "media": "[]", "kind": "image",
                 "created": datetime(2022, int(month[-2:]), 1, tzinfo=UTC), "subreddit": "SuicideMeme"}
                for r, (_, a) in names.items()
            ]  # fmt: skip
            image = {"image": 0, "bytes": b"x", "text": "", "words": 0}
            # one author has posted another picture as often
            images = [image | {"record_id": r, "sha256": "ba"[a != "z"] * 64} for r, (_, a) in names.items()]
            paths = [small_corpus.write_posts(clone.path, posts, corpus="memes", month=month, vault=vault)]
            paths += small_corpus.write_images(clone.path, [images], corpus="memes", month=month, vault=vault)
            clone.add(paths)
        clone.commit("data(memes): two months", paths=["data"])
    result = CliRunner().invoke(app, ["shared-pictures", "memes"])
    assert json.loads(result.stdout) == [{"sha256": "a" * 64, "authors": 5, "records": 6}]
    with refused("UnknownName", match="memes"):
        shared_pictures_of(settings, corpus="posts")
