"""Each split's posts: silver or gold of train, gold of dev without the prompt's examples, test without its labels."""

from __future__ import annotations

import pytest

from pipelines.core.errors import BadParams
from pipelines.datasets.example import NoGold
from pipelines.store import tables
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts


def agreement(posts: SmallPosts, *wanted: str) -> list[str]:
    path = posts.snapshot / "silver/cradle/silver.parquet"
    rows = tables.read(path, name="silver").to_pylist()
    return [r["record_id"] for r in rows if r["agreement"] in wanted and r["record_id"] in posts.of("train")]


def ids(examples: object) -> list[str]:
    return [example.item[0] for example in examples]  # type: ignore[attr-defined]


def test_every_example_has_its_own_words_and_labels(posts: SmallPosts) -> None:
    material = posts.load("consensus")
    assert ids(material.train) == sorted(agreement(posts, "unanimous", "consensus"))
    assert ids(material.validation) == posts.of("dev")[1:] and ids(material.test) == posts.of("test")
    assert material.examples == 1
    for example in (*material.train, *material.validation, *material.test):
        truth = posts.posts[example.item[0]]
        assert example.text.startswith("Title: ") and truth.body.strip()[:20] in example.text
        assert example.item[1] == 0 and example.image is None
        assert example.labels == (None if example.split == "test" else truth.labels)
        assert material.named(example.split) == truth.split
        assert material.posts[example.item].body == truth.body
    assert material.without == {"train": 24 - len(material.train), "validation": 0, "test": 0}
    assert material.asked == (*material.validation, *material.test)


def test_what_only_the_fallback_decided_is_no_consensus(posts: SmallPosts) -> None:
    path = posts.snapshot / "silver/cradle/silver.parquet"
    rows = tables.read(path, name="silver").to_pylist()
    small.write_table(path, [row | {"labels": ["rape_past"], "agreement": "none"} for row in rows], name="silver")
    for subset in ("unanimous", "consensus"):
        assert posts.load(subset).train == () and posts.load(subset).without["train"] == 24


def test_gold_of_another_category_is_another_answer(posts: SmallPosts) -> None:
    path = posts.snapshot / "gold/gold.parquet"
    rows = tables.read(path, name="gold").to_pylist()
    more = [row | {"category": "place", "labels": ["rape_past"]} for row in rows]
    before = posts.load()
    small.write_table(path, rows + more, name="gold")
    assert posts.load() == before


def test_gold_of_train_is_learnt_from_only_when_it_is_asked_for(posts: SmallPosts) -> None:
    assert posts.load("gold").train == ()
    small.write_gold(posts, {r: frozenset({"rape_past"}) for r in posts.posts})
    material = posts.load("gold")
    assert ids(material.train) == posts.of("train")
    assert {e.labels for e in material.train} == {frozenset({"rape_past"})}
    (posts.snapshot / "silver/cradle/silver.parquet").unlink()
    assert posts.load("gold", ensemble=None).train == material.train
    with refused("NoSilver", match="silver@posts-cradle"):
        posts.load("consensus")


def test_gold_of_train_does_not_slip_in_under_silver(posts: SmallPosts) -> None:
    small.write_gold(posts, {r: frozenset({"rape_past"}) for r in posts.posts})
    material = posts.load("unanimous")
    assert ids(material.train) == sorted(agreement(posts, "unanimous"))
    assert all(e.labels == posts.posts[e.item[0]].labels for e in material.train)


def test_silver_of_dev_and_test_is_never_seen(posts: SmallPosts) -> None:
    small.write_gold(posts, {r: p.labels for r, p in posts.posts.items() if p.split == "dev"})
    material = posts.load("consensus")
    assert material.test == () and material.without["test"] == 12
    wrong = {r: frozenset({"rape_past"}) for r in posts.posts if posts.posts[r].split == "dev"}
    small.write_gold(posts, wrong)
    assert {e.labels for e in posts.load("consensus").validation} == {frozenset({"rape_past"})}


def test_what_is_only_asked_needs_neither_silver_nor_train(posts: SmallPosts) -> None:
    full = posts.load("consensus")
    (posts.snapshot / "silver/cradle/silver.parquet").unlink()
    material = posts.load(None)
    assert material.train == () and material.asked == full.asked


def test_an_example_of_the_prompt_that_was_taken_down_is_counted(posts: SmallPosts) -> None:
    before = posts.load()
    gone = posts.of("dev")[0]
    posts.vault.destroy([gone], reason="request-1", now=small.NOW)
    after = posts.load()
    assert ids(after.validation) == ids(before.validation) and after.examples == 0
    assert after.taken_down == {"train": 0, "validation": 1, "test": 0} and (gone, 0) not in after.posts


def test_a_corpus_may_call_its_dev_validation(posts: SmallPosts) -> None:
    path = posts.snapshot / "split/splits.parquet"
    rows = tables.read(path, name="splits").to_pylist()
    renamed = [row | {"split": "validation"} if row["split"] == "dev" else row for row in rows]
    small.write_table(path, renamed, name="splits")
    ratios = {"train": 2, "validation": 1, "test": 1}
    section = posts.params.split["posts"].model_copy(update={"ratios": ratios, "sizes": None})
    params = posts.params.model_copy(update={"split": {"posts": section}})
    material = posts.load(params=params)
    assert (
        ids(material.validation) == posts.of("dev")[1:] and material.named(material.validation[0].split) == "validation"
    )
    with pytest.raises(BadParams, match=r"split\.posts\.ratios"):
        posts.load()


def test_what_cannot_be_is_refused(posts: SmallPosts) -> None:
    with pytest.raises(BadParams, match="subset 'most'"):
        posts.load("most")
    (posts.snapshot / "gold/gold.parquet").unlink()
    (posts.snapshot / "gold").rmdir()
    with pytest.raises(NoGold):
        posts.load()
