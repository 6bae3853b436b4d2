"""The offline Reddit answers as the real services do: PRAW unmodified, raw HTTP, and every kind of picture."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import praw
import pytest
import requests
from PIL import Image

from crisis_corpus_sandbox.reddit.post_world import DROPPED
from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect.month import Window
from pipelines.collect.sources import Monthly, open_source
from pipelines.collect.submission import Submission
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from tests.collect.listed_source import ListedSource
from tests.small_corpus import MONTHS

PARAMS = load(Path(__file__).parents[2], profile="sandbox")
BEHAVIOURS = {
    **dict.fromkeys(("ok", "placeholder", "wrong_type", "slow", "truncated", "huge"), 200),
    **dict.fromkeys(("redirect", "redirect_forbidden"), 302),
    **{"missing": 404, "gone": 410, "retry_after": 429},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,130 plain posts of one subreddit, three of which are gone, and a picture for each behaviour."""
    root = tmp_path_factory.mktemp("served")
    with (root / "submissions.jsonl").open("w") as file:
        for number in range(1130):
            short = f"{2_000_000 + number:x}"
            item = {
                "id": short,
                "name": f"t3_{short}",
                "author": f"author_{number}",
                "subreddit": "SuicideMeme",
                "created_utc": 1669852800 + number // 3,
                "title": f"{number} < tea & rain",
                "selftext": "",
                "url": f"https://i.redd.it/{number}.jpg",
            }
            if number in (1120, 1125):
                item |= {"author": "[deleted]", "selftext": "[deleted]", "removed_by_category": "deleted"}
            if number == 1127:
                item |= {"removed_by_category": "moderator"}
            file.write(json.dumps(item) + "\n")
    (root / "images").mkdir()
    for name in BEHAVIOURS:
        Image.effect_noise((40, 40), 60).convert("RGB").save(root / "images" / f"{name}.jpg")
    kinds = {"wrong_type": "text/html"}
    index = {f"{b}.jpg": {"content_type": kinds.get(b, "image/jpeg"), "behaviour": b} for b in BEHAVIOURS}
    (root / "images.json").write_text(json.dumps(index))
    return root


@pytest.fixture
def server(root: Path) -> Iterator[SandboxServer]:
    with SandboxServer(root) as server:
        yield server


def reddit_at(server: SandboxServer) -> praw.Reddit:
    at = {"reddit_url": server.address, "oauth_url": server.address, "check_for_updates": False}
    return praw.Reddit(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, user_agent="python:sandbox-test:v1", **at)


def name(number: int) -> str:
    return f"t3_{2_000_000 + number:x}"


def test_praw_lists_the_thousand_newest_that_are_still_there(server: SandboxServer) -> None:
    posts = list(reddit_at(server).subreddit("suicidememe").new(limit=None))
    assert len(posts) == 1000
    shown = [n for n in reversed(range(1130)) if n not in (1120, 1125, 1127)][:1000]
    assert [p.name for p in posts] == [name(n) for n in shown]
    assert posts[0].title == "1129 < tea & rain"
    assert server.counts["listing"] == 10
    assert server.counts["token"] == 1


def test_praw_asks_for_posts_by_id(server: SandboxServer) -> None:
    asked = [name(3), name(1120), "t3_zzzzzz", name(1)]
    posts = {p.name: p for p in reddit_at(server).info(fullnames=asked)}
    assert list(posts) == [name(3), name(1120), name(1)]
    assert posts[name(1120)].author is None
    assert posts[name(1120)].removed_by_category == "deleted"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_web_page_is_refused(server: SandboxServer, headers: dict[str, str]) -> None:
    requested = f"{server.address}/_sandbox/requests"
    assert requests.get(requested, timeout=10).status_code == 200
    assert requests.get(requested, headers=headers, timeout=10).status_code == 403


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_pictures_behave_as_their_index_says(server: SandboxServer, root: Path, behaviour: str) -> None:
    data = (root / "images" / f"{behaviour}.jpg").read_bytes()
    start = time.monotonic()
    with requests.get(f"{server.address}/i/{behaviour}.jpg", stream=True, allow_redirects=False, timeout=5) as response:
        assert response.status_code == BEHAVIOURS[behaviour]
        if behaviour == "slow":
            head = response.raw.read(200)
            assert head == data[:200]
            assert 200 / (time.monotonic() - start) < 2048
        elif behaviour == "truncated":
            assert int(response.headers["Content-Length"]) == len(data)
            with pytest.raises(requests.exceptions.ChunkedEncodingError):
                _ = response.content
        elif behaviour == "huge":
            assert "Content-Length" not in response.headers
            assert sum(map(len, response.iter_content(2**16))) > 20 * 2**20
        elif behaviour == "redirect":
            followed = requests.get(response.headers["Location"], timeout=5)
            assert (followed.status_code, followed.content) == (200, data)
        elif behaviour == "redirect_forbidden":
            assert response.headers["Location"].startswith("http://169.254.169.254/")
        elif behaviour == "retry_after":
            assert response.headers["Retry-After"] == "1"
            assert requests.get(response.url, timeout=5).content == data
        elif response.ok:
            assert response.content == data
            assert response.headers["Content-Type"].startswith("text/html" if behaviour == "wrong_type" else "image/")


