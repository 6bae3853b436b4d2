from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.collect.submission import Dropped, Submission, parse, retrieved_of

SHOWN = "https://preview.redd.it/abc.jpg"
SMALLER = [{"url": f"{SHOWN}?width={w}", "width": w} for w in (108, 640, 960)]
ITEM: dict[str, Any] = {
    "id": "zz1",
    "name": "t3_zz1",
    "author": "quiet_otter",
    "subreddit": "SuicideMeme",
    "created_utc": 1669939200.0,
    "title": "Tea &amp; rain",
    "selftext": "",
    "url": "https://i.redd.it/abc.jpg",
    "over_18": True,
    "preview": {"images": [{"source": {"url": f"{SHOWN}?auto=webp&amp;s=1", "width": 1200}, "resolutions": SMALLER}]},
}


def parsed(**changes: Any) -> Submission | Dropped:
    return parse(ITEM | changes, source="dump", source_digest="d")


def reason(**changes: Any) -> str | None:
    item = parsed(**changes)
    return item.reason if isinstance(item, Dropped) else None


def test_an_image_post_has_its_address_then_its_legible_previews_widest_first() -> None:
    assert parsed() == Submission(
        fullname="t3_zz1",
        author="quiet_otter",
        subreddit="SuicideMeme",
        created=datetime(2022, 12, 2, tzinfo=UTC),
        kind="image",
        title="Tea & rain",
        body="",
        media=(("https://i.redd.it/abc.jpg", *(f"{SHOWN}?{q}" for q in ("auto=webp&s=1", "width=960", "width=640"))),),
        nsfw=True,
        spoiler=False,
        source="dump",
        source_digest="d",
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"author": "[deleted]"}, "deleted"),
        ({"selftext": "[deleted]"}, "deleted"),
        ({"removed_by_category": "deleted"}, "deleted"),
        ({"title": "[deleted by user]"}, "deleted"),
        ({"removed_by_category": "moderator"}, "removed"),
        ({"removed_by_category": "automod_filtered"}, "removed"),
        ({"selftext": "[removed]"}, "removed"),
        ({"selftext": " [Removed] "}, "removed"),
        ({"title": "[ Removed by Reddit ]"}, "removed"),
        ({"title": "[ Removed by reddit in response to a copyright notice. ]"}, "removed"),
        ({"_meta": {"was_deleted_later": True, "removal_type": "deleted"}}, "deleted_later"),
        ({"_meta": {"was_deleted_later": True, "removal_type": "removed by reddit"}}, "deleted_later"),
        ({"_meta": {"removal_type": "removed"}}, "removed"),
        ({"_meta": {"removal_type": "deleted"}}, "deleted"),
        ({"removal_reason": "legal"}, "removed"),
        ({"banned_by": "AutoModerator"}, "removed"),
        ({"banned_by": True}, "removed"),
        ({"banned_by": None, "removal_reason": None}, None),
        ({"banned_by": True, "author": "[deleted]"}, "deleted"),
        ({"link_id": "t3_zz1", "author": "[deleted]"}, "comment"),
        ({"crosspost_parent": "t3_aa"}, "crosspost"),
        ({"crosspost_parent_list": [{"name": "t3_aa"}]}, "crosspost"),
        ({"crosspost_parent": "t3_aa", "author": "[deleted]"}, "deleted"),
        ({"title": None}, "malformed"),
        ({"author": 7}, "malformed"),
        ({"created_utc": "soon"}, "malformed"),
        ({"title": "half a pair \ud83d"}, "malformed"),
        ({"name": None, "id": "not an id"}, "malformed"),
        ({"_meta": {"retrieved_2nd_on": 1670000000}}, None),
        # it came back: `removal_type` tells what had happened before
        ({"_meta": {"was_initially_deleted": True, "removal_type": "removed"}}, None),
        ({"selftext": "it was [removed] they said"}, None),
        ({"_meta": None, "crosspost_parent_list": []}, None),
    ],
)
def test_reasons(changes: dict[str, Any], why: str | None) -> None:
    assert reason(**changes) == why


@pytest.mark.parametrize(
    ("changes", "kind", "images"),
    [
        ({"is_self": True, "url": "https://www.reddit.com/r/x/"}, "text", 0),
        ({"is_video": True}, "video", 0),
        ({"post_hint": "rich:video", "url": "https://example.org/clip"}, "video", 0),
        ({"url": "https://v.redd.it/xyz"}, "video", 0),
        ({"url": "https://i.imgur.com/x.gifv"}, "video", 0),
        ({"url": "https://example.org/essay", "post_hint": "link"}, "link", 0),
        ({"url": "https://example.org/picture", "post_hint": "image"}, "image", 1),
        ({"url": "https://i.redd.it/X.PNG", "preview": None}, "image", 1),
        ({"url": "not an address", "post_hint": "image", "preview": {}}, "image", 0),
        ({"url": "https://[broken", "post_hint": "image", "preview": {}}, "image", 0),
    ],
)
def test_kinds(changes: dict[str, Any], kind: str, images: int) -> None:
    item = parsed(**changes)
    assert isinstance(item, Submission)
    assert (item.kind, len(item.media)) == (kind, images)


