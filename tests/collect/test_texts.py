"""Posts from the dump to the month's tables: what stays out has its reason, what comes in is what the truth keeps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from pipelines.annotate import gold
from pipelines.collect import collect, partition, texts
from pipelines.collect.month import Window
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.curate import quality, sample, split
from pipelines.curate.dedupe import dedupe
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import small_sandbox
from tests.contexts import context_of
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
MONTHS = ("2022-11", "2022-12")
NOW = datetime(2023, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Posts:
    """The steps of posts, as the Dags' tasks run them."""

    params: Params
    settings: Settings
    vault: Vault

    def run(self, step: Any, root: Path, **given: Any) -> dict[str, Any]:
        if hasattr(step, "STAGE"):
            places = {"settings": self.settings, "vault": self.vault, "root": root}
            return step.run(context_of("posts", params=self.params, **places))
        if "settings" in signature(step.run).parameters:
            given["settings"] = self.settings
        return step.run("posts", params=self.params, vault=self.vault, root=root, **given)

    def month(self, key: str, root: Path, *, first: int = 0, count: int = 99) -> Window:
        """Collect a month, and check the posts of so many shards."""
        window = Window.from_key(key)
        shards = self.run(collect, root, window=window, now=NOW)["shards"]
        for shard in range(shards)[first : first + count]:
            self.run(texts, root, window=window, shard=shard)
        return window


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Posts]:
    values = load(ROOT, profile="sandbox")
    changed = {"split": {**values.split, "posts": values.split["posts"].model_copy(update={"proposals": 20_000})}}
    changed["collect"] = values.collect.model_copy(update={"shard_size": 70})
    root = tmp_path_factory.mktemp("posts")
    (root / "sandbox").symlink_to(small_sandbox.folder(small_sandbox.MORE_POSTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(root))
        settings = Settings.from_env()
        with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
            yield Posts(values.model_copy(update=changed), settings, vault)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, posts: Posts) -> Path:
    """Both months, collected."""
    root = tmp_path_factory.mktemp("clone")
    for month in MONTHS:
        posts.run(partition, root, window=posts.month(month, root))
    return root


def test_every_post_is_kept_or_dropped_for_the_reason_of_the_truth(collected: Path, posts: Posts) -> None:
    truth = json.loads((posts.settings.sandbox / "truth_texts.json").read_text())
    files = sorted((collected / "data" / "posts").glob("*/texts/*.parquet"))
    kept = set(tables.concat(files, name="texts")["record_id"].to_pylist())
    drops = tables.concat(list((collected / "data" / "posts").glob("*/drops.parquet")), name="drops").to_pylist()
    reasons = {d["record_id"]: d["reason"] for d in drops}
    wrong = Counter()
    for post in truth["submissions"]:
        record_id = posts.vault.record_id(post["fullname"])
        found = "kept" if record_id in kept else reasons.get(record_id, "absent")
        if found != post["expected"]:
            wrong[post["expected"], found] += 1
    assert not wrong
    seen = {"too_short", "too_long", "not_english", "no_text", "not_text", "deleted", "removed"}
    assert seen <= set(reasons.values())


def test_a_shard_has_the_same_bytes(collected: Path, tmp_path: Path, posts: Posts) -> None:
    posts.month(MONTHS[0], tmp_path, count=1)
    path = f"data/posts/{MONTHS[0]}/texts/000.parquet"
    assert (tmp_path / path).read_bytes() == (collected / path).read_bytes()


def test_a_month_without_a_shard_is_refused(tmp_path: Path, posts: Posts) -> None:
    window = posts.month(MONTHS[0], tmp_path, first=1)
    with refused("ShardMissing", match=f" {posts.params.collect.shard_size} posts were neither kept"):
        posts.run(partition, tmp_path, window=window)
    assert not list((tmp_path / "data").rglob("records.parquet"))


def test_the_snapshot_finds_the_copies_and_splits_without_a_leak(collected: Path, posts: Posts) -> None:
    _, _, _, report, numbers = (posts.run(step, collected) for step in (dedupe, sample, gold, split, quality))
    assert report["leakage"] == 0
    assert list(report["sizes"]) == ["train", "dev", "test"]
    assert numbers["truth"]["precision"] >= 0.98
    assert numbers["truth"]["recall"] >= 0.98
    assert (numbers["truth"]["unexpected"], numbers["truth"]["missing"]) == (0, 0)
    assert "ocr" not in numbers


def test_a_takedown_leaves_the_snapshot(collected: Path, posts: Posts) -> None:
    before = posts.run(dedupe, collected)
    files = sorted((collected / "data" / "posts").glob("*/records.parquet"))
    posts.vault.destroy([tables.concat(files, name="records")["record_id"].to_pylist()[0]], reason="test", now=NOW)
    after = posts.run(dedupe, collected)
    assert (after["items"], after["taken_down"]) == (before["items"] - 1, before["taken_down"] + 1)
