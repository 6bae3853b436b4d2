"""Fetch the items of a release again, with your own access to Reddit: python hydrate.py PACKAGE --key FILE --out DIR

Needs only Python 3.11. Set REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET and REDDIT_USER_AGENT to those of your own Reddit
application; REDDIT_URL, REDDIT_OAUTH_URL and IMAGE_HOSTS replace the default addresses.

The key authenticates the package and its removal lists; nothing is fetched or deleted before that.

Every item gets an outcome: ok, deleted (by its author), removed (by others), changed (differs from the labelled post),
unavailable (not shown by Reddit now; fetched again next time) or withdrawn (on the removal list; never fetched, and
removed from DIR). Content goes to DIR/posts and DIR/images, outcomes to DIR/outcomes.jsonl, counts by label and split
to DIR/attrition.json. A killed run resumes where it stopped. --again fetches everything again.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import hmac
import io
import ipaddress
import json
import os
import re
import struct
import sys
import time
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import Any

OUTCOMES = ("ok", "deleted", "removed", "changed", "unavailable", "withdrawn")
# Reddit's limit of posts per request.
BATCH = 100
TRIES, PICTURE_TRIES = 5, 3
TIMEOUT_SECONDS = 30.0
DEFAULT_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 60.0, 3600.0
# Reddit's own limit for images.
MAX_PICTURE_BYTES = 20 * 2**20
# Of an answer of the API: more than 100 of the longest posts.
MAX_ANSWER_BYTES = 64 * 2**20
IMAGE_HOSTS = "i.redd.it,preview.redd.it,external-preview.redd.it,i.imgur.com"
# A page of Imgur, whose pictures i.imgur.com has.
IMGUR = re.compile(r"(?i:https?://(?:www\.|m\.|i\.)?imgur\.com)/([A-Za-z0-9,]+)(\.[A-Za-z]+)?/?(?:[?#].*)?", re.DOTALL)
ID = re.compile(r"[0-9a-f]{32}")
IMAGE = re.compile(r"[0-9]{1,3}")
# Of a file of the package, and of a release.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SUFFIXES = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
# Fullnames are padded to the same length, because the length of an id reveals its age.
FULLNAME = re.compile(r"t3_[0-9a-z]{1,13}")
FULLNAME_BYTES = 16
TAG_BYTES = 16
# Stored instead of two lengths if the text has no placeholder.
WHOLE = (2**32 - 1, 2**32 - 1)
KEY_BYTES = 32
# The version of manifest.json and removal.json.
FORMAT = 1
# Placeholders written by scrubbing; the text between the first and the last cannot be compared.
PLACEHOLDER = re.compile(
    r"<(?:url|email|user|subreddit|ip|handle|phone|name|place|card|iban|coordinate|discord|birth|removed)>"
)
# With fewer known characters, the digest could be guessed and would be of little use for comparison.
MIN_KNOWN = 16
DELETED = {"[deleted]", "[deleted by user]"}
REMOVED = re.compile(r"\[ ?removed( by reddit\b.*)?[. ]*\]", re.IGNORECASE | re.DOTALL)

Sleep = Callable[[float], None]
Say = Callable[[str], None]


class Stop(Exception):
    """An error that ends the hydration command, with an exit status of sysexits.h."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


# Encryption of Reddit addresses, bound to release ids, and keyed digests of the labelled content. The standard library
# has no AES: this is SIV (Rogaway and Shrimpton 2006) with HMAC-SHA-256 for both tag and stream.


def _mac(key: bytes, purpose: str, *parts: bytes) -> bytes:
    own = hmac.digest(key, f"crisis-corpus/release/{purpose}".encode(), "sha256")
    return hmac.digest(own, b"".join(len(p).to_bytes(4, "big") + p for p in parts), "sha256")


