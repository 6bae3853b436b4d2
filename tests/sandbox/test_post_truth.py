"""The truth of the posts: complete, consistent with what is listed, with canaries planted where it says."""

from collections import Counter
from itertools import combinations

from crisis_corpus_sandbox.reddit import label_quotas
from crisis_corpus_sandbox.reddit.build import post_truth
from crisis_corpus_sandbox.reddit.post_world import CANARY_USER, COMMUNITIES
from pipelines.core.config.params import load

EXPECTED = {
    "kept", "deleted", "removed", "deleted_later", "not_text", "no_text", "too_short", "too_long", "not_english",
}  # fmt: skip


def test_every_listed_post_of_the_communities_has_a_row(listed, known, known_posts):
    rows = {p["fullname"]: p for p in known_posts["submissions"]}
    memes = {s["fullname"] for s in known["submissions"]}
    assert set(rows) == set(listed) - memes
    assert memes < set(listed)
    for name, row in rows.items():
        assert row["subreddit"] == listed[name]["subreddit"]
        assert set(row["labels"]["cradle"]["labels"]) <= set(label_quotas.CRADLE)
    assert {p["expected"] for p in rows.values()} == EXPECTED
    assert {p["subreddit"] for p in rows.values()} == set(COMMUNITIES)
    assert {p["month"] for p in rows.values()} == set(known_posts["months"])


def test_groups_are_the_connected_posts_of_the_pairs(posts):
    known = post_truth(posts, sandbox=load(profile="sandbox").sandbox)
    rows = {p["fullname"]: p for p in known["submissions"]}
    groups: dict[str, list[str]] = {}
    for name, row in rows.items():
        if row["group"]:
            groups.setdefault(row["group"], []).append(name)
    expected = {tuple(sorted(pair)) for members in groups.values() for pair in combinations(members, 2)}
    assert {tuple(post for post, _ in pair) for pair in known["pairs"]} == expected
    assert all(rows[name]["expected"] == "kept" for members in groups.values() for name in members)
    assert all(
        len({tuple(rows[name]["labels"]["cradle"]["labels"]) for name in members}) == 1 for members in groups.values()
    )
    assert Counter(map(len, groups.values()))[2] >= 5
    assert max(map(len, groups.values())) >= 3
    copies = [p for p in rows.values() if p["case"] in ("copy", "near_copy")]
    assert all(p["group"] for p in copies)


def test_canaries_are_planted(listed, known_posts):
    canaries = known_posts["canaries"]
    shown = " ".join(f"{i['title']} {i['selftext']} {i['author']}" for i in listed.values())
    assert all(word in shown for word in (*canaries["words"], *canaries["users"]))
    rows = {p["fullname"]: p for p in known_posts["submissions"]}
    assert canaries["fullnames"]
    for name in canaries["fullnames"]:
        assert rows[name]["expected"] == "kept"
        assert listed[name]["author"] == CANARY_USER
