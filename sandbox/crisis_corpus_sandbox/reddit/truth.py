"""Compute the ground truth of the offline Reddit's memes and text posts, so that a pipeline's results can be scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import networkx

from crisis_corpus_sandbox.reddit import post_world
from crisis_corpus_sandbox.reddit.captions import words_apart
from crisis_corpus_sandbox.reddit.generated_posts import HOME, KEPT, SandboxPicture, SandboxPost
from crisis_corpus_sandbox.reddit.image_host import placeholder_sha256
from crisis_corpus_sandbox.reddit.post_world import ALIKE, shingles, text_of
from crisis_corpus_sandbox.reddit.world import CANARY_BODY, CANARY_OVERLAY, CANARY_TITLE, CANARY_USER
from pipelines.collect.read.shingles import similarity
from pipelines.collect.read.words import normalise, words
from pipelines.core.config.collect import Sandbox

Item = tuple[str, int]
Pair = tuple[Item, Item]
# FigSIM 3.1: near-duplicates differ in fewer than three words.
WORD_DIFFERENCE = 3
DELETED = ("deleted", "deleted_later")


def truth(posts: Sequence[SandboxPost], *, sandbox: Sandbox) -> dict[str, Any]:
    """Return the ground truth of the pictures: items, submissions, near-duplicate and mirrored pairs, canary texts.

    Two kept pictures are a pair when they have the same base, the same handedness and captions fewer than three
    words apart; ``group`` numbers the connected components of the pairs. ``mirrored_pairs`` would be pairs
    if one picture were not mirrored.
    """
    kept = [
        (p, i, picture)
        for p in posts
        for i, picture in enumerate(p.pictures)
        if p.subreddit == HOME and p.expected == KEPT and picture.expected == KEPT
    ]
    pairs, mirrored = _pairs(kept)
    groups = _groups(pairs)
    home = [p for p in posts if p.pictures]
    return {
        "seed": sandbox.seed,
        "months": list(sandbox.months),
        "images": [_image(p, i, picture, groups=groups) for p in home for i, picture in enumerate(p.pictures)],
        "submissions": [_submission(p) for p in posts],
        "pairs": [[list(a), list(b)] for a, b in pairs],
        "mirrored_pairs": [[list(a), list(b)] for a, b in mirrored],
        "canaries": _canaries(posts, words=(CANARY_TITLE, CANARY_BODY), user=CANARY_USER, overlay=CANARY_OVERLAY),
        "placeholders": [placeholder_sha256()],
    }


def post_truth(posts: Sequence[SandboxPost], *, sandbox: Sandbox) -> dict[str, Any]:
    """Return the ground truth of text posts: labels, expected outcomes, near-duplicate pairs, canary texts.

    Two kept posts are a pair when one is a copy of the other and their shingles are similar; ``group`` names the
    connected components of the pairs. All posts of a component are pairs.
    """
    families: dict[str, list[SandboxPost]] = defaultdict(list)
    for post in posts:
        if post.family and post.expected == KEPT:
            families[post.family].append(post)
    pairs: list[tuple[str, str]] = []
    groups: dict[str, str] = {}
    for family, members in families.items():
        known = [(post.fullname, shingles(text_of(post))) for post in members]
        for (left, one), (right, other) in combinations(known, 2):
            if similarity(one, other) >= ALIKE:
                pairs.append((min(left, right), max(left, right)))
                groups[left] = groups[right] = family
    canaries = _canaries(posts, words=(post_world.CANARY_TITLE, post_world.CANARY_BODY), user=post_world.CANARY_USER)
    return {
        "seed": sandbox.seed,
        "months": list(sandbox.months),
        "submissions": [_post(post, group=groups.get(post.fullname)) for post in posts],
        "pairs": [[(post, 0) for post in pair] for pair in sorted(pairs)],
        "canaries": canaries,
    }


def _pairs(kept: Sequence[tuple[SandboxPost, int, SandboxPicture]]) -> tuple[list[Pair], list[Pair]]:
    by_base: dict[str, list[tuple[Item, SandboxPicture]]] = defaultdict(list)
    for post, image, picture in kept:
        by_base[picture.base].append(((post.fullname, image), picture))
    pairs: list[Pair] = []
    mirrored: list[Pair] = []
    for members in by_base.values():
        for (left, one), (right, other) in combinations(members, 2):
            if words_apart(words(one.text), words(other.text)) < WORD_DIFFERENCE:
                same = (one.variant == "mirrored") == (other.variant == "mirrored")
                (pairs if same else mirrored).append((min(left, right), max(left, right)))
    return sorted(pairs), sorted(mirrored)


def _groups(pairs: Sequence[Pair]) -> dict[Item, str]:
    connected = sorted(map(sorted, networkx.connected_components(networkx.Graph(pairs))))
    return {item: f"g{number:03d}" for number, items in enumerate(connected) for item in items}


def _image(post: SandboxPost, image: int, picture: SandboxPicture, *, groups: dict[Item, str]) -> dict[str, Any]:
    text = normalise(picture.text)
    expected = post.expected if post.expected in (*DELETED, "removed") else picture.expected
    return {
        "fullname": post.fullname,
        "image": image,
        "file": picture.file or None,
        "text": text,
        "language": picture.language,
        "base": picture.base,
        "variant": picture.variant,
        "encoding": picture.rendering.encoding if picture.rendering else None,
        "group": groups.get((post.fullname, image)),
        "style": picture.rendering.meme.style if picture.rendering else None,
        "expected": expected,
    }


def _origin(post: SandboxPost) -> dict[str, Any]:
    return {
        "fullname": post.fullname,
        "subreddit": post.subreddit,
        "month": f"{post.created:%Y-%m}",
        "case": post.case,
        "expected": post.expected,
    }


def _post(post: SandboxPost, *, group: str | None) -> dict[str, Any]:
    labels = {"cradle": {"labels": sorted(post.cradle)}}
    return _origin(post) | {"labels": labels, "injected": post.injected, "group": group, "language": post.language}


def _submission(post: SandboxPost) -> dict[str, Any]:
    return _origin(post) | {
        "deleted": post.expected in DELETED,
        "labels": {"figsim": post.figsim.names() if post.figsim else None, "cradle": {"labels": list(post.cradle)}},
        "carriers": post.carriers,
    }


def _canaries(
    posts: Sequence[SandboxPost], *, words: tuple[str, str], user: str, overlay: str | None = None
) -> dict[str, list[str]]:
    title, body = words
    drawn = {p.fullname for p in posts for picture in p.pictures if overlay and overlay in picture.text.lower()}
    planted = [p.fullname for p in posts if title in p.title or body in p.body or p.fullname in drawn]
    return {"words": [*words], "users": [user], "fullnames": planted} | ({"ocr": [overlay]} if overlay else {})
