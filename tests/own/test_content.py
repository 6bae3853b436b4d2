"""Tests of the generated dumps: what their truth promises is in the files."""

import csv
import io
import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from PIL import Image

from tests.own.content import BOARD, EVENTS, KINDS, Truth, second, texts
from tests.own.pictures import images, serving

Post = dict[str, Any]


def posts(file: Path) -> Iterator[Post]:
    """Yield the posts of a dump, without its broken line."""
    for line in zstandard.decompress(file.read_bytes()).decode().split("\n"):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth, dict[str, Post]]:
    folder = tmp_path_factory.mktemp("texts")
    truth = texts(folder, seed=11)
    return folder, truth, {post["id"]: post for file in sorted(folder.glob("*.zst")) for post in posts(file)}


def words_of(post: Post) -> set[str]:
    return set(re.findall(r"[a-z]+", f"{post['title']} {post['selftext']}".lower()))


def test_a_tenth_of_the_labels_is_wrong(dump: tuple[Path, Truth, dict[str, Post]]) -> None:
    _, truth, _ = dump
    wrong = {post for post, label in truth.labels.items() if truth.written[post] != label}
    assert wrong == truth.noisy
    assert len(wrong) == round(0.1 * len(truth.labels)) == 30


def test_no_word_decides_the_class_and_every_frequent_word_is_in_every_class(
    dump: tuple[Path, Truth, dict[str, Post]],
) -> None:
    _, truth, found = dump
    bags = {post: words_of(found[post]) for post in truth.keep}
    counts = Counter(word for bag in bags.values() for word in bag)
    for word, count in counts.items():
        inside = Counter(truth.written[post] for post, bag in bags.items() if word in bag)
        outside = Counter(truth.written[post] for post, bag in bags.items() if word not in bag)
        hits = max(inside.values()) + max(outside.values(), default=0)
        assert hits / len(bags) <= truth.majority + 0.15, word
        if count >= 30:
            assert {truth.labels[post] for post, bag in bags.items() if word in bag} == set(KINDS), word


def test_few_authors_write_much_and_mostly_one_class(dump: tuple[Path, Truth, dict[str, Post]]) -> None:
    _, truth, _ = dump
    sizes = Counter(author for author in truth.authors.values() if author != "[deleted]")
    assert sizes.most_common(1)[0][1] >= 13
    assert sum(size == 1 for size in sizes.values()) > len(sizes) / 2
    for author, size in sizes.most_common(3):
        kinds = Counter(truth.labels[post] for post, name in truth.authors.items() if name == author)
        assert max(kinds.values()) > size * 0.4


def test_each_month_is_in_its_own_file(dump: tuple[Path, Truth, dict[str, Post]]) -> None:
    folder, _, found = dump
    for month in ("2022-11", "2022-12"):
        times = [post["created_utc"] for post in posts(folder / f"RS_{month}.zst")]
        assert len(times) > 100
        assert times == sorted(times)
        assert {datetime.fromtimestamp(time, UTC).strftime("%Y-%m") for time in times} == {month}
    assert sum(post["subreddit"] == BOARD for post in found.values()) == 300


def test_the_dirt_is_where_the_truth_says(dump: tuple[Path, Truth, dict[str, Post]]) -> None:
    folder, truth, found = dump
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["post"] for row in rows} == set(truth.labels) | truth.unknown
    assert not truth.unknown & set(found)
    repeated = {post for post, count in Counter(row["post"] for row in rows).items() if count > 1}
    assert repeated == truth.either
    assert sum(row["kind"] != row["kind"].strip().lower() for row in rows) == 1
    assert Counter(truth.drop.values()) == {"copy": 16, "deleted": 6, "removed": 6, "language": 2, "short": 5}
    assert truth.keep | set(truth.drop) | truth.either == set(truth.labels)
    assert all(found[copy]["created_utc"] > found[post]["created_utc"] for copy, post in truth.copies.items())
    text = "".join(post["selftext"] for post in found.values())
    assert all(mark in text for mark in ("\r\n", "&amp;", "&#x200B;", "🔧"))


def test_a_seed_gives_the_same_bytes(dump: tuple[Path, Truth, dict[str, Post]], tmp_path: Path) -> None:
    folder, truth, _ = dump
    assert texts(tmp_path, seed=11) == truth
    assert all((folder / file.name).read_bytes() == file.read_bytes() for file in tmp_path.iterdir())
    assert texts(tmp_path, seed=12) != truth


def test_the_second_set_has_several_labels_per_post(tmp_path: Path) -> None:
    truth = second(tmp_path, seed=11)
    (file,) = tmp_path.glob("*_submissions.zst")
    months = {datetime.fromtimestamp(post["created_utc"], UTC).month for post in posts(file)}
    assert months == {2, 3, 4}
    assert len(truth.labels) == 240
    assert len(set(truth.authors.values()) - {"[deleted]"}) == 60
    assert {label for labels in truth.labels.values() for label in labels.split(";")} == {*EVENTS, "none"}
    assert len(truth.noisy) == 24


def test_the_server_returns_every_picture_except_the_broken_ones(tmp_path: Path) -> None:
    with serving(tmp_path, 0) as port:
        truth = images(tmp_path, port=port, seed=11, count=60)
        urls = {p["id"]: p["url"] for f in tmp_path.glob("*.zst") for p in posts(f) if not p["is_self"]}
        bad = {}
        for post, url in urls.items():
            try:
                with urllib.request.urlopen(url) as answer:
                    data, kind = answer.read(), answer.headers["Content-Type"]
                Image.open(io.BytesIO(data)).load()
            except urllib.error.HTTPError as error:
                assert error.code == 404
                bad[post] = "missing"
            except OSError:
                bad[post] = "not a picture" if kind == "text/html" else "truncated"
    assert len(urls) == 60
    assert bad == {post: why for post, why in truth.drop.items() if why != "copy"}
    assert sorted(bad.values()) == ["missing", "not a picture", "truncated"]
