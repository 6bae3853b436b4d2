"""Write dumps of five years of the crisis communities' posts, of any size, one file for each month (``--scale``).

A month is written frame by frame, so that memory does not grow with the number of posts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import orjson

from crisis_corpus_sandbox.reddit.chance import seeded
from crisis_corpus_sandbox.reddit.dumps import DECLARED, HOUR, frame, write_frames
from crisis_corpus_sandbox.reddit.listing import CONSTANT, Item
from crisis_corpus_sandbox.reddit.post_world import COMMUNITIES
from crisis_corpus_sandbox.reddit.scale_texts import DrawnTexts
from crisis_corpus_sandbox.reddit.schedule import FIRST_ID, base36
from pipelines.collect.month import Window

# The months of the posts corpus until the sandbox's last one.
FIRST_YEAR, MONTHS = 2018, 60
# Rows per frame: about 15 MB of JSON.
CHUNK = 5_000


@dataclass(frozen=True)
class ScaleMonth:
    """One month of a corpus of ``posts`` posts: its position from 0, and the numbers of its posts."""

    position: int
    posts: int
    seed: int

    @property
    def key(self) -> str:
        """Return the month's partition key."""
        return f"{FIRST_YEAR + self.position // 12}-{1 + self.position % 12:02d}"

    @property
    def numbers(self) -> range:
        """Return the numbers of the month's posts, in the order of their times; each month has as many as others."""
        return range(self.posts * self.position // MONTHS, self.posts * (self.position + 1) // MONTHS)

    def write(self, folder: Path) -> Path:
        """Write the month's dump, ``RS_<month>.zst``, with its ``.sha256``, and return its path."""
        path = folder / f"RS_{self.key}.zst"
        write_frames(path, frames=self.frames())
        return path

    def frames(self) -> Iterator[bytes]:
        """Yield the dump's zstd frames."""
        window, numbers = Window.from_key(self.key), self.numbers
        begin, seconds = int(window.start.timestamp()), int((window.end - window.start).total_seconds())
        for first in numbers[::CHUNK]:
            some = range(first, min(first + CHUNK, numbers.stop))
            texts = DrawnTexts.drawn(first, count=len(some), posts=self.posts)
            times = begin + (np.array(some) - numbers.start) * seconds // len(numbers)
            rng = seeded(self.seed, "scale", first)
            rows = zip(some, texts.said(), times.tolist(), strict=True)
            lines = [orjson.dumps(_row(n, said=said, created=at, posts=self.posts, rng=rng)) for n, said, at in rows]
            yield frame(b"\n".join(lines) + b"\n", declared=DECLARED, level=1)


def months(posts: int, *, seed: int) -> list[ScaleMonth]:
    """Return the months of a corpus of ``posts`` posts; months of a corpus of fewer than 60 may have none."""
    return [ScaleMonth(position, posts, seed) for position in range(MONTHS)]


def community(number: int) -> str:
    """Return the community of a post."""
    return COMMUNITIES[number % len(COMMUNITIES)]


def author(number: int, *, posts: int) -> str:
    """Return the author of a post; an author writes two posts on average."""
    return f"user_{number * 7919 % max(1, posts // 2)}"


def _row(number: int, *, said: tuple[str, str], created: int, posts: int, rng: Random) -> Item:
    subreddit, name, chance = community(number), base36(FIRST_ID + number), rng.randrange(1000)
    return CONSTANT | {
        "author": author(number, posts=posts),
        "author_fullname": f"t2_{rng.randrange(16**7):x}",
        "created": created,
        "created_utc": created,
        "domain": f"self.{subreddit}",
        "id": name,
        "is_gallery": False,
        "is_self": True,
        "is_video": False,
        "name": f"t3_{name}",
        "num_comments": chance % 40,
        "over_18": chance < 30,
        "permalink": f"/r/{subreddit}/comments/{name}/",
        "retrieved_on": created + HOUR + chance,
        "score": chance,
        "selftext": said[1],
        "spoiler": False,
        "subreddit": subreddit,
        "subreddit_id": f"t5_{chance:x}",
        "subreddit_name_prefixed": f"r/{subreddit}",
        "subreddit_subscribers": chance * 100,
        "thumbnail": "self",
        "title": said[0],
        "ups": chance,
        "url": f"https://www.reddit.com/r/{subreddit}/comments/{name}/",
    }
