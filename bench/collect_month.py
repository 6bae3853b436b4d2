"""Measure the steps of one month of posts: collect, one shard of texts, and partition.

Writes a dump of the month (posts of about 160 words, no other subreddit) in a temporary folder and runs the steps' own
functions. Figures are posts per CPU second of all processes; the shard's include the load of the language models.
There is no baseline, so `make bench` adds nothing to its table.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import wordninja
import zstandard

from pipelines.collect import collect, partition, texts
from pipelines.collect.month import Window
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault

KEY, CORPUS = "2022-12", "posts"
NOW = datetime(2023, 2, 5, tzinfo=UTC)
LINES = {"num_comments": 3, "score": 5, "over_18": False, "spoiler": False, "is_self": True, "upvote_ratio": 0.9,
         "domain": "self", "link_flair_text": None, "all_awardings": [], "gildings": {}, "locked": False}  # fmt: skip


def build(folder: Path, *, posts: int, words: int, subreddit: str) -> None:
    """Write ``RS_2022-12.zst`` with posts of everyday English words."""
    rng = random.Random(7)
    vocabulary = list(wordninja.DEFAULT_LANGUAGE_MODEL._wordcost)[:3000]
    start = int(datetime(2022, 12, 1, tzinfo=UTC).timestamp())
    path = folder / f"RS_{KEY}.zst"
    with zstandard.ZstdCompressor(level=3).stream_writer(path.open("wb")) as out:
        for number in range(posts):
            body = " ".join(w + rng.choice(("", "", "", "", ".", ",")) for w in rng.choices(vocabulary, k=words))
            item = LINES | {
                "id": f"{40_000_000 + number:x}",
                "author": f"user{rng.randint(1, posts)}",
                "created_utc": start + number % 2_600_000,
                "retrieved_on": start + 3_000_000,
                "subreddit": subreddit,
                "title": " ".join(rng.choices(vocabulary, k=8)),
                "selftext": body,
                "url": f"https://www.reddit.com/r/{subreddit}/comments/{number}/",
            }
            out.write(orjson.dumps(item) + b"\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=160)
    options = parser.parse_args()
    params = load(Path(__file__).parents[1])
    corpus = params.corpora[CORPUS].model_copy(update={"sources": ("dump",)})
    params = params.model_copy(update={"corpora": params.corpora | {CORPUS: corpus}})
    window = Window.from_key(KEY)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        settings = Settings.from_env().model_copy(update={"home": root / "home", "dumps": root / "dumps"})
        (root / "dumps").mkdir()
        build(root / "dumps", posts=options.posts, words=options.words, subreddit=corpus.subreddits[0])

        def step(label: str, call: Callable[[], dict[str, object]], *, posts: int) -> dict[str, object]:
            begin, before = time.monotonic(), sum(os.times()[:4])
            result = call()
            spent, wall = sum(os.times()[:4]) - before, time.monotonic() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{label}: {posts / spent:.0f} posts per CPU second ({posts} posts), {wall:.1f} s, peak {peak} MB")
            return result

        with Vault.open(f"sqlite:///{root}/vault.sqlite", secret=bytes(32)) as vault:
            given = {"window": window, "params": params, "vault": vault, "root": root}
            count = options.posts
            step("collect", lambda: collect.run(CORPUS, settings=settings, now=NOW, **given), posts=count)
            size = min(count, params.collect.shard_size)
            last = max(0, -(-count // size) - 1)
            done = step("texts", lambda: texts.run(CORPUS, shard=last, **given), posts=count - last * size)
            step("partition", lambda: partition.run(CORPUS, **given), posts=int(str(done["texts"])))


if __name__ == "__main__":
    main()
