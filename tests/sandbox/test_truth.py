"""The truth follows its own definitions, and what it calls deleted really is."""

from collections import Counter, defaultdict
from itertools import combinations

import networkx
import pytest

from crisis_corpus_sandbox.reddit.build import truth
from crisis_corpus_sandbox.reddit.captions import words_apart
from crisis_corpus_sandbox.reddit.generated_posts import EVERY, SMALLEST
from crisis_corpus_sandbox.reddit.post_world import SMALLEST as FEWEST
from crisis_corpus_sandbox.reddit.world import World
from pipelines.collect.read.words import words
from pipelines.core.config.collect import Sandbox

# A picture of poor quality is not a copy of another.
FIRST = ("original", "low_quality")


def key(image):
    return image["fullname"], image["image"]


def pairs_of(known, name):
    return {frozenset((f, i) for f, i in pair) for pair in known[name]}


def test_groups_are_the_components_of_the_pairs(known):
    groups = defaultdict(set)
    for image in known["images"]:
        if image["group"]:
            groups[image["group"]].add(key(image))
    connected = networkx.connected_components(networkx.Graph(map(tuple, pairs_of(known, "pairs"))))
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, connected)) != []


def test_edits_are_as_many_words_apart_as_they_say(known):
    originals = {i["base"]: i for i in known["images"] if i["variant"] in FIRST}
    for image in known["images"]:
        distance = words_apart(words(originals[image["base"]]["text"]), words(image["text"])) if image["text"] else 0
        if image["variant"].startswith("edit"):
            assert distance == int(image["variant"][4:])
        elif image["variant"] == "recaptioned":
            assert distance >= 3
        else:
            assert distance == 0


def test_captions_of_different_bases_differ(known):
    texts = {i["base"]: words(i["text"]) for i in known["images"] if i["language"] == "en" and i["style"] != "labels"}
    close = [1 for a, b in combinations(texts.values(), 2) if words_apart(a, b) < 3]
    assert len(close) <= len(texts) * 0.02


def test_copies_come_after_their_originals(known, items):
    born = {i["base"]: items[i["fullname"]]["created_utc"] for i in known["images"] if i["variant"] in FIRST}
    for image in known["images"]:
        assert items[image["fullname"]]["created_utc"] >= born[image["base"]]


def test_the_live_listing_tells_every_deletion(known, items):
    for submission in known["submissions"]:
        item = items[submission["fullname"]]
        if submission["deleted"]:
            assert item["author"] == "[deleted]"
        if submission["expected"] == "removed":
            assert item["removed_by_category"] or item["selftext"] == "[removed]"
        if submission["expected"] == "kept":
            assert item["author"] != "[deleted]"
            assert item["removed_by_category"] is None


def test_languages_and_text_agree(known):
    for image in known["images"]:
        assert (image["language"] == "none") == (image["text"] == "")
        if image["language"] not in ("en", "none"):
            assert image["expected"] == "not_english"
            assert len(image["text"].split()) >= 5
    assert {"ru", "uk", "bg", "de", "fr", "es"} <= {i["language"] for i in known["images"]}


def test_canaries_are_planted(known, items):
    shown = " ".join(f"{i['title']} {i['selftext']} {i['author']}" for i in items.values())
    for word in (*known["canaries"]["words"], *known["canaries"]["users"]):
        assert word in shown
    for word in known["canaries"]["ocr"]:
        assert any(word in i["text"].lower() and i["expected"] == "kept" for i in known["images"])
        assert word not in shown.lower()
    assert set(known["canaries"]["fullnames"]) <= set(items)


def test_galleries_keep_their_order_and_galleries_with_a_failed_item_exist(known, items):
    galleries = {n: i for n, i in items.items() if i["is_gallery"]}
    assert any(m["status"] == "failed" for i in galleries.values() for m in i["media_metadata"].values())
    for name, item in galleries.items():
        files = [i["file"] for i in known["images"] if i["fullname"] == name]
        order = [item["media_metadata"][e["media_id"]] for e in item["gallery_data"]["items"]]
        assert [m["s"]["u"].rsplit("/", 1)[1] for m in order if m["status"] == "valid"] == files


@pytest.mark.parametrize("size", [SMALLEST, 200])
@pytest.mark.parametrize("seed", range(6))
def test_any_seed_gives_every_case_and_pairs(seed, size):
    sandbox = Sandbox(seed=seed, months=("2023-02",), submissions=size, posts=FEWEST, port=1)
    posts = World(sandbox).build()
    known = truth(posts, sandbox=sandbox)
    found = Counter(p.case for p in posts)
    assert {c.name: c.least for c in EVERY if found[c.name] < c.least} == {}
    assert len({p.id for p in posts}) == len(posts)
    assert known["pairs"]
    assert known["mirrored_pairs"]
    assert len(known["canaries"]["fullnames"]) >= 4
