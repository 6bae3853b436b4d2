"""Format submissions with Reddit's hundred keys, as the API shows them now, and write the archives that stored them.

The archives are zstd files in Pushshift's and Arctic Shift's formats.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import orjson
import zstandard

from crisis_corpus_sandbox.reddit import seeded
from crisis_corpus_sandbox.reddit.generated_posts import HOME, SandboxPicture, SandboxPost
from pipelines.core.config.collect import Sandbox

Item = dict[str, Any]
GONE = ("deleted", "deleted_later")
REMOVERS = ("moderator", "reddit", "automod_filtered", "anti_evil_ops")
PREVIEWS = (108, 216, 320, 640)
# Keys with the same value in every synthetic submission.
NULL = (
    "approved_at_utc approved_by author_flair_background_color author_flair_css_class author_flair_template_id "
    "author_flair_text author_flair_text_color banned_at_utc banned_by category content_categories discussion_type "
    "distinguished likes link_flair_css_class link_flair_text media mod_note mod_reason_by mod_reason_title "
    "num_reports parent_whitelist_status pwls removal_reason removed_by removed_by_category report_reasons "
    "secure_media suggested_sort top_awarded_type view_count whitelist_status wls"
)
FALSE = (
    "allow_live_comments archived author_is_blocked author_patreon_flair author_premium can_gild can_mod_post clicked "
    "contest_mode edited hidden hide_score is_created_from_ads_ui is_meta is_original_content locked media_only "
    "pinned quarantine saved stickied visited"
)
LISTS = "all_awardings author_flair_richtext awarders link_flair_richtext mod_reports treatment_tags user_reports"
TEXT_STYLE = {"author_flair_type": "text", "link_flair_type": "text", "link_flair_text_color": "dark"}
CONSTANT: Item = dict(
    sorted(
        (
            dict.fromkeys(NULL.split())
            | dict.fromkeys(FALSE.split(), False)
            | dict.fromkeys(("is_crosspostable", "is_robot_indexable", "no_follow", "send_replies"), True)
            | dict.fromkeys(("gilded", "num_crossposts", "total_awards_received"), 0)
            | {name: [] for name in LISTS.split()}
            | {name: {} for name in ("gildings", "media_embed", "secure_media_embed")}
            | {"link_flair_background_color": "", "subreddit_type": "public", "upvote_ratio": 1.0}
            | TEXT_STYLE
        ).items()
    )
)


def live(post: SandboxPost, *, port: int) -> Item:
    """Return the submission as Reddit's API shows it now (with ``raw_json``), after deletions and removals."""
    item = original(post, port=port)
    number = int(post.id, 36)
    if post.case in GONE:
        item |= {"author": "[deleted]", "selftext": "[deleted]" if item["is_self"] or number % 2 else item["selftext"]}
        item["removed_by_category"] = "deleted" if number % 3 else None
    elif post.case == "removed":
        item["removed_by_category"] = REMOVERS[number % len(REMOVERS)]
        item["selftext"] = "[removed]" if number % 2 else item["selftext"]
    elif post.case == "removed_body":
        item["selftext"] = "[removed]"
    return item


def original(post: SandboxPost, *, port: int) -> Item:
    """Return the submission as it was posted originally."""
    number = int(post.id, 36)
    there = f"/r/{post.subreddit}/comments/{post.id}/{_slug(post.title)}/"
    digest = _digest(post.author)
    item = CONSTANT | {
        "author": post.author,
        "author_fullname": f"t2_{digest[:8]}",
        "created": int(post.created.timestamp()),
        "created_utc": int(post.created.timestamp()),
        "domain": "127.0.0.1",
        "id": post.id,
        "is_gallery": post.kind == "gallery",
        "is_reddit_media_domain": post.kind in ("image", "gallery"),
        "is_self": post.kind == "text",
        "is_video": post.kind == "video",
        "name": post.fullname,
        "num_comments": number % 23,
        "over_18": number % 29 == 0,
        "permalink": there,
        "score": number % 500,
        "selftext": post.body,
        "spoiler": number % 31 == 0,
        "subreddit": post.subreddit,
        "subreddit_id": f"t5_{_digest(post.subreddit)[:6]}",
        "subreddit_name_prefixed": f"r/{post.subreddit}",
        "subreddit_subscribers": 20_000 + number % 997,
        "thumbnail": "self" if post.kind == "text" else "default",
        "title": post.title,
        "ups": number % 500,
        "downs": 0,
        "url": f"https://www.reddit.com{there}",
    }
    if not post.body:
        item["selftext"] = ""
    return item | _kind(post, port=port)


