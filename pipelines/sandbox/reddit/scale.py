"""Write one large Reddit dump of text-only rows for benchmarks: one zstd frame per chunk, drawn in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import orjson

from pipelines.collect.month import Window
from pipelines.config.collect import Sandbox
from pipelines.sandbox.reddit.caption_grammar import sentence
from pipelines.sandbox.reddit.chance import seeded
from pipelines.sandbox.reddit.dumps import DECLARED, frame, write_frames
from pipelines.sandbox.reddit.generated_posts import HOME
from pipelines.sandbox.reddit.listing import CONSTANT, Item
from pipelines.sandbox.reddit.schedule import FIRST_ID, base36

# Rows per frame: about 50 MB of JSON, which a process holds twice.
CHUNK = 20_000
# One row in a hundred belongs to the wanted community, as in a month of a large part of Reddit (SPEC.md 2.6).
WANTED_EVERY = 100
TITLES = 400
Task = tuple[int, int, int, str]
Map = Callable[[Callable[[Task], bytes], Iterable[Task]], Iterator[bytes]]


def write(
    path: Path, *, rows: int, sandbox: Sandbox, run: Map, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write ``rows`` submissions, spread evenly over the first month, to one Reddit dump with its ``.sha256``.

    ``run`` maps a function over tasks in order, in this process or in others; the bytes do not depend on it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    month = sorted(sandbox.months)[0]
    tasks = [(sandbox.seed, first, min(CHUNK, rows - first), month) for first in range(0, rows, CHUNK)]

    def frames() -> Iterator[bytes]:
        for done, data in enumerate(run(chunk, tasks), start=1):
            if progress:
                progress(min(done * CHUNK, rows), rows)
            yield data

    write_frames(path, frames=frames())


def chunk(task: Task) -> bytes:
    """Return one compressed chunk of rows of the dump; ``task`` is (seed, number of the first row, rows, month)."""
    seed, first, count, month = task
    rng = seeded(seed, "scale", first)
    titles = [sentence(rng).capitalize() for _ in range(TITLES)]
    window = Window.from_key(month)
    begin, span = int(window.start.timestamp()), int((window.end - window.start).total_seconds())
    lines = []
    for number in range(first, first + count):
        created = begin + (number * 7 // 5) % span
        lines.append(orjson.dumps(_row(number, created=created, titles=titles, rng=rng)))
    return frame(b"\n".join(lines) + b"\n", declared=DECLARED, level=1)


def _row(number: int, *, created: int, titles: list[str], rng: Random) -> Item:
    subreddit = HOME if number % WANTED_EVERY == 0 else f"Community{rng.randrange(5000)}"
    name = base36(FIRST_ID + number)
    title = titles[rng.randrange(TITLES)]
    body = " ".join(titles[rng.randrange(TITLES)] for _ in range(rng.randrange(5)))
    chance = rng.randrange(1000)
    return CONSTANT | {
        "author": f"user_{rng.randrange(10**6)}",
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
        "retrieved_on": created + chance,
        "score": chance,
        "selftext": body,
        "spoiler": False,
        "subreddit": subreddit,
        "subreddit_id": f"t5_{chance:x}",
        "subreddit_name_prefixed": f"r/{subreddit}",
        "subreddit_subscribers": chance * 100,
        "thumbnail": "self",
        "title": title,
        "ups": chance,
        "url": f"https://www.reddit.com/r/{subreddit}/comments/{name}/",
    }
