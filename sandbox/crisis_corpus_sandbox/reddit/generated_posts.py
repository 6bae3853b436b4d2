"""Define the kinds of generated submissions, their records, and the time, id and author of each."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random

import numpy as np

from crisis_corpus_sandbox.reddit import seeded
from crisis_corpus_sandbox.reddit.draw import Rendering
from crisis_corpus_sandbox.reddit.label_quotas import Figsim
from pipelines.collect.month import Window
from pipelines.core.config.collect import Sandbox

# The size for which ``share`` below is stated.
WHOLE = 600


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of simulated submission, its number among 600 submissions, and its minimum in a small sandbox."""

    name: str
    share: int
    least: int = 1


def cases(text: str) -> tuple[Case, ...]:
    """Return the kinds in a list such as ``gif 10, gallery 22 2``: the name, the share and the minimum, if not 1."""
    entries = (entry.split() for entry in text.split(","))
    return tuple(Case(name, *map(int, numbers)) for name, *numbers in entries)


# Posts that never reach the picture step.
WITHOUT_PICTURES = cases(
    "deleted 12, removed 12, removed_body 5, deleted_later 10 2, crosspost 12 2, text 22 4, link 5, video 3, "
    "outside_window 4 2"
)
# Posts whose picture cannot or must not be fetched; the name is that of the fault.
FAULTS = cases(
    "missing 5, gone 3, slow 2, cut_on_the_wire 3, huge 2, redirect_forbidden 2, wrong_type 3, placeholder 4, "
    "broken 3, cut_file 2, too_many_pixels 1, too_many_frames 1, foreign_host 3, wrong_scheme 1, dead_address 2"
)
FOREIGN = Case("foreign_language", 26, 12)
# Copies of another post's picture. The first seven are near-duplicates of it, the rest are not.
DUPLICATES = cases("recompressed 9 2, resized 8, bordered 6, cropped 6, identical 2, edit1 4, edit2 3")
OTHERS = cases("edit3 6, edit4 6, recaptioned 24 3, mirrored 8")
# Kept posts with a special property; the remainder are plain memes.
SPECIAL = cases(
    "gallery 22 2, gif 10, webp 8, png 8, alpha 4, rotated 4, low_quality 10, redirect 4, retry_after 3, preview_only 4"
)
# Posts of other communities, in addition to the requested size.
ELSEWHERE = Case("elsewhere", 48, 8)
EVERY = (*WITHOUT_PICTURES, *FAULTS, FOREIGN, *DUPLICATES, *OTHERS, *SPECIAL)
SMALLEST = sum(c.least for c in EVERY) + 30


def counts(size: int, *, every: Sequence[Case] = EVERY, whole: int = WHOLE, smallest: int = SMALLEST) -> dict[str, int]:
    """Return the number of submissions of each kind among ``size``; the remainder is of the kind ``plain``.

    Shares are of ``whole`` submissions; in ten times as many and more, the kinds no longer grow.
    """
    if size < smallest:
        raise ValueError(f"a sandbox needs at least {smallest} submissions to hold every case")
    numbers = {c.name: max(c.least, round(c.share * min(size, whole * 10) / whole)) for c in every}
    least = {c.name: c.least for c in every}
    while sum(numbers.values()) > size:
        numbers[max(numbers, key=lambda name: numbers[name] - least[name])] -= 1
    return numbers | {"plain": size - sum(numbers.values())}


def elsewhere(size: int) -> int:
    """Return how many posts of other communities the offline Reddit has beside ``size`` submissions."""
    return max(ELSEWHERE.least, round(ELSEWHERE.share * size / WHOLE))


HOME = "SuicideMeme"
KEPT = "kept"
UNSCHEDULED = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class SandboxPicture:
    """One picture of a generated submission.

    ``base`` names the image under the caption; ``address`` replaces the usual URL.
    """

    base: str
    rendering: Rendering | None
    text: str = ""
    language: str = "en"
    variant: str = "original"
    expected: str = KEPT
    behaviour: str = "ok"
    fault: str | None = None
    address: str | None = None
    preview: Rendering | None = None

    @property
    def file(self) -> str:
        """Return the picture's file name below ``images/``; empty if the sandbox does not serve the picture."""
        return self.rendering.file if self.rendering else ""


@dataclass(slots=True)
class SandboxPost:
    """One generated submission; ``family`` and ``rank`` order copies after their original.

    The schedule sets ``id``, ``author`` and ``created``.
    """

    case: str
    title: str
    kind: str = "image"
    body: str = ""
    subreddit: str = HOME
    pictures: list[SandboxPicture] = field(default_factory=list)
    expected: str = KEPT
    figsim: Figsim | None = None
    cradle: tuple[str, ...] = ("no_crisis",)
    carriers: dict[str, str] = field(default_factory=dict)
    family: str = ""
    rank: int = 0
    parent: SandboxPost | None = None
    link: str = ""
    id: str = ""
    author: str = ""
    created: datetime = UNSCHEDULED
    failed_item: bool = False
    language: str = "en"
    injected: bool = False

    @property
    def fullname(self) -> str:
        """Return the submission's fullname (``t3_<id>``)."""
        return f"t3_{self.id}"


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
    """Return the shuffled posts with each family's members sorted by rank within the positions they occupy."""
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
    ends = list(accumulate(seconds))
    months = [(offset, bisect(ends, offset)) for offset in [0, *offsets, sum(seconds) - 1]]
    return [windows[m].start + timedelta(seconds=offset - ends[m] + seconds[m]) for offset, m in months]


def _name(posts: Sequence[SandboxPost], *, rng: Random) -> None:
    """Give every post an author: a few write many posts, most write one, and copies rarely share their original's."""
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
