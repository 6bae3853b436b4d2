"""Write the archives of the offline Reddit as zstd files in Pushshift's and Arctic Shift's formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import orjson
import zstandard

from crisis_corpus_sandbox.reddit.chance import seeded
from crisis_corpus_sandbox.reddit.generated_posts import HOME, SandboxPost
from crisis_corpus_sandbox.reddit.listing import Item, escaped, live, original
from pipelines.config.collect import Sandbox

# The window that frames of Pushshift's files declare, and the window really searched for matches. A decoder must
# explicitly allow the former; memory use is bounded by the content, because only the declaration is enlarged.
DECLARED, SEARCHED = 31, 27
FRAMES = 5
# Shares of archived rows: seen by one archive only; archived twice; written by another JSON writer.
ONE_ARCHIVE, TWICE, SPACED, ASCII = 0.04, 0.03, 0.2, 0.2
HOUR = 3600


def write(folder: Path, *, posts: Sequence[SandboxPost], sandbox: Sandbox, subreddit: str = HOME) -> list[Path]:
    """Write both dumps of a subreddit's posts with their ``.sha256`` files, and return the two paths.

    Every deletion is visible in at least one dump: a post that its author deleted later is complete in Pushshift's
    file and marked ``_meta.was_deleted_later`` in Arctic Shift's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = seeded(sandbox.seed, "dumps", *([] if subreddit == HOME else [subreddit]))
    pushshift, arctic = [], []
    for post in posts:
        chance = rng.random() if post.case in ("plain", "elsewhere") else 0.5
        if chance >= ONE_ARCHIVE:
            pushshift += _pushshift(post, port=sandbox.port, rng=rng)
        if chance < 1 - ONE_ARCHIVE:
            arctic.append(_arctic(post, port=sandbox.port, rng=rng))
    name = f"{subreddit}_submissions"
    return [
        _file(folder / f"{name}.zst", items=pushshift, declared=DECLARED, rng=rng),
        _file(folder / f"{name}_arctic.zst", items=arctic, declared=SEARCHED, rng=rng),
    ]


def _pushshift(post: SandboxPost, *, port: int, rng: Random) -> list[Item]:
    """Return the post's rows: the one archived within hours and, for some posts, an older one with a different body."""
    number = int(post.id, 36)
    early = post.case == "deleted_later" or (post.case in ("deleted", "removed", "removed_body") and number % 2 == 0)
    item: Item = escaped((original if early else live)(post, port=port))
    item["retrieved_on"] = item["created_utc"] + rng.randint(HOUR, 12 * HOUR)
    if post.case in ("plain", "text") and rng.random() < TWICE:
        older = item | {"selftext": "Words before an edit.", "retrieved_on": item["created_utc"] + 60, "score": 1}
        return [older, item]
    return [item]


def _arctic(post: SandboxPost, *, port: int, rng: Random) -> Item:
    """Return the post's row, with ``_meta`` from the second retrieval 36 hours later if there was one."""
    later = post.case == "deleted_later"
    item: Item = escaped((original if later else live)(post, port=port))
    item["retrieved_on"] = item["created_utc"] + rng.randint(10, 600)
    if later:
        item["_meta"] = {
            "retrieved_2nd_on": item["created_utc"] + 36 * HOUR,
            "was_deleted_later": True,
            "removal_type": "deleted",
        }
    elif rng.random() < 0.7:
        item["_meta"] = {"retrieved_2nd_on": item["created_utc"] + 36 * HOUR}
    return item


def _file(path: Path, *, items: Iterable[Item], declared: int, rng: Random) -> Path:
    content = b"\n".join(_line(item, rng=rng) for item in items) + b"\n"
    write_frames(path, frames=(frame(part, declared=declared) for part in _parts(content, rng=rng)))
    return path


def _line(item: Item, *, rng: Random) -> bytes:
    chance = rng.random()
    if chance < SPACED:
        return json.dumps(item, ensure_ascii=chance < SPACED / 2).encode()
    if chance < SPACED + ASCII:
        return json.dumps(item, separators=(",", ":")).encode()
    return orjson.dumps(item)


def _parts(content: bytes, *, rng: Random) -> Iterator[bytes]:
    """Cut ``content`` at arbitrary positions, first inside a multi-byte character."""
    inside = next((i for i, byte in enumerate(content) if 0x80 <= byte < 0xC0), len(content) // 2)
    cuts = sorted({inside, *(rng.randrange(inside + 1, len(content)) for _ in range(FRAMES - 2))})
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        yield content[start:end]


def frame(content: bytes, *, declared: int, level: int = 3) -> bytes:
    """Compress ``content`` to one zstd frame with checksum, long-distance matching and a declared window size.

    ``declared`` is the binary logarithm of that size. The window descriptor (RFC 8878, 3.1.1.1.2) is the sixth byte;
    enlarging it leaves the blocks valid.
    """
    settings = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=SEARCHED, enable_ldm=True, write_checksum=True, write_content_size=False
    )
    compressor = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    data = bytearray(compressor.compress(content) + compressor.flush())
    if data[4] & 0b0010_0000:
        raise ValueError("a single-segment frame has no window descriptor")
    data[5] = (declared - 10) << 3
    return bytes(data)


def write_frames(path: Path, *, frames: Iterable[bytes]) -> None:
    """Write zstd frames to a file one after another, and the file's SHA-256 to a ``.sha256`` file."""
    sha256 = hashlib.sha256()
    with path.open("wb") as file:
        for data in frames:
            file.write(data)
            sha256.update(data)
    path.with_name(path.name + ".sha256").write_text(f"{sha256.hexdigest()}  {path.name}\n", encoding="ascii")
