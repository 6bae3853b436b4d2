"""Parse the items of every source into ``Submission``, or drop them with a reason.

Reddit, Pushshift and Arctic Shift differ in escaping, in number types and in how they mark a deletion. This module
removes these differences, so that all sources give the same submission for the same post.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import orjson

from pipelines.collect.month import Window

FULLNAME = re.compile(r"t3_[0-9a-z]{1,13}")
PICTURES = {".jpg", ".jpeg", ".png", ".gif", ".webp"}
REDDIT = {"reddit.com", "www.reddit.com", "old.reddit.com", "new.reddit.com"}
ADDRESS = re.compile(r"https?://[^/?#\s\[\]]+(?:[/?#]\S*)?", re.IGNORECASE)
# Smaller previews are not legible: OCR reads at a side of 736 (SPEC 2.6); Reddit offers 640, 960 and 1080.
MIN_PREVIEW_WIDTH = 640
# Reddit opened in June 2005; times in milliseconds, or of a defect, are no dates.
EARLIEST, LATEST = 1.1e9, 4.1e9
# Reasons of a drop which also apply to other copies of the record.
DELETIONS = {"deleted", "removed", "deleted_later"}
DELETED = {"[deleted]", "[deleted by user]"}
# Imgur's hosts, and the paths of its pages: of pictures (several ids are joined by commas), of albums and of galleries.
# A gallery can be an album, and the id of an album can be that of another picture.
IMGUR = {"imgur.com", "www.imgur.com", "m.imgur.com", "i.imgur.com"}
IMGUR_IDS = re.compile(r"[A-Za-z0-9]{5,7}(?:,[A-Za-z0-9]{5,7})*")
IMGUR_ALBUM = re.compile(r"(?:a|gallery|r|t|topic)/.+", re.IGNORECASE)
REMOVED = re.compile(r"\[ ?removed( by reddit\b.*)?[. ]*\]", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Submission:
    """A post that may enter the corpus; ``media`` lists each image's address, followed by those of its previews."""

    fullname: str
    author: str
    subreddit: str
    created: datetime
    kind: str
    title: str
    body: str
    media: tuple[tuple[str, ...], ...]
    nsfw: bool
    spoiler: bool
    source: str
    source_digest: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A post that is left out, with the reason: ``deleted``, ``crosspost``, ``malformed`` or similar.

    A comment (reason ``comment``) has a name of its own, since its id may be that of a post.
    """

    fullname: str
    reason: str


def parse(item: Mapping[str, Any], *, source: str, source_digest: str, raw: bool = False) -> Submission | Dropped:
    """Convert one item of a source to the common schema, or return ``Dropped`` with the reason.

    A deletion outranks every other reason, because it also applies to other copies of the post. A crosspost is dropped
    because its parent is collected separately. An item without a usable id gets a fullname made from its digest, so
    that it is counted. The archives keep the three characters that Reddit escapes unless it is asked for ``raw`` text.
    """
    if _is_comment(item):
        return Dropped("comment:" + _digest(item), "comment")
    fullname = fullname_of(item)
    if fullname is None:
        return Dropped("malformed:" + _digest(item), "malformed")
    reason = _deletion(item)
    if reason is None and (item.get("crosspost_parent") or item.get("crosspost_parent_list")):
        reason = "crosspost"
    if reason:
        return Dropped(fullname, reason)
    created = created_of(item)
    author, subreddit, title = (item.get(k) for k in ("author", "subreddit", "title"))
    body = item.get("selftext") or ""
    fields = (author, subreddit, title, body)
    if created is None or not all(isinstance(f, str) and _is_unicode(f) for f in fields) or not (author and subreddit):
        return Dropped(fullname, "malformed")
    kind = _kind(item)
    return Submission(
        fullname=fullname,
        author=str(author),
        subreddit=str(subreddit),
        created=created,
        kind=kind,
        title=str(title) if raw else _unescape(str(title)),
        body=body if raw else _unescape(body),
        media=_media(item, kind=kind),
        nsfw=bool(item.get("over_18")),
        spoiler=bool(item.get("spoiler")),
        source=source,
        source_digest=source_digest,
    )


def post_of(item: Any, *, subreddit: str, place: str) -> Mapping[str, Any]:
    """Return an item of a response; one that is no post becomes a malformed post, identified by ``place``."""
    if isinstance(item, dict) and isinstance(item.get("subreddit"), str):
        return item
    return {"subreddit": subreddit, "name": fullname_of(item) if isinstance(item, dict) else None, "place": place}


def fullname_of(item: Mapping[str, Any]) -> str | None:
    """Return ``t3_...`` or ``None``; old dumps have an ``id`` and no ``name``."""
    name = item.get("name") or f"t3_{item.get('id')}"
    return name if isinstance(name, str) and FULLNAME.fullmatch(name) else None


def created_of(item: Mapping[str, Any]) -> datetime | None:
    """Return the creation time in UTC, or ``None`` if it is unusable; old dumps contain the seconds as a string."""
    try:
        seconds = float(item["created_utc"])
        return datetime.fromtimestamp(seconds, tz=UTC).replace(microsecond=0) if EARLIEST <= seconds < LATEST else None
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def retrieved_of(item: Mapping[str, Any]) -> float:
    """Return when the source last retrieved the item (seconds since the epoch), or 0.0 if unknown."""
    times = (item.get("retrieved_on"), item.get("retrieved_utc"), _get(item, "_meta", "retrieved_2nd_on"))
    # not NaN, nor an integer that no float holds
    return max((float(t) for t in times if isinstance(t, int | float) and 0 < t < LATEST), default=0.0)


def _is_comment(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a comment; dumps of comments have ids of their own and no titles."""
    return (
        str(item.get("name")).startswith("t1_")
        or any(item.get(key) for key in ("link_id", "parent_id"))
        or ("body" in item and "title" not in item)
    )