def test_previews_and_unknown_pictures(server: SandboxServer, root: Path) -> None:
    preview = requests.get(f"{server.address}/p/ok.jpg?width=640&s=abc", timeout=5)
    assert preview.content == (root / "images" / "ok.jpg").read_bytes()
    for path in ("/i/never.jpg", "/i/..%2Fimages.json", "/i/../images.json", "/elsewhere"):
        assert requests.get(server.address + path, timeout=5).status_code == 404


def test_requests_are_counted_by_class_without_content(server: SandboxServer) -> None:
    for path in ("/i/ok.jpg", "/i/never.jpg", "/p/ok.jpg", "/r/SuicideMeme/new", "/api/posts/search", "/nothing"):
        requests.get(server.address + path, timeout=5)
    counts = requests.get(f"{server.address}/_sandbox/requests", timeout=5).json()
    assert counts == {"token": 0, "listing": 1, "info": 0, "arctic": 1, "image": 2, "preview": 1, "other": 1}


def test_a_folder_without_a_sandbox_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(BadParams, match="sandbox build"):
        SandboxServer(tmp_path)


def kept_by_source(built: Path, *, corpus: str, months: Collection[str]) -> dict[str, dict[str, Submission]]:
    """Return the kept submissions by source and full name, without what tells the sources apart."""
    kept = {}
    with SandboxServer(built) as server:
        update = {"dumps": built / "dumps", "contact": "team@example.org", "reddit_client_id": CLIENT_ID}
        update |= {"reddit_client_secret": CLIENT_SECRET, "reddit_url": server.address}
        update |= {"reddit_oauth_url": server.address, "arctic_shift_url": server.address}
        settings = Settings.from_env().model_copy(update=update)
        given: dict[str, Any] = {"params": PARAMS, "today": date(2023, 1, 1)}
        sources: dict[str, Any] = {"reddit": ListedSource(settings, corpus=corpus, **given)}
        sources |= {name: open_source(name, Monthly, settings=settings, **given) for name in ("dump", "arctic_shift")}
        subreddits = PARAMS.corpora[corpus].subreddits
        for name, source in sources.items():
            items = [i for m in months for i in source.submissions(Window.from_key(m), subreddits=subreddits)]
            posts = [item for item in items if isinstance(item, Submission)]
            kept[name] = {post.fullname: replace(post, source="", source_digest="") for post in posts}
    assert kept["dump"] == kept["reddit"]
    # An archive may have missed a post altogether; what it has is the same.
    assert kept["arctic_shift"].items() <= kept["dump"].items()
    return kept


@pytest.mark.parametrize("month", MONTHS)
def test_every_source_serves_the_same_memes(
    built: Path, known: dict[str, Any], month: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    kept = kept_by_source(built, corpus="memes", months=[month])
    deleted = {s["fullname"] for s in known["submissions"] if s["deleted"]}
    expected = {s["fullname"] for s in known["submissions"] if s["month"] == month and s["expected"] == "kept"}
    assert not deleted & kept["dump"].keys()
    assert expected <= kept["dump"].keys()


def test_every_source_serves_the_same_posts(
    built: Path, known_posts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    kept = kept_by_source(built, corpus="posts", months=known_posts["months"])
    lost = {c.name for c in DROPPED[:4]}
    assert set(kept["dump"]) == {p["fullname"] for p in known_posts["submissions"] if p["case"] not in lost}
