"""The frozen test of posts: what is sent is title and body, and the test's labels stay here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pipelines.promotion.holdout import Frozen, open_test
from tests.small_corpus import own_scheme
from tests.train import small_posts
from tests.train.small_posts import SmallPosts


def test_posts_of_the_test_are_sent_as_title_and_body(tmp_path: Path) -> None:
    made = small_posts.made()
    with small_posts.copied(made, to=tmp_path / "copy") as corpus:
        test = opened(corpus)
        assert [item[0] for item in test.board.items] == corpus.of("test")
        frames = list(test.frames())
        assert [*frames[0].columns] == ["title", "body"]
        titles = [title for frame in frames for title in frame["title"]]
        assert titles == [corpus.posts[record].title for record in corpus.of("test")]
        assert list(test.board.gold) == [corpus.posts[record].labels for record in corpus.of("test")]
        assert test.majority in {corpus.posts[record].labels for record in corpus.of("dev")}
        assert not any(title in repr(test) for title in titles)
        gone = corpus.of("test")[0]
        corpus.vault.destroy([gone], reason="test", now=datetime(2023, 2, 1, tzinfo=UTC))
        after = opened(corpus)
    assert len(after.board.items) == len(test.board.items) - 1 and after.taken_down == 1
    assert after.digest != test.digest and after.split == test.split


def test_a_team_s_scheme_is_read_from_the_clone(tmp_path: Path) -> None:
    with small_posts.copied(small_posts.made(), to=tmp_path / "copy") as corpus:
        before, scheme = opened(corpus), own_scheme(corpus.root, like="cradle")
        posts = corpus.params.corpora["posts"].model_copy(update={"scheme": scheme})
        params = corpus.params.model_copy(update={"corpora": {**corpus.params.corpora, "posts": posts}})
        test = open_test("posts", category="labels", params=params, vault=corpus.vault, root=corpus.root)
    assert test.digest == before.digest


def opened(corpus: SmallPosts) -> Frozen:
    return open_test("posts", category="labels", params=corpus.params, vault=corpus.vault, root=corpus.root)