def authenticated(key: bytes, purpose: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts with ``mac``, an authentication code that only a holder of the release's key can compute."""
    plain = {"format": FORMAT} | {name: value for name, value in facts.items() if name != "mac"}
    written = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    return {**plain, "mac": _mac(key, purpose, written).hex()}


def verified(key: bytes, purpose: str, data: bytes) -> dict[str, Any]:
    """Return the facts in a file that :func:`authenticated` wrote."""
    facts: dict[str, Any] = json.loads(data)
    known = authenticated(key, purpose, facts)["mac"] if isinstance(facts, dict) else ""
    if not known or not hmac.compare_digest(known.encode(), str(facts.get("mac")).encode("utf-8", "replace")):
        raise Stop(
            f"The {purpose} cannot be verified: the key is of another release, or the file was altered. "
            "Download it again.",
            status=65,
        )
    if facts.get("format") != FORMAT:
        raise Stop(f"The {purpose} has another format than {FORMAT}: use the hydrate.py of its package.", status=65)
    return facts


@dataclass(frozen=True)
class Address:
    """The address of a post in a release: its Reddit fullname, and how much of its text is known at both ends.

    ``ends`` are the numbers of known characters (``None``: the whole text). They are encrypted with the name, since
    equal lengths could link a post in two releases.
    """

    fullname: str = field(repr=False)
    ends: tuple[int, int] | None = field(repr=False)


def seal_address(key: bytes, address: Address, *, release_id: str) -> str:
    """Return a post's address encrypted with the release's key and bound to the release id, as 80 hex digits."""
    ends = struct.pack(">II", *(address.ends or WHOLE))
    plain = address.fullname.encode("ascii").ljust(FULLNAME_BYTES, b"\0") + ends
    tag = _mac(key, "tag", release_id.encode(), plain)[:TAG_BYTES]
    stream = _mac(key, "stream", tag)
    return (tag + bytes(a ^ b for a, b in zip(plain, stream, strict=False))).hex()


def open_address(key: bytes, sealed: str, *, release_id: str) -> Address:
    """Decrypt a post's address that :func:`seal_address` encrypted."""
    data = bytes.fromhex(sealed)
    tag, hidden = data[:TAG_BYTES], data[TAG_BYTES:]
    plain = bytes(a ^ b for a, b in zip(hidden, _mac(key, "stream", tag), strict=False))
    if not hmac.compare_digest(tag, _mac(key, "tag", release_id.encode(), plain)[:TAG_BYTES]):
        raise Stop(
            "An address cannot be decrypted: the key is of another release, or fetch.csv was altered.", status=65
        )
    head, tail = struct.unpack(">II", plain[FULLNAME_BYTES:])
    fullname = plain[:FULLNAME_BYTES].rstrip(b"\0").decode("ascii")
    return Address(fullname, None if (head, tail) == WHOLE else (head, tail))


def joined(title: str, body: str) -> str:
    """Join a post's title and body and normalise them for comparison (Unicode NFC, single spaces)."""
    return "\n".join(" ".join(unicodedata.normalize("NFC", text).split()) for text in (title, body))


def known_ends(text: str) -> tuple[int, int] | None:
    """Count the characters before the first and after the last placeholder in a text; ``None`` without placeholders.

    Placeholders replace personal data. Too few characters count as (0, 0), which compares equal with everything.
    """
    placeholders = list(PLACEHOLDER.finditer(text))
    if not placeholders:
        return None
    ends = placeholders[0].start(), len(text) - placeholders[-1].end()
    return ends if sum(ends) >= MIN_KNOWN else (0, 0)


def text_digest(key: bytes, *, release_id: str, text: str, ends: tuple[int, int] | None) -> str:
    """Return the keyed digest of a text, or only of its known start and end if ``ends`` is given."""
    head, tail = (text, "") if ends is None else (text[: ends[0]], text[max(0, len(text) - ends[1]) :])
    # JSON allows half a surrogate pair, which cannot be encoded
    ends_of_it = (part.encode("utf-8", "replace") for part in (head, tail))
    return _mac(key, "text", release_id.encode(), *ends_of_it).hex()[:32]


def _split(address: str) -> urllib.parse.SplitResult:
    try:
        return urllib.parse.urlsplit(address)
    except ValueError:
        # such as half an IPv6 address: treated as empty
        return urllib.parse.urlsplit("")


def picture_digest(key: bytes, *, release_id: str, image: int, address: str) -> str:
    """Return the keyed digest of a picture's address (URL) without its query string."""
    parts = _split(address)
    where = f"{parts.hostname or ''}{parts.path}"
    return _mac(key, "picture", release_id.encode(), str(image).encode(), where.encode("utf-8", "replace")).hex()[:32]


@dataclass(frozen=True)
class ReleaseItem:
    """One item of a release: its labels, its encrypted address and the digests of its content."""

    id: str
    image: int
    split: str
    labels: Mapping[str, tuple[str, ...]]
    address: str = field(repr=False)
    text: str = field(repr=False)
    picture: str = field(repr=False)


@dataclass(frozen=True)
class RemovalList:
    """An authenticated list of withdrawn release ids; a later list has a higher number and contains all earlier ids."""

    number: int
    ids: frozenset[str]
    data: bytes = field(repr=False)

    @classmethod
    def read(cls, data: bytes, *, key: bytes, release: str) -> RemovalList:
        """Verify and parse the bytes of ``removal.json``, the removal list of a release."""
        facts = verified(key, "removal list", data)
        ids = frozenset(map(str, facts["ids"]))
        if facts["release"] != release or not all(map(ID.fullmatch, ids)):
            raise Stop("The removal list is not of this release.", status=65)
        return cls(int(facts["number"]), ids, data)


@dataclass(frozen=True)
class Package:
    """A verified release package: its items, and its newest removal list."""

    release: str
    rows: tuple[ReleaseItem, ...]
    removal: RemovalList

    @property
    def withdrawn(self) -> frozenset[str]:
        return self.removal.ids

    @classmethod
    def read(cls, folder: Path, *, key: bytes, removal: Path | None, draft: bool) -> Package:
        """Read a release package, and check its manifest and lists with the key and its files against the manifest."""
        try:
            manifest = verified(key, "manifest", (folder / "manifest.json").read_bytes())
            release, texts = str(manifest["release"]), _files(folder, digests=manifest["files"])
            if not PLAIN_NAME.fullmatch(release):
                raise Stop("The release's name is not a plain name.", status=65)
            known = RemovalList.read(texts["removal.json"], key=key, release=release)
            newer = RemovalList.read(removal.read_bytes(), key=key, release=release) if removal else known
            rows = tuple(_rows(texts, manifest=manifest))
        except (OSError, ValueError, KeyError, TypeError, csv.Error, RecursionError) as error:
            raise Stop(f"The package cannot be read ({type(error).__name__}).", status=65) from None
        if manifest["status"] != "APPROVED" and not draft:
            raise Stop(
                f"The release is {str(manifest['status'])[:20]}, not approved; use --draft to test a draft.", status=77
            )
        if newer.number < known.number:
            raise Stop("--removal: is older than the list in the package; download the current list.", status=65)
        return cls(release, rows, newer)


def _files(folder: Path, *, digests: Mapping[str, str]) -> dict[str, bytes]:
    texts = {}
    for name, digest in digests.items():
        if not PLAIN_NAME.fullmatch(name):
            raise Stop("manifest.json names a file outside the package.", status=65)
        texts[name] = (folder / name).read_bytes()
        if hashlib.sha256(texts[name]).hexdigest() != digest:
            raise Stop(f"{name} does not match manifest.json: download the package again.", status=65)
    return texts


def _table(data: bytes) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    if not all(ID.fullmatch(row["id"]) and IMAGE.fullmatch(row.get("image", "0")) for row in rows):
        raise Stop("A table contains an id that is not of a release.", status=65)
    return rows


def _rows(texts: Mapping[str, bytes], *, manifest: Mapping[str, Any]) -> Iterator[ReleaseItem]:
    if manifest["form"] == "annotations":
        splits = {(r["id"], r.get("image")): r["split"] for r in _table(texts["splits.csv"])}
        labelled = [(r, splits[r["id"], r.get("image")]) for r in _table(texts["annotations.csv"])]
    else:
        labelled = [(r, split) for split in manifest["splits"] for r in _table(texts[f"{split}.csv"])]
    fetch = {(r["id"], r["image"]): r for r in _table(texts["fetch.csv"])}
    for row, split in labelled:
        known = fetch[row["id"], row.get("image", "0")]
        labels = {c: tuple(filter(None, row[c].split("|"))) for c in manifest["labels"]}
        keyed = {part: known[part] for part in ("address", "text", "picture")}
        yield ReleaseItem(row["id"], int(known["image"]), split, labels, **keyed)


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener of http and https alone, so that credentials and requests go only to the named hosts.

    It has no handler of redirects, files or FTP. A proxy of the environment is used for https only: it sees the host's
    name but not the request.
    """
    opener = urllib.request.OpenerDirector()
    proxies = {scheme: address for scheme, address in urllib.request.getproxies().items() if scheme == "https"}
    for handler in (
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class RedditClient:
    """A client of Reddit's API for one application, which obeys the rate limit in Reddit's response headers."""

    def __init__(self, environment: Mapping[str, str], *, sleep: Sleep) -> None:
        names = ("REDDIT_CLIENT_ID", "REDDIT_CLIENT_SECRET", "REDDIT_USER_AGENT")
        if missing := [name for name in names if not environment.get(name)]:
            raise Stop(f"{', '.join(missing)}: not set; export them as DATASHEET.md shows.", status=78)
        client, secret, self._agent = (environment[name] for name in names)
        self._basic = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._token_url = _checked(environment.get("REDDIT_URL", "https://www.reddit.com"), name="REDDIT_URL")
        self._api_url = _checked(
            environment.get("REDDIT_OAUTH_URL", "https://oauth.reddit.com"), name="REDDIT_OAUTH_URL"
        )
        self._hosts = {host.strip() for host in environment.get("IMAGE_HOSTS", IMAGE_HOSTS).split(",")}
        self._open = _opener().open
        self._sleep = sleep
        self._token, self._pause = "", 0.0

    def posts(self, fullnames: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Return the posts that Reddit shows, by fullname (at most 100 per call); posts that it hides are omitted."""
        query = urllib.parse.urlencode({"id": ",".join(fullnames), "raw_json": 1})
        for renewed in (False, True):
            if not self._token or renewed:
                self._token = self._granted()
            request = self._request(f"{self._api_url}/api/info?{query}", authorization=f"bearer {self._token}")
            status, data = self._answered(request)
            if status != 401:
                break
        try:
            children = json.loads(data)["data"]["children"] if status == 200 else None
            shown = {str(c["data"]["name"]): c["data"] for c in children or ()}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Stop("Reddit's answer cannot be parsed. Run the command again later.", status=75) from None
        if children is None:
            raise Stop(f"Reddit refused the request: HTTP {status}. Check your application's access.", status=77)
        return shown

    def picture(self, address: str) -> tuple[bytes, str] | str:
        """Download a picture of a post by https; return its bytes and file suffix, or the reason for the failure."""
        parts = _split(address)
        if parts.scheme == "http" and not _is_safe(parts):
            address = parts._replace(scheme="https").geturl()
            parts = _split(address)
        # an address is ASCII, also its query string, which the digest does not cover
        if parts.hostname not in self._hosts or not _is_safe(parts) or not address.isascii():
            return "picture_host"
        answered = self._sent(self._request(address), tries=PICTURE_TRIES, most=MAX_PICTURE_BYTES + 1)
        if answered is None:
            return "picture_unreachable"
        status, headers, data = answered
        if not 200 <= status < 300:
            return f"picture_http_{status}"
        if len(data) > MAX_PICTURE_BYTES:
            return "picture_size"
        whole, kind = headers.get("Content-Length") in (None, str(len(data))), headers.get_content_type()
        return "picture_type" if kind not in SUFFIXES else (data, SUFFIXES[kind]) if whole else "picture_cut"

    def _granted(self) -> str:
        form = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
        request = self._request(f"{self._token_url}/api/v1/access_token", authorization=self._basic, data=form)
        status, data = self._answered(request)
        try:
            return str(json.loads(data)["access_token"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Stop(
                f"Reddit issued no token: HTTP {status}. Check REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET.", status=77
            ) from None

    def _request(self, url: str, *, authorization: str = "", data: bytes | None = None) -> urllib.request.Request:
        headers = {"User-Agent": self._agent} | ({"Authorization": authorization} if authorization else {})
        return urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - checked: https or this machine

    def _answered(self, request: urllib.request.Request) -> tuple[int, bytes]:
        """Send a request to the API after the wait that it wants; return status and body of its definite answer."""
        answered = self._sent(request, tries=TRIES, most=MAX_ANSWER_BYTES, wait=self._pause)
        if answered is None:
            raise Stop("Reddit does not answer. Fetched posts are kept; run the command again later.", status=75)
        status, headers, data = answered
        spent = _number(headers.get("x-ratelimit-remaining"), default=1.0) < 1
        self._pause = _wait(headers) if spent else 0.0
        return status, data

    def _sent(
        self, request: urllib.request.Request, *, tries: int, most: int, wait: float = 0.0
    ) -> tuple[int, Message, bytes] | None:
        """Send a request, with retries and waits; return status, headers and body of the first definite answer."""
        for attempt in range(tries):
            if wait:
                self._sleep(wait)
            wait = 2.0**attempt
            try:
                with self._open(request, timeout=TIMEOUT_SECONDS) as answer:
                    status, headers, data = answer.status, answer.headers, answer.read(most)
            except urllib.error.HTTPError as error:
                status, headers, data = error.code, error.headers, b""
                error.close()
            except (OSError, HTTPException):
                continue
            if status != 429 and status < 500:
                return status, headers, data
            if status == 429:
                wait = _wait(headers)
        return None


def _number(text: str | None, *, default: float) -> float:
    try:
        return float(text or "")
    except ValueError:
        return default


def _wait(headers: Message) -> float:
    asked = headers.get("retry-after") or headers.get("x-ratelimit-reset")
    # not a number (NaN) is the shortest wait
    return min(max(1.0, _number(asked, default=DEFAULT_WAIT_SECONDS)), LONGEST_WAIT_SECONDS)


def _is_safe(parts: urllib.parse.SplitResult) -> bool:
    try:
        local = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = parts.hostname == "localhost"
    return parts.scheme == "https" or (parts.scheme == "http" and local)


def _checked(address: str, *, name: str) -> str:
    if not _is_safe(urllib.parse.urlsplit(address)):
        raise Stop(f"{name}: must be an https address or on this machine.", status=78)
    return address.rstrip("/")


def gone(post: Mapping[str, Any]) -> str | None:
    """Return ``deleted`` or ``removed`` if Reddit shows the post without its content, else ``None``."""
    author, body, title = (str(post.get(k) or "").strip() for k in ("author", "selftext", "title"))
    category = post.get("removed_by_category")
    earlier = post.get("removal_reason") or post.get("banned_by")
    if {author.lower(), body.lower(), title.lower()} & DELETED or category == "deleted":
        return "deleted"
    return "removed" if category or earlier or REMOVED.fullmatch(body) or REMOVED.fullmatch(title) else None


def addresses(post: Mapping[str, Any]) -> list[str]:
    """Return the URLs of all pictures in a post; each original is followed by its preview images."""
    urls = [post.get("url")]
    if page := IMGUR.fullmatch(str(urls[0])):
        urls += [f"https://i.imgur.com/{name}{page[2] or '.jpg'}" for name in page[1].split(",")]
    for image in _each(_at(post, "preview", "images")):
        urls += [_at(size, "url") for size in (_at(image, "source"), *_each(_at(image, "resolutions")))]
    for shown in _each(post.get("media_metadata")):
        for size in (_at(shown, "s"), *_each(_at(shown, "p"))):
            urls += [_at(size, "u"), _at(size, "gif")]
    return [address.replace("&amp;", "&") for address in urls if isinstance(address, str)]


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _each(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


class Folder:
    """The output folder of the hydration, consistent if the process is killed: fetched content, log of outcomes."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path.resolve()
        for part in ("posts", "images"):
            self._inside(part).mkdir(mode=0o700, exist_ok=True)
        self._journal = self._inside("outcomes.jsonl")
        self.outcomes: dict[tuple[str, int], str] = {}
        whole = self._journal.read_bytes().rpartition(b"\n") if self._journal.exists() else (b"", b"", b"")
        if whole[2]:
            # the last line was cut by a kill
            os.truncate(self._journal, len(whole[0]) + len(whole[1]))
        for line in whole[0].splitlines():
            noted = json.loads(line)
            self.outcomes[noted["id"], noted["image"]] = noted["outcome"]

    def note(self, rows: Iterable[tuple[ReleaseItem, str, str]]) -> None:
        """Append outcomes of items and their reasons to the log, and flush the log to disk."""
        with self._journal.open("a", encoding="utf-8") as file:
            for row, outcome, reason in rows:
                noted = {"id": row.id, "image": row.image, "outcome": outcome, "reason": reason}
                file.write(json.dumps(noted) + "\n")
                self.outcomes[row.id, row.image] = outcome
            file.flush()
            os.fsync(file.fileno())

    def current(self, package: Package, *, key: bytes) -> Package:
        """Return the package with the newest removal list that this folder has seen, and store that list there."""
        name = f"removal-{package.release}.json"
        if (path := self._inside(name)).exists():
            try:
                seen = RemovalList.read(path.read_bytes(), key=key, release=package.release)
            except (ValueError, KeyError, TypeError):
                raise Stop(f"{name} in the output folder cannot be read.", status=65) from None
            if seen.number >= package.removal.number:
                return replace(package, removal=seen)
        self.keep(name, package.removal.data)
        return package

    def keep(self, name: str, data: bytes) -> None:
        made = self._inside(f"{name}.part")
        made.write_bytes(data)
        made.replace(self._inside(name))

    def forget(self, release_ids: Collection[str], *, image: int | None = None) -> None:
        """Delete the stored files of these posts from the output folder, or only those of one of their pictures."""
        for part in ("images",) if image is not None else ("images", "posts"):
            for path in list(self._inside(part).iterdir()):
                release_id, rest = path.name[:32], path.name[32:]
                if release_id in release_ids and (image is None or rest.startswith(f"-{image}.")):
                    path.unlink()

    def _inside(self, name: str) -> Path:
        """Return the path of a file in this folder; refuse names that lead elsewhere, and links."""
        path = self.path / name
        if path.resolve() != path:
            raise Stop("A file or folder in --out is a link, or leads out of it; nothing was written to it.", status=65)
        return path


def hydrate(package: Package, *, key: bytes, reddit: RedditClient, folder: Folder, again: bool, say: Say) -> None:
    """Fetch every item without an outcome or with ``unavailable``; keep content that matches the labelled post.

    ``again`` fetches all items once more, and ``say`` is called with progress messages.
    """
    folder.forget(package.withdrawn)
    done = {item for item, outcome in folder.outcomes.items() if outcome != "unavailable" and not again}
    waiting: dict[str, list[ReleaseItem]] = {}
    for row in package.rows:
        if row.id not in package.withdrawn and (row.id, row.image) not in done:
            waiting.setdefault(row.id, []).append(row)
    ids = sorted(waiting)
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        where = {i: open_address(key, waiting[i][0].address, release_id=i) for i in batch}
        shown = reddit.posts(address.fullname for address in where.values())
        for release_id in batch:
            taken = Taking(key, where[release_id], shown.get(where[release_id].fullname), reddit, folder)
            folder.note([taken.judged(row) for row in waiting[release_id]])
        say(f"{start + len(batch)} of {len(ids)} posts requested")


@dataclass(frozen=True)
class Taking:
    """Compare one fetched post with its items and store its content; ``post`` is ``None`` if it is not shown."""

    key: bytes = field(repr=False)
    address: Address
    post: Mapping[str, Any] | None = field(repr=False)
    reddit: RedditClient
    folder: Folder

    def judged(self, row: ReleaseItem) -> tuple[ReleaseItem, str, str]:
        """Return an item with its outcome and reason; store content that is ``ok``, and delete other content."""
        outcome, reason = self._outcome(row)
        if outcome != "ok":
            self.folder.forget({row.id}, image=row.image if reason.startswith("picture") else None)
        return row, outcome, reason

    def _outcome(self, row: ReleaseItem) -> tuple[str, str]:
        if self.post is None:
            return "unavailable", "not_shown"
        if outcome := gone(self.post):
            return outcome, ""
        title, body = (str(self.post.get(part) or "") for part in ("title", "selftext"))
        text, ends = joined(title, body), self.address.ends
        if (ends and len(text) < sum(ends)) or row.text != text_digest(
            self.key, release_id=row.id, text=text, ends=ends
        ):
            return "changed", "text"
        if row.picture and (reason := self._picture(row, post=self.post)):
            return ("changed" if reason == "picture" else "unavailable"), reason
        plain = {"id": row.id, "title": title, "body": body}
        self.folder.keep(f"posts/{row.id}.json", json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"))
        return "ok", "text_not_compared" if ends == (0, 0) else ""

    def _picture(self, row: ReleaseItem, *, post: Mapping[str, Any]) -> str:
        """Fetch and store a row's picture; return the reason of a failure, or an empty string."""
        matching = (
            address
            for address in addresses(post)
            if picture_digest(self.key, release_id=row.id, image=row.image, address=address) == row.picture
        )
        # at any position in the gallery
        if (address := next(matching, None)) is None:
            return "picture"
        fetched = self.reddit.picture(address)
        if isinstance(fetched, str):
            return fetched
        self.folder.forget({row.id}, image=row.image)
        self.folder.keep(f"images/{row.id}-{row.image}.{fetched[1]}", fetched[0])
        return ""


def attrition(package: Package, *, folder: Folder) -> dict[str, Any]:
    """Count the release's items by outcome: in total, by split and by label.

    ``withdrawn_ids`` is the length of the removal list.
    """
    counts: dict[str, dict[str, Counter[str]]] = {"all": {"items": Counter()}, "splits": {}, "labels": {}}
    for row in package.rows:
        outcome = "withdrawn" if row.id in package.withdrawn else folder.outcomes[row.id, row.image]
        counts["all"]["items"][outcome] += 1
        counts["splits"].setdefault(row.split, Counter())[outcome] += 1
        for category, labels in row.labels.items():
            for label in labels:
                counts["labels"].setdefault(f"{category}: {label}", Counter())[outcome] += 1
    filled = {
        part: {name: {o: outcomes[o] for o in OUTCOMES} for name, outcomes in sorted(names.items())}
        for part, names in counts.items()
    }
    return {**filled, "withdrawn_ids": len(package.withdrawn)}


def show(counts: Mapping[str, Any], *, say: Say) -> None:
    """Print the counts of :func:`attrition` as a table with ``say``."""
    names = [name for part in ("all", "splits", "labels") for name in counts[part]]
    width = max(map(len, names))
    say(f"{'':{width}}  {'total':>7}  " + "  ".join(f"{o:>11}" for o in OUTCOMES) + "   kept")
    for part in ("all", "splits", "labels"):
        for name, outcomes in counts[part].items():
            total = sum(outcomes.values())
            kept = f"{outcomes['ok'] / total:6.1%}" if total else "     –"
            say(f"{name:{width}}  {total:>7}  " + "  ".join(f"{outcomes[o]:>11}" for o in OUTCOMES) + f"  {kept}")
    say(f"withdrawn since the release was made: {counts['withdrawn_ids']} posts, neither fetched nor kept")


def read_key(path: Path) -> bytes:
    """Return the release's key from its key file."""
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise Stop(f"--key: not a file of {2 * KEY_BYTES} hexadecimal digits.", status=78)
    return key


def main(argv: list[str] | None = None, *, sleep: Sleep = time.sleep) -> int:
    """Run the hydration command; return its exit status.

    The status is 0, 65 (altered), 75 (try later), 77 (refused) or 78 (configuration).
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--key", type=Path, required=True, help="the release's key file, received separately")
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder to write content and outcomes to; keep it private"
    )
    parser.add_argument("--removal", type=Path, help="a newer removal list (removal.json) of this release")
    parser.add_argument("--draft", action="store_true", help="also accept a draft release, which is not approved")
    parser.add_argument("--again", action="store_true", help="fetch all items again, and remove posts deleted since")
    arguments = parser.parse_args(argv)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        key = read_key(arguments.key)
        package = Package.read(arguments.package, key=key, removal=arguments.removal, draft=arguments.draft)
        reddit, folder = RedditClient(os.environ, sleep=sleep), Folder(arguments.out)
        package = folder.current(package, key=key)
        hydrate(package, key=key, reddit=reddit, folder=folder, again=arguments.again, say=say)
    except Stop as stop:
        sys.stderr.write(f"{stop}\n")
        return stop.status
    counts = attrition(package, folder=folder)
    folder.keep("attrition.json", (json.dumps(counts, indent=2) + "\n").encode())
    show(counts, say=say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
