"""Posts from the dump to the month's tables: what stays out has its reason, what comes in is what the truth keeps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
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
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
MONTHS = ("2022-11", "2022-12")
NOW = datetime(2023, 1, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def params() -> Params:
    values = load(ROOT, profile="sandbox")
    section = values.split["posts"].model_copy(update={"proposals": 20_000})
    return values.model_copy(
        update={
            "collect": values.collect.model_copy(update={"shard_size": 70}),
            "split": {**values.split, "posts": section},
        }
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    root = tmp_path_factory.mktemp("posts")
    (root / "sandbox").symlink_to(small_sandbox.folder(small_sandbox.MORE_POSTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(root))
        yield Settings.from_env()


@pytest.fixture(scope="module")
def vault(settings: Settings) -> Iterator[Vault]:
    with Vault.open(settings.vault_url, secret=settings.secret()) as opened:
        yield opened


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, params: Params, settings: Settings, vault: Vault) -> Path:
    """Both months of posts, collected as the Dag's tasks do it."""
    root = tmp_path_factory.mktemp("clone")
    for month in MONTHS:
        window = Window.from_key(month)
        done = collect.run("posts", window=window, params=params, settings=settings, vault=vault, now=NOW, root=root)
        for shard in range(done["shards"]):
            texts.run("posts", window=window, shard=shard, params=params, vault=vault, root=root)
        partition.run("posts", window=window, params=params, vault=vault, root=root)
    return root


@pytest.fixture(scope="module")
def truth(settings: Settings) -> dict[str, Any]:
    return json.loads((settings.sandbox / "truth_posts.json").read_text())


def test_every_post_is_kept_or_dropped_for_the_reason_that_the_truth_names(
    collected: Path, truth: dict[str, Any], vault: Vault
) -> None:
    files = sorted((collected / "data" / "posts").glob("*/texts/*.parquet"))
    kept = set(tables.concat(files, name="texts")["record_id"].to_pylist())
    drops = tables.concat(list((collected / "data" / "posts").glob("*/drops.parquet")), name="drops").to_pylist()
    reasons = {d["record_id"]: d["reason"] for d in drops}
    wrong = Counter()
    for post in truth["posts"]:
        record_id = vault.record_id(post["fullname"])
        found = "kept" if record_id in kept else reasons.get(record_id, "absent")
        if found != post["expected"]:
            wrong[post["expected"], found] += 1
    assert not wrong
    seen = {"too_short", "too_long", "not_english", "no_text", "not_text", "deleted", "removed"}
    assert seen <= set(reasons.values())


def test_a_shard_has_the_same_bytes(
    collected: Path, tmp_path: Path, params: Params, settings: Settings, vault: Vault
) -> None:
    window = Window.from_key(MONTHS[0])
    collect.run("posts", window=window, params=params, settings=settings, vault=vault, now=NOW, root=tmp_path)
    texts.run("posts", window=window, shard=0, params=params, vault=vault, root=tmp_path)
    path = f"data/posts/{MONTHS[0]}/texts/000.parquet"
    assert (tmp_path / path).read_bytes() == (collected / path).read_bytes()


def test_a_month_without_a_shard_is_refused(tmp_path: Path, params: Params, settings: Settings, vault: Vault) -> None:
    window = Window.from_key(MONTHS[0])
    done = collect.run("posts", window=window, params=params, settings=settings, vault=vault, now=NOW, root=tmp_path)
    for shard in range(1, done["shards"]):
        texts.run("posts", window=window, shard=shard, params=params, vault=vault, root=tmp_path)
    with refused("ShardMissing", match=f" {params.collect.shard_size} posts were neither kept"):
        partition.run("posts", window=window, params=params, vault=vault, root=tmp_path)
    assert not list((tmp_path / "data").rglob("posts.parquet"))


def test_the_snapshot_finds_the_copies_and_splits_without_a_leak(
    collected: Path, params: Params, settings: Settings, vault: Vault
) -> None:
    dedupe.run("posts", params=params, vault=vault, root=collected)
    sample.run("posts", params=params, vault=vault, root=collected)
    gold.run("posts", params=params, settings=settings, vault=vault, root=collected)
    report = split.run("posts", params=params, vault=vault, root=collected)
    numbers = quality.run("posts", params=params, settings=settings, vault=vault, root=collected)
    assert report["leakage"] == 0
    assert list(report["sizes"]) == ["train", "dev", "test"]
    assert numbers["truth"]["precision"] >= 0.98
    assert numbers["truth"]["recall"] >= 0.98
    assert (numbers["truth"]["unexpected"], numbers["truth"]["missing"]) == (0, 0)
    assert "ocr" not in numbers


def test_a_takedown_leaves_the_snapshot(collected: Path, params: Params, settings: Settings, tmp_path: Path) -> None:
    before = dedupe_counts(collected, params=params, settings=settings)
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        files = sorted((collected / "data" / "posts").glob("*/posts.parquet"))
        record_id = tables.concat(files, name="posts")["record_id"].to_pylist()[0]
        vault.destroy([record_id], reason="test", now=NOW)
    after = dedupe_counts(collected, params=params, settings=settings)
    assert (after["items"], after["taken_down"]) == (before["items"] - 1, before["taken_down"] + 1)


def dedupe_counts(root: Path, *, params: Params, settings: Settings) -> dict[str, Any]:
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        return dedupe.run("posts", params=params, vault=vault, root=root)