def test_a_gallery_keeps_its_order_and_leaves_out_what_was_never_processed() -> None:
    item = parsed(
        is_gallery=True,
        gallery_data={"items": [{"media_id": m} for m in ("b", "failed", "a", "unknown")]},
        media_metadata={
            "a": {"status": "valid", "s": {t: f"https://i.redd.it/a.{t}" for t in ("gif", "mp4")}, "p": []},
            "b": {
                "s": {"u": "https://preview.redd.it/b.jpg?s=1&amp;t=2"},
                "p": [{"u": "https://preview.redd.it/b.jpg?w=640", "x": 640}, {"u": "https://x.org/s", "x": 108}],
            },
            "failed": {"status": "failed"},
        },
    )
    assert isinstance(item, Submission)
    assert item.kind == "gallery"
    assert item.media == (
        ("https://preview.redd.it/b.jpg?s=1&t=2", "https://preview.redd.it/b.jpg?w=640"),
        ("https://i.redd.it/a.gif",),
    )


def test_a_gallery_without_its_order_is_read_in_the_order_of_its_pictures() -> None:
    known = {m: {"status": "valid", "s": {"u": f"https://preview.redd.it/{m}.jpg"}} for m in ("b", "a")}
    for changes in ({"is_gallery": True, "gallery_data": None}, {"url": "https://www.reddit.com/gallery/zz1"}):
        item = parsed(media_metadata=known, **changes)
        assert isinstance(item, Submission)
        assert (item.kind, [m[0][-5:] for m in item.media]) == ("gallery", ["b.jpg", "a.jpg"])
    assert parsed(media_metadata=known, is_self=True).kind == "text"


PREVIEW = {"images": [{"source": {"url": "https://external-preview.redd.it/p.jpg?s=1"}}]}


@pytest.mark.parametrize(
    ("url", "first"),
    [
        ("http://i.imgur.com/AbC12.jpg?1", "http://i.imgur.com/AbC12.jpg?1"),
        ("http://imgur.com/AbC12", "https://i.imgur.com/AbC12.jpg"),
        ("https://www.imgur.com/AbCde12/", "https://i.imgur.com/AbCde12.jpg"),
        ("https://m.imgur.com/AbCde12?r#0", "https://i.imgur.com/AbCde12.jpg"),
        ("https://i.imgur.com/AbCde12", "https://i.imgur.com/AbCde12.jpg"),
        ("http://imgur.com/AbCde12.png", "https://i.imgur.com/AbCde12.png"),
        # the picture itself is known to the API only; Reddit's preview shows its first one
        ("http://imgur.com/a/AbC12", "https://external-preview.redd.it/p.jpg?s=1"),
        ("https://imgur.com/gallery/AbCde12", "https://external-preview.redd.it/p.jpg?s=1"),
        ("https://imgur.com/r/memes/AbCde12", "https://external-preview.redd.it/p.jpg?s=1"),
    ],
)
def test_a_page_of_imgur_leads_to_its_picture(url: str, first: str) -> None:
    item = parsed(url=url, preview=PREVIEW)
    assert isinstance(item, Submission)
    assert (item.kind, [m[0] for m in item.media]) == ("image", [first])
    assert item.media[0][-1] == PREVIEW["images"][0]["source"]["url"]


def test_several_pictures_of_one_address_and_an_album_without_a_preview() -> None:
    item = parsed(url="http://imgur.com/AbC12,dEf34", preview=PREVIEW)
    assert isinstance(item, Submission)
    assert [m[0] for m in item.media] == ["https://i.imgur.com/AbC12.jpg", "https://i.imgur.com/dEf34.jpg"]
    assert len(item.media[1]) == 1, "a preview shows the first picture"
    for url in ("http://imgur.com/a/AbC12", "https://imgur.com/gallery/AbCde12"):
        album = parsed(url=url, preview=None)
        assert isinstance(album, Submission)
        assert (album.kind, album.media) == ("album", ())
    assert parsed(url="https://imgur.com/user/quiet_otter/posts", preview=None).kind == "link"
    assert parsed(url="https://imgur.com/AbC12", preview=None, is_self=True).kind == "text"


def test_malformed_items_are_told_apart_whatever_they_hold() -> None:
    assert len({parsed(name="x", title=title).fullname for title in ("\ud83d", "\ud83e", 10**400)}) == 3


def test_old_and_new_number_types_and_a_missing_name_are_one_post() -> None:
    assert parsed(created_utc="1669939200", name=None) == parsed(created_utc=1669939200) == parsed()


def test_only_archives_are_escaped() -> None:
    text = {"title": "1 &lt; 2", "selftext": "&amp;lt;"}
    archived = parsed(**text)
    live = parse(ITEM | text, raw=True, source="reddit", source_digest="d")
    assert isinstance(archived, Submission) and isinstance(live, Submission)
    assert (archived.title, archived.body) == ("1 < 2", "&lt;")
    assert (live.title, live.body) == ("1 &lt; 2", "&amp;lt;")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*ITEM, "gallery_data", "media_metadata", "_meta", "post_hint"]), JSON))
def test_whatever_an_item_holds_it_is_kept_or_dropped_never_an_exception(changes: dict[str, Any]) -> None:
    item = parse(ITEM | changes, source="dump", source_digest="d")
    assert item.fullname
    assert isinstance(item, Submission) or item.reason


@pytest.mark.parametrize("time", [10**400, float("nan"), float("inf"), -1, "soon", None])
def test_an_unusable_time_of_retrieval_is_unknown(time: Any) -> None:
    assert retrieved_of({"retrieved_on": time}) == 0.0
