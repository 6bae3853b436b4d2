"""Assign a time, an id and an author to each post of the offline Reddit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import numpy as np

from crisis_corpus_sandbox.reddit.chance import seeded
from crisis_corpus_sandbox.reddit.generated_posts import HOME, SandboxPost
from pipelines.collect.month import Window
from pipelines.config.collect import Sandbox

FIRST = "Sleepy Quiet Muddy Velvet Rusty Gentle Hollow Clumsy Frozen Dusty Purple Lonely Mellow Grumpy"
LAST = "Otter Kettle Pigeon Cactus Lantern Walnut Pebble Badger Teapot Comet Willow Marmot Button Puffin"
# Reddit's ids of late 2022 have six digits of base 36 and begin with y or z.
FIRST_ID = int("yj0000", 36)
POSTS_PER_AUTHOR = 2.6


def schedule(
    posts: Sequence[SandboxPost], *, sandbox: Sandbox, name: str = "schedule", first_id: int = FIRST_ID
) -> list[SandboxPost]:
    """Set ``created``, ``id`` and ``author`` of all posts, and return the posts in order of creation.

    ``name`` seeds the schedule, so posts that are scheduled under another name get other times. Ids follow
    ``first_id``.

    Copies follow their originals. One post falls on the first and one on the last second of the months, and those of
    the case ``outside_window`` directly before and after them.
    """
    rng = seeded(sandbox.seed, name)
    windows = [Window.from_key(key) for key in sorted(sandbox.months)]
    outside = [p for p in posts if p.case == "outside_window"]
    inside = [p for p in posts if p.case != "outside_window"]
    rng.shuffle(inside)
    for post, moment in zip(_by_rank(inside), _moments(len(inside), windows=windows, rng=rng), strict=True):
        post.created = moment
    for number, post in enumerate(outside):
        before, after = windows[0].start - timedelta(seconds=1 + number), windows[-1].end + timedelta(seconds=number)
        post.created = before if number % 2 == 0 else after
    _name(inside + outside, rng=rng)
    ordered = sorted(posts, key=lambda p: (p.created, p.case, p.title))
    number = first_id
    for post in ordered:
        number += rng.randint(40, 9000)
        post.id = base36(number)
    return ordered


def _by_rank(posts: list[SandboxPost]) -> list[SandboxPost]:
    places: dict[str, list[int]] = {}
    for i, post in enumerate(posts):
        if post.family:
            places.setdefault(post.family, []).append(i)
    ordered = list(posts)
    for held in places.values():
        for i, post in zip(held, sorted((posts[i] for i in held), key=lambda p: (p.rank, p.case)), strict=True):
            ordered[i] = post
    return ordered


def _moments(count: int, *, windows: Sequence[Window], rng: Random) -> list[datetime]:
    seconds = [int((w.end - w.start).total_seconds()) for w in windows]
    offsets = sorted(rng.sample(range(1, sum(seconds) - 1), count - 2))
    moments = []
    for offset in [0, *offsets, sum(seconds) - 1]:
        rest = offset
        for window, length in zip(windows, seconds, strict=True):
            if rest < length:
                moments.append(window.start + timedelta(seconds=rest))
                break
            rest -= length
    return moments


def _name(posts: Sequence[SandboxPost], *, rng: Random) -> None:
    count = max(8, int(len(posts) / POSTS_PER_AUTHOR))
    names: dict[str, None] = {}
    first, last = FIRST.split(), LAST.split()
    while len(names) < count:
        names[f"{rng.choice(first)}{rng.choice(last)}{rng.randint(1, 999)}"] = None
    authors = list(names)
    weights = [1 / (i + 15) for i in range(count)]  # the most active author writes about one post in forty
    for post in posts:
        if not post.author:
            post.author = rng.choices(authors, weights)[0]
        if post.subreddit == HOME and post.case == "text" and rng.random() < 0.05:
            post.author = "AutoModerator"


def base36(number: int) -> str:
    """Return ``number`` in base 36, as in Reddit's ids."""
    return np.base_repr(number, 36).lower()
