"""Compute the ground truth of the offline Reddit's text posts, so that collecting and labelling can be scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from pipelines.config.collect import Sandbox
from pipelines.sandbox.reddit.likeness import ALIKE, shingles, similarity, text_of
from pipelines.sandbox.reddit.post_world import CANARY_BODY, CANARY_TITLE, CANARY_USER
from pipelines.sandbox.reddit.posts import KEPT, SandboxPost


def post_truth(posts: Sequence[SandboxPost], *, sandbox: Sandbox) -> dict[str, Any]:
    """Return the ground truth: posts with labels and expected outcome, near-duplicate pairs, canaries.

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
    return {
        "seed": sandbox.seed,
        "months": list(sandbox.months),
        "posts": [_post(post, group=groups.get(post.fullname)) for post in posts],
        "pairs": [list(pair) for pair in sorted(pairs)],
        "canaries": _canaries(posts),
    }


def _post(post: SandboxPost, *, group: str | None) -> dict[str, Any]:
    return {
        "fullname": post.fullname,
        "subreddit": post.subreddit,
        "month": f"{post.created:%Y-%m}",
        "case": post.case,
        "expected": post.expected,
        "labels": sorted(post.cradle),
        "injected": post.injected,
        "group": group,
        "language": post.language,
    }


def _canaries(posts: Sequence[SandboxPost]) -> dict[str, list[str]]:
    planted = [p for p in posts if CANARY_TITLE in p.title or CANARY_BODY in p.body]
    return {
        "words": [CANARY_TITLE, CANARY_BODY],
        "users": [CANARY_USER],
        "fullnames": [post.fullname for post in planted],
    }
