"""Measure the scan of a dump against ``zstd -dc`` alone and against zstandard + json.

Makes a Pushshift-like dump (about a hundred keys per submission, 1 % of a wanted subreddit) in a temporary folder.
Times are CPU seconds of the working process (median of several alternating runs): throughput per core, independent of
other load on the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median

import orjson
import zstandard

from pipelines.collect.month import Window
from pipelines.collect.sources import Monthly, open_source
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings

WANTED = "SuicideMeme"
KEY = "2022-12"
FLAGS = [
    "archived",
    "author_premium",
    "author_patreon_flair",
    "can_gild",
    "can_mod_post",
    "contest_mode",
    "hidden",
    "hide_score",
    "is_created_from_ads_ui",
    "is_crosspostable",
    "is_meta",
    "is_original_content",
    "is_reddit_media_domain",
    "is_robot_indexable",
    "is_self",
    "is_video",
    "locked",
    "media_only",
    "no_follow",
    "over_18",
    "pinned",
    "quarantine",
    "saved",
    "send_replies",
    "spoiler",
    "stickied",
    "visited",
    "clicked",
    "allow_live_comments",
]
EMPTIES = [
    "approved_at_utc",
    "approved_by",
    "author_flair_background_color",
    "author_flair_css_class",
    "author_flair_template_id",
    "author_flair_text",
    "author_flair_text_color",
    "banned_at_utc",
    "banned_by",
    "category",
    "content_categories",
    "discussion_type",
    "distinguished",
    "likes",
    "link_flair_css_class",
    "link_flair_template_id",
    "link_flair_text",
    "media",
    "mod_note",
    "mod_reason_by",
    "mod_reason_title",
    "num_reports",
    "removal_reason",
    "removed_by",
    "removed_by_category",
    "report_reasons",
    "secure_media",
    "suggested_sort",
    "top_awarded_type",
    "view_count",
    "wls",
    "pwls",
    "parent_whitelist_status",
    "whitelist_status",
    "edited_at",
]


class Generator:
    """A generator of lines in Reddit's format of about 3.4 kB, with invented words."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.words = ["".join(self.rng.choices("etaoinshrdlucmfwyp", k=self.rng.randint(2, 10))) for _ in range(20_000)]
        self.start = datetime(2022, 12, 1, tzinfo=UTC).timestamp()

    def text(self, words: int) -> str:
        return " ".join(self.rng.choices(self.words, k=words))

    def hex(self, digits: int) -> str:
        return f"{self.rng.getrandbits(4 * digits):0{digits}x}"

    def line(self, number: int) -> bytes:
        rng = self.rng
        subreddit = WANTED if rng.random() < 0.01 else f"{rng.choice(self.words[:2000]).title()}{rng.choice('abcdef')}"
        short, author = f"{40_000_000 + number:x}", f"{rng.choice(self.words)}{rng.randint(1, 9999)}"
        file = f"{self.hex(13)}.jpg"
        sizes = [108, 216, 320, 640, 960, 1080]
        preview = [
            {
                "url": f"https://preview.redd.it/{file}?width={w}&amp;auto=webp&amp;s={self.hex(40)}",
                "width": w,
                "height": w,
            }
            for w in sizes
        ]
        item = {k: rng.random() < 0.02 for k in FLAGS} | dict.fromkeys(EMPTIES)
        item |= {
            "id": short,
            "name": f"t3_{short}",
            "author": author,
            "author_fullname": f"t2_{self.hex(8)}",
            "author_flair_richtext": [],
            "author_flair_type": "text",
            "all_awardings": [],
            "awarders": [],
            "gildings": {},
            "created_utc": int(self.start + number % 2_600_000),
            "retrieved_on": int(self.start) + 3_000_000,
            "domain": "i.redd.it",
            "title": self.text(rng.randint(3, 18)),
            "selftext": self.text(rng.choice([0, 0, 60, 200])),
            "permalink": f"/r/{subreddit}/comments/{short}/{self.text(5).replace(' ', '_')}/",
            "url": f"https://i.redd.it/{file}",
            "url_overridden_by_dest": f"https://i.redd.it/{file}",
            "thumbnail": f"https://b.thumbs.redditmedia.com/{self.hex(40)}.jpg",
            "thumbnail_height": 140,
            "thumbnail_width": 140,
            "post_hint": "image",
            "score": rng.randint(0, 900),
            "ups": rng.randint(0, 900),
            "downs": 0,
            "upvote_ratio": round(rng.random(), 2),
            "num_comments": rng.randint(0, 99),
            "num_crossposts": 0,
            "subreddit": subreddit,
            "subreddit_id": f"t5_{self.hex(5)}",
            "subreddit_type": "public",
            "subreddit_name_prefixed": f"r/{subreddit}",
            "subreddit_subscribers": rng.randint(10, 900_000),
            "preview": {
                "enabled": True,
                "images": [{"id": self.hex(40), "resolutions": preview, "source": preview[-1]}],
            },
        }
        return orjson.dumps(item) + b"\n"


def build(folder: Path, *, megabytes: int) -> Path:
    """Write ``RS_2022-12.zst`` of about ``megabytes`` of JSON with its checksum."""
    path, generator, size, number = folder / f"RS_{KEY}.zst", Generator(seed=5), 0, 0
    # Like the real files: a window of 2^31, which exceeds a decompressor's CPU cache.
    window = zstandard.ZstdCompressionParameters.from_level(6, window_log=31, enable_ldm=True)
    with zstandard.ZstdCompressor(compression_params=window).stream_writer(path.open("wb")) as out:
        while size < megabytes * 1e6:
            line = generator.line(number)
            out.write(line)
            size, number = size + len(line), number + 1
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")
    return path


def ours(path: Path) -> float:
    params = load(Path(__file__).parents[1], profile="sandbox")
    settings = Settings.from_env().model_copy(update={"dumps": path.parent})
    source = open_source("dump", Monthly, params=params, settings=settings, today=date(2026, 1, 1))
    start = time.process_time()
    count = sum(1 for _ in source.submissions(Window.from_key(KEY), subreddits=[WANTED]))
    spent = time.process_time() - start
    if not count:
        raise SystemExit("nothing was found")
    return spent


def zstd_alone(path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["zstd", "-dcq", "--long=31", path], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def zstandard_json(path: Path) -> float:
    """Scan with the loop that most scripts for these dumps use."""
    start = time.process_time()
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
        count = sum(json.loads(line)["subreddit"] == WANTED for line in io.TextIOWrapper(reader, encoding="utf-8"))
    spent = time.process_time() - start
    if not count:
        raise SystemExit("nothing was found")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = build(Path(folder), megabytes=options.megabytes)
        runs: dict[Callable[[Path], float], list[float]] = {ours: [], zstd_alone: [], zstandard_json: []}
        for turn in range(options.repeat):
            for run, times in runs.items():
                if run is not zstandard_json or turn < 2:
                    times.append(run(path))
    rate = {run: round(options.megabytes / median(times), 1) for run, times in runs.items()}
    for baseline, name in ((zstd_alone, "zstd -dc alone"), (zstandard_json, "zstandard + json")):
        figures = {"ours": rate[ours], "baseline": rate[baseline], "baseline_name": name}
        ratio = round(rate[ours] / rate[baseline], 2)
        print(json.dumps({"name": "dump_scan", **figures, "ratio": ratio, "unit": "MB per CPU second"}))


if __name__ == "__main__":
    main()