def escaped(value: Any) -> Any:
    """Return an item with ampersand, less-than and greater-than signs escaped, as Reddit escapes them by default."""
    if isinstance(value, str):
        return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if isinstance(value, list):
        return [escaped(v) for v in value]
    return {k: escaped(v) for k, v in value.items()} if isinstance(value, dict) else value


def _kind(post: SandboxPost, *, port: int) -> Item:
    if post.parent is not None:
        parent = original(post.parent, port=port)
        shared = {k: parent[k] for k in ("url", "preview", "post_hint", "domain") if k in parent}
        return shared | {"crosspost_parent": post.parent.fullname, "crosspost_parent_list": [parent]}
    if post.kind == "text":
        return {"domain": f"self.{post.subreddit}"}
    if post.kind == "gallery":
        return _gallery(post, port=port)
    if post.kind == "video":
        address = f"https://v.redd.it/{_digest(post.link)[:13]}"
        return {"url": address, "domain": "v.redd.it", "post_hint": "hosted:video"}
    if post.kind == "link":
        return {"url": post.link, "domain": "example.org", "post_hint": "link"}
    picture = post.pictures[0]
    item: Item = {"url": _address(picture, port=port), "post_hint": "image"}
    shown = picture.preview or (picture.rendering if picture.fault is None else None)
    if shown is not None:
        width, height = shown.meme.width, shown.meme.height
        rungs = [
            {"url": _preview(shown.file, port=port, width=w), "width": w, "height": w * height // width}
            for w in PREVIEWS
            if w <= width
        ]
        source = {"url": _preview(shown.file, port=port), "width": width, "height": height}
        images = [{"id": _digest(shown.file)[:24], "source": source, "resolutions": rungs, "variants": {}}]
        item["preview"] = {"enabled": True, "images": images}
    return item


def _gallery(post: SandboxPost, *, port: int) -> Item:
    """Return a gallery's keys; ``gallery_data`` gives the order, ``media_metadata`` is a mapping in another order."""
    entries, metadata = [], {}
    for number, picture in enumerate(post.pictures):
        media = _digest(picture.file)[:13]
        entries.append({"media_id": media, "id": int(post.id, 36) % 10**8 + number})
        if picture.rendering:
            width, height = picture.rendering.meme.width, picture.rendering.meme.height
            rungs = [
                {"x": w, "y": w * height // width, "u": _preview(picture.file, port=port, width=w)}
                for w in PREVIEWS
                if w <= width and picture.fault is None
            ]
            whole = {"x": width, "y": height, "u": _address(picture, port=port)}
            metadata[media] = {"status": "valid", "e": "Image", "m": "image/jpg", "p": rungs, "s": whole, "id": media}
    if post.failed_item:
        entries.append({"media_id": "failed" + post.id, "id": 1})
        metadata["failed" + post.id] = {"status": "failed"}
    return {
        "url": f"https://www.reddit.com/gallery/{post.id}",
        "domain": "reddit.com",
        "gallery_data": {"items": entries},
        "media_metadata": dict(sorted(metadata.items())),
    }


def _address(picture: SandboxPicture, *, port: int) -> str:
    return picture.address or f"http://127.0.0.1:{port}/i/{picture.file}"


def _preview(file: str, *, port: int, width: int | None = None) -> str:
    size = f"width={width}&crop=smart&" if width else ""
    return f"http://127.0.0.1:{port}/p/{file}?{size}auto=webp&s={_digest(file)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _slug(title: str) -> str:
    return "_".join("".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split())[:50]


# The window that frames of Pushshift's files declare, and the window really searched for matches. A decoder must
# explicitly allow the former; memory use is bounded by the content, because only the declaration is enlarged.
DECLARED, SEARCHED = 31, 27
FRAMES = 5
# Shares of archived rows: seen by one archive only; archived twice; written by another JSON writer.
ONE_ARCHIVE, TWICE, SPACED, ASCII = 0.04, 0.03, 0.2, 0.2
HOUR = 3600


def write(folder: Path, *, posts: Sequence[SandboxPost], sandbox: Sandbox, subreddit: str = HOME) -> None:
    """Write both dumps of a subreddit's posts with their ``.sha256`` files.

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
    for name, items, declared in (("submissions", pushshift, DECLARED), ("submissions_arctic", arctic, SEARCHED)):
        content = b"\n".join(_line(item, rng=rng) for item in items) + b"\n"
        parts = _parts(content, rng=rng)
        write_frames(folder / f"{subreddit}_{name}.zst", frames=(frame(part, declared=declared) for part in parts))


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
    if later or rng.random() < 0.7:
        deletion = {"was_deleted_later": True, "removal_type": "deleted"} if later else {}
        item["_meta"] = {"retrieved_2nd_on": item["created_utc"] + 36 * HOUR} | deletion
    return item


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