def _deletion(item: Mapping[str, Any]) -> str | None:
    """Return why the item was deleted or removed, or ``None``.

    ``_meta`` is from Arctic Shift's second retrieval, 36 hours later: an item with ``was_deleted_later`` still has its
    text, one with ``was_initially_deleted`` was restored. ``removal_reason`` and ``banned_by`` are from the years
    before ``removed_by_category``.
    """
    author, body, title = (str(item.get(k) or "").strip() for k in ("author", "selftext", "title"))
    category = item.get("removed_by_category")
    later = bool(_get(item, "_meta", "was_deleted_later"))
    past = later or _get(item, "_meta", "was_initially_deleted")
    removal = None if past else _get(item, "_meta", "removal_type")
    if {author.lower(), body.lower(), title.lower()} & DELETED or "deleted" in (category, removal):
        return "deleted"
    earlier = item.get("removal_reason") or item.get("banned_by")
    if category or removal or earlier or REMOVED.fullmatch(body) or REMOVED.fullmatch(title):
        return "removed"
    return "deleted_later" if later else None


def _kind(item: Mapping[str, Any]) -> str:
    """Return ``gallery``, ``text``, ``video``, ``image``, ``album`` (of Imgur, without a preview) or ``link``."""
    host, path = _place(item)
    if item.get("is_gallery") or item.get("gallery_data") or (host in REDDIT and path.startswith("gallery/")):
        return "gallery"
    if item.get("is_self"):
        return "text"
    suffix = _suffix(path)
    hint = str(item.get("post_hint") or "")
    if item.get("is_video") or hint.endswith(":video") or host == "v.redd.it" or suffix == ".gifv":
        return "video"
    if host in IMGUR and IMGUR_ALBUM.fullmatch(path):
        return "image" if _previews(item) else "album"
    page = host in IMGUR and IMGUR_IDS.fullmatch(path)
    return "image" if page or hint == "image" or suffix in PICTURES else "link"


def _media(item: Mapping[str, Any], *, kind: str) -> tuple[tuple[str, ...], ...]:
    if kind == "gallery":
        return tuple(m for m in _gallery(item) if m)
    if kind != "image":
        return ()
    first, *others = _pictures(item)
    addresses_of_first = tuple(dict.fromkeys(a for a in (first, *_previews(item)) if a))
    return tuple(addresses for addresses in (addresses_of_first, *((other,) for other in others)) if addresses)


def _place(item: Mapping[str, Any]) -> tuple[str, str]:
    address = re.split(r"[?#]", _url(item.get("url")), maxsplit=1)[0]
    host, _, path = address.partition("://")[2].partition("/")
    return host.lower(), path.rstrip("/")


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _pictures(item: Mapping[str, Any]) -> list[str]:
    """Return the addresses of a post's pictures, the first of them empty if only previews of it are known.

    A page of Imgur is replaced by its pictures: Imgur answers ``ID.jpg`` with the picture in its own format. The
    pictures of an album cannot be found without Imgur's API.
    """
    host, path = _place(item)
    if host not in IMGUR or (host == "i.imgur.com" and _suffix(path)):
        return [_url(item.get("url"))]
    if IMGUR_IDS.fullmatch(path):
        return [f"https://i.imgur.com/{name}.jpg" for name in path.split(",")]
    return [f"https://i.imgur.com/{path}" if "/" not in path and _suffix(path) in PICTURES else ""]


