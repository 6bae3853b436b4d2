"""The answers of Reddit that PRAW's repository has recorded pass through the live source: posts, or typed errors.

`make test-praw PRAW=PATH` names a checkout of PRAW's repository; nothing of it is stored here.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.collect.month import Window
from pipelines.collect.submission import Submission, parse
from pipelines.core.config.collect import Reddit
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceError
from tests.collect.listed_source import ListedSource
from tests.collect.sources.misbehaving_server import Case, MisbehavingServer

CHECKOUT = os.environ.get("PRAW_CHECKOUT", "")
ALWAYS = Window(datetime(2005, 6, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC))
TODAY = date(2089, 12, 31)
# The server sends bodies as recorded, not as they were transferred.
TRANSFER = {"content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive"}

pytestmark = [
    pytest.mark.skipif(not CHECKOUT, reason="set PRAW_CHECKOUT to a checkout of PRAW's repository"),
    pytest.mark.faults,
]


def recorded() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield each cassette as pairs of the request's path and the answer."""
    for path in sorted(Path(CHECKOUT).glob("tests/integration/cassettes/*.json")):
        pairs = []
        for one in json.loads(path.read_text())["interactions"]:
            response = one["response"]
            headers = {k: ", ".join(v) for k, v in response["headers"].items() if k.lower() not in TRANSFER}
            text = response["body"].get("string", "")
            asked = one["request"]["uri"].partition("?")[0]
            pairs.append((asked, {"status": response["status"]["code"], "headers": headers, "body": text}))
        yield pairs


def posts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the posts of a recorded listing."""
    try:
        data = json.loads(answer["body"])["data"]
        return [child["data"] for child in data["children"] if child["kind"] == "t3"] if "after" in data else []
    except (ValueError, KeyError, TypeError):
        return []


@pytest.fixture
def reddit(server: MisbehavingServer, settings: Settings, params: Params) -> Any:
    def reddit(target: str, answers: list[dict[str, Any]], *, requests: int = 4) -> ListedSource:
        number = server.add(Case(target, "recorded", answers, {}, requests))
        there = dict.fromkeys(("reddit_url", "reddit_oauth_url"), server.address)
        moved = settings.model_copy(
            update={**there, "reddit_client_id": "x", "reddit_client_secret": "y", "contact": f"case-{number}-@x.org"}
        )
        home = moved.home / str(number)
        stores = {name: f"sqlite:///{home}/{name}.sqlite" for name in ("vault_url", "refresh_url")}
        # a recorded listing of a user has more than the thousand posts of a subreddit's
        listing = params.model_copy(update={"reddit": Reddit.model_construct(listing_limit=10_000, page_size=100)})
        return ListedSource(moved.model_copy(update={"home": home, **stores}), params=listing, today=TODAY)

    return reddit


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as server:
        yield server


def test_each_answer_is_a_listing_or_a_typed_error(reddit: Any, waits: list[float]) -> None:
    told: Counter[str] = Counter()
    known = set()
    for asked, answer in (pair for cassette in recorded() for pair in cassette):
        target = "token" if asked.endswith("access_token") else "listing"
        key = (target, answer["status"], answer["body"])
        if key in known:
            continue
        known.add(key)
        told[f"answers to {target} requests"] += 1
        try:
            home = next((str(post["subreddit"]) for post in posts(answer) if post.get("subreddit")), "Alpha")
            items, _ = reddit(target, [answer]).client.page(home, after="", limit=100)
        except SourceError as error:
            told[f"{target}: {type(error).__name__}"] += 1
            assert not posts(answer)
            if target == "listing" and answer["status"] >= 300:
                with pytest.raises(SourceError):
                    reddit("info", [answer]).client.info(["t3_x"])
            continue
        told[f"{target}: listing"] += 1
        if target == "token":
            continue
        results = [parse(item, source="reddit", source_digest="") for item in items]
        told["posts"] += sum(isinstance(result, Submission) for result in results)
        told.update(f"dropped: {result.reason}" for result in results if not isinstance(result, Submission))
        # comments and advertisements, which an answer to our requests does not have
        others = len(items) - sum(post.get("subreddit") is not None for post in posts(answer))
        told["not posts"] += others
        assert sum(not isinstance(r, Submission) and r.reason == "malformed" for r in results) == others
        shown = reddit("info", [answer]).client.info(["t3_x"])
        assert shown.keys() == {post["name"] for post in posts(answer)}
    assert max(waits, default=0) <= 600
    assert told["token: listing"] == told["answers to token requests"]
    assert told["posts"] > 100
    sys.stdout.write("\n" + "\n".join(f"{n:6,} {what}" for what, n in sorted(told.items())) + "\n")


def test_a_recorded_listing_loses_no_post(reddit: Any, waits: list[float]) -> None:
    told: Counter[str] = Counter()
    for cassette in recorded():
        pages = [of_one_subreddit(answer) for _, answer in cassette if posts(answer)]
        if not pages:
            continue
        told["cassettes with posts"] += 1
        last = {"body": json.dumps({"kind": "Listing", "data": {"after": None, "children": []}})}
        source = reddit("listing", [*pages, last], requests=len(pages) + 4)
        try:
            found = list(source.submissions(ALWAYS, subreddits=["Alpha"]))
        except SourceError as error:
            told[type(error).__name__] += 1
            continue
        read = source_pages(pages)
        names = {item.fullname for item in found if not item.fullname.startswith("malformed:")}
        assert names == {post["name"] for page in read for post in posts(page)}
        told["posts"] += len(names)
    assert told["posts"] > 100
    sys.stdout.write("\n" + "\n".join(f"{n:6,} {what}" for what, n in sorted(told.items())) + "\n")


def of_one_subreddit(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded listing, which may be of users or of several subreddits, as one of r/Alpha."""
    body = json.loads(answer["body"])
    for child in body["data"]["children"]:
        child["data"] |= {"subreddit": "Alpha"}
    return answer | {"body": json.dumps(body)}


def source_pages(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pages up to the first that ends its listing."""
    for number, page in enumerate(pages, start=1):
        if json.loads(page["body"])["data"]["after"] is None:
            return pages[:number]
    return pages