def _previews(item: Mapping[str, Any]) -> list[str]:
    images = _get(item, "preview", "images")
    first = images[0] if isinstance(images, list) and images else {}
    return [a for a in (_url(_get(first, "source", "url")), *_ladder(_get(first, "resolutions"), "")) if a]


def _gallery(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield each picture's addresses in display order; a picture that Reddit never processed has none.

    Without ``gallery_data``, the order is that of ``media_metadata``.
    """
    entries = _get(item, "gallery_data", "items")
    names = [str(_get(entry, "media_id")) for entry in entries] if isinstance(entries, list) else []
    known = item.get("media_metadata")
    for name in names or (known if isinstance(known, Mapping) else ()):
        shown = _get(known, name)
        full = _get(shown, "s")
        addresses = [_url(_get(full, "u")) or _url(_get(full, "gif")), *_ladder(_get(shown, "p"), "short")]
        yield tuple(dict.fromkeys(a for a in addresses if a))


def _ladder(sizes: Any, names: str) -> list[str]:
    """Return the legible previews, widest first; ``short`` selects the shorter keys of galleries."""
    width, url = ("x", "u") if names == "short" else ("width", "url")
    rungs = [s for s in sizes if isinstance(s, Mapping)] if isinstance(sizes, list) else []
    legible = [s for s in rungs if isinstance(s.get(width), int) and s[width] >= MIN_PREVIEW_WIDTH]
    return [_url(s.get(url)) for s in sorted(legible, key=lambda s: -int(s[width]))]


def _get(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _url(value: Any) -> str:
    if not isinstance(value, str) or not _is_unicode(value):
        return ""
    address = _unescape(value).strip()
    return address if ADDRESS.fullmatch(address) else ""


def _unescape(text: str) -> str:
    return text if "&" not in text else text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _digest(item: Mapping[str, Any]) -> str:
    try:
        data = orjson.dumps(item, option=orjson.OPT_SORT_KEYS, default=str)
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        data = json.dumps(item, sort_keys=True, default=str).encode()
    return hashlib.sha256(data).hexdigest()[:32]


class Gathered:
    """The items of one month by fullname; of several copies, a deleted one is kept first, then the newest.

    Archives hold a post several times and disagree; a post that is deleted in any of them is deleted.
    """

    def __init__(self, window: Window, *, subreddits: Sequence[str], source: str) -> None:
        self.window = window
        self.wanted = {s.lower() for s in subreddits}
        self.seen: set[str] = set()
        self.source = source
        self._items: dict[str, tuple[tuple[int, float], Submission | Dropped]] = {}

    def add(self, item: Mapping[str, Any], *, source_digest: str) -> tuple[Submission | Dropped, float] | None:
        """Add an item of the window and the subreddits; return it with its retrieval time (epoch or 0.0).

        An item without a usable date is counted as malformed in every month that reads it.
        """
        subreddit = item.get("subreddit")
        if not isinstance(subreddit, str) or subreddit.lower() not in self.wanted:
            return None
        created = created_of(item)
        if created is not None and created not in self.window:
            return None
        self.seen.add(subreddit.lower())
        parsed = parse(item, source=self.source, source_digest=source_digest)
        retrieved = retrieved_of(item)
        self.put(parsed, retrieved=retrieved)
        return parsed, retrieved

    def put(self, parsed: Submission | Dropped, *, retrieved: float) -> None:
        """Store an item of the month; of two items with equal rank and time, the one added later is kept."""
        rank = 1
        if isinstance(parsed, Dropped):
            rank = 2 if parsed.reason in DELETIONS else 0 if parsed.reason == "malformed" else 1
        known = self._items.get(parsed.fullname)
        if known is None or (rank, retrieved) >= known[0]:
            self._items[parsed.fullname] = ((rank, retrieved), parsed)

    def __iter__(self) -> Iterator[Submission | Dropped]:
        return (item for _, item in self._items.values())
