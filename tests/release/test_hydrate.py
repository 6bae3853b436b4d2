"""Consumers fetch a release again through a real HTTP server, with the package's own file and nothing of ours."""

from __future__ import annotations

import ast
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crisis_corpus import hydrate
from pipelines.collect.scrub import scrub
from pipelines.collect.submission import parse
from pipelines.release import removal
from tests.release.small_release import BARE_LINK, NOW, WITH_MAIL, World, outcomes, pictures, split_rows, table

GONE = {
    "t3_p000": {"author": "[deleted]", "selftext": "[deleted]"},
    "t3_p001": {"removed_by_category": "moderator", "selftext": "[removed]"},
    "t3_p008": {"removed_by_category": "deleted"},
    "t3_p009": {"selftext": "On day 9 I stayed at home."},
    "t3_p012": None,
}
FATE = {
    "t3_p000": "deleted",
    "t3_p001": "removed",
    "t3_p008": "deleted",
    "t3_p009": "changed",
    "t3_p012": "unavailable",
}


def here(
    world: World, folder: Path, name: str, *, monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]
) -> int:
    """Run hydrate in this process, with a clock of the test's own."""
    for variable, value in world.consumer.items():
        monkeypatch.setenv(variable, value)
    return hydrate.main([str(folder), "--key", str(world.key(name)), "--out", str(world.home / "out")], sleep=sleep)


def test_it_imports_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(hydrate.__file__).read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")])
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= sys.stdlib_module_names


def test_every_post_gets_its_outcome(world: World) -> None:
    folder, out = world.approved("posts", "p1"), world.home / "out"
    with world.reddit(GONE):
        code, said, wrong = world.fetched(folder, key=world.key("p1"), out=out)
    assert (code, wrong) == (0, "")
    rows = {row["id"]: (row, split) for split, found in split_rows(folder).items() for row in found}
    found = outcomes(out)
    assert {i for i, _ in found} == rows.keys()
    for name, item in world.items.items():
        release_id = world.of("p1", name)
        if release_id not in rows:
            continue
        expected = FATE.get(name, "ok")
        assert found[release_id, 0][0] == expected, name
        path = out / "posts" / f"{release_id}.json"
        assert path.exists() == (expected == "ok")
        if expected == "ok":
            assert json.loads(path.read_text()) == {"id": release_id, "title": item["title"], "body": item["selftext"]}
    bare = world.of("p1", f"t3_p{BARE_LINK:03d}")
    assert found[bare, 0] == ("ok", "text_not_compared")
    assert Counter(outcome for outcome, _ in found.values() if outcome != "ok") == Counter(FATE.values())
    counts = json.loads((out / "attrition.json").read_text())
    assert sum(counts["all"]["items"].values()) == len(rows)
    for split, told in counts["splits"].items():
        mine = Counter(found[i, 0][0] for i, (_, s) in rows.items() if s == split)
        assert {o: n for o, n in told.items() if n} == mine
    labelled = Counter(found[i, 0][0] for i, (row, _) in rows.items() if row["labels"] == "no_crisis")
    assert {o: n for o, n in counts["labels"]["labels: no_crisis"].items() if n} == labelled
    assert "labels: no_crisis" in said
    assert out.stat().st_mode & 0o777 == 0o700
    assert not any(name[3:] in (out / "outcomes.jsonl").read_text() for name in world.items)


def test_pictures_come_with_their_posts(world: World) -> None:
    folder, out = world.approved("memes", "m1"), world.home / "out"
    gallery, other = "t3_m004", world.items["t3_m009"]
    turned = {"gallery_data": {"items": other["gallery_data"]["items"][::-1]}}
    less = {"media_metadata": {k: v for k, v in world.items["t3_m014"]["media_metadata"].items() if k != "k1"}}
    changes = {"t3_m009": turned, "t3_m014": less, "t3_m001": {"url": world.items["t3_m002"]["url"]}}
    (world.home / "reddit" / "images" / "3.jpg").unlink()
    with world.reddit(changes):
        code, _, wrong = world.fetched(folder, key=world.key("m1"), out=out)
    assert (code, wrong) == (0, "")
    found = outcomes(out)
    for image, name in enumerate(pictures(world.items[gallery])):
        kept = out / "images" / f"{world.of('m1', gallery)}-{image}.jpg"
        assert kept.read_bytes() == (world.home / "reddit" / "images" / name).read_bytes()
    assert [found[world.of("m1", "t3_m009"), image] for image in range(3)] == [("ok", "")] * 3
    assert [found[world.of("m1", "t3_m014"), n][0] for n in range(3)] == ["ok", "changed", "ok"]
    assert found[world.of("m1", "t3_m001"), 0] == ("changed", "picture")
    assert found[world.of("m1", "t3_m003"), 0] == ("unavailable", "picture_http_404")
    kept = sorted(path.name.partition(".")[0] for path in (out / "images").iterdir())
    assert kept == sorted(f"{i}-{image}" for (i, image), (outcome, _) in found.items() if outcome == "ok")


def test_a_host_that_is_not_named_is_not_asked(world: World) -> None:
    folder, out = world.approved("memes", "m1"), world.home / "out"
    with world.reddit() as server:
        code, *_ = world.fetched(folder, key=world.key("m1"), out=out, IMAGE_HOSTS="i.redd.it")
        assert server.counts["image"] == 0
    assert code == 0
    assert {reason for _, reason in outcomes(out).values()} == {"picture_host"}


def test_a_release_from_before_a_takedown_omits_it_and_says_so(world: World) -> None:
    folder = world.approved("memes", "m1")
    old = shutil.copytree(folder, world.home / "old")
    early, late, bare = (world.home / name for name in ("early", "late", "bare"))
    taken = ["t3_m001", "t3_m004"]
    ids = {world.of("m1", name) for name in taken}
    with world.reddit():
        assert world.fetched(old, key=world.key("m1"), out=early)[0] == 0
        assert all(list(early.glob(f"*/{i}*")) for i in ids)
        world.vault.destroy([world.record(name) for name in taken], reason="test", now=NOW)
        removal.refresh(settings=world.settings, vault=world.vault, now=NOW, at_once=True)
        newer = ("--removal", str(world.folder("m1") / "removal.json"))
        # posts that were fetched before are removed with the newer list
        code, said, _ = world.fetched(old, *newer, key=world.key("m1"), out=early)
        assert code == 0
        assert "withdrawn since the release was made: 2 posts" in said
    assert not any(list(early.glob(f"*/{i}*")) for i in ids)
    counts = json.loads((early / "attrition.json").read_text())
    assert counts["all"]["items"]["withdrawn"] == 4
    assert counts["all"]["items"]["ok"] == 52
    # a later run does not request them: the posts are still on Reddit here, and would be found
    with world.reddit() as server:
        for package, more, out in ((old, newer, late), (folder, (), bare)):
            assert world.fetched(package, *more, key=world.key("m1"), out=out)[0] == 0
            assert not ids & {i for i, _ in outcomes(out)}
            assert not any(list(out.glob(f"*/{i}*")) for i in ids)
        assert server.counts["image"] == 2 * 52
    assert json.loads((bare / "attrition.json").read_text())["withdrawn_ids"] == 2


def test_an_outage_and_a_kill_lose_nothing_and_ask_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = world.approved("memes", "m1"), world.home / "out"
    index = json.loads((world.home / "reddit" / "images.json").read_text())
    slow = sorted(table(folder / "fetch.csv"), key=lambda row: row["id"])[20]["id"]
    name = next(n for n in world.items if world.of("m1", n) == slow)
    index[pictures(world.items[name])[0]]["behaviour"] = "slow"
    (world.home / "reddit" / "images.json").write_text(json.dumps(index))
    with world.reddit(outage_after=0):
        waits: list[float] = []
        assert here(world, folder, "m1", monkeypatch=monkeypatch, sleep=waits.append) == 75
        assert waits == [1, 2, 4, 8]
    with world.reddit() as server:
        child = world.hydrate(folder, key=world.key("m1"), out=out)
        journal = out / "outcomes.jsonl"
        deadline = time.monotonic() + 30
        while not (journal.exists() and journal.read_text().count("\n") >= 15):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.01)
        child.kill()
        child.communicate()
        done = len(outcomes(out))
        with journal.open("a") as file:
            file.write('{"id": "cut')
        code, _, wrong = world.fetched(folder, key=world.key("m1"), out=out)
        assert (code, wrong) == (0, "")
        assert 15 <= done < 56
        # only the pictures of the post that it was at when it was killed
        assert server.counts["image"] <= 56 + 3
    assert Counter(outcome for outcome, _ in outcomes(out).values()) == {"ok": 56}
    assert len(journal.read_text().splitlines()) == 56


def test_unavailable_is_asked_again_and_again_asks_for_everything(world: World) -> None:
    folder, out = world.approved("posts", "p1"), world.home / "out"
    with world.reddit(GONE):
        assert world.fetched(folder, key=world.key("p1"), out=out)[0] == 0
    missing = world.of("p1", "t3_p012")
    lines = len((out / "outcomes.jsonl").read_text().splitlines())
    with world.reddit():
        assert world.fetched(folder, key=world.key("p1"), out=out)[0] == 0
        found = outcomes(out)
        assert found[missing, 0][0] == "ok"
        assert len((out / "outcomes.jsonl").read_text().splitlines()) == lines + 1
    still = next(i for (i, _), (outcome, _) in sorted(found.items()) if outcome == "ok" and i != missing)
    name = next(n for n in world.items if world.of("p1", n) == still)
    with world.reddit({name: {"author": "[deleted]", "selftext": "[deleted]"}}):
        assert world.fetched(folder, "--again", key=world.key("p1"), out=out)[0] == 0
    assert outcomes(out)[still, 0][0] == "deleted"
    assert not (out / "posts" / f"{still}.json").exists()


def test_it_keeps_to_the_budget_that_reddit_grants(world: World) -> None:
    folder, out = world.approved("memes", "m1"), world.home / "out"
    started = time.monotonic()
    with world.reddit(budget=1, period=2.0) as server:
        # another program of the same client has spent it
        assert server.reddit.spend()[0]
        assert world.fetched(folder, key=world.key("m1"), out=out)[0] == 0
        assert server.counts["info"] == 2  # one was turned away, and waited as told
    assert time.monotonic() - started > 1


def test_it_waits_before_the_budget_is_spent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.approved("posts", "p1")
    monkeypatch.setattr(hydrate, "BATCH", 5)
    passed = [1000.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    posts = len(table(folder / "fetch.csv"))
    with world.reddit(budget=3, period=600.0, clock=lambda: passed[0]) as server:
        assert here(world, folder, "p1", monkeypatch=monkeypatch, sleep=sleep) == 0
        # nothing was turned away and asked again
        assert server.counts["info"] == -(-posts // 5)
        assert passed[0] - 1000 >= 600 * (server.counts["info"] // 3 - 1)


def test_drafts_other_keys_and_altered_packages_are_refused(world: World) -> None:
    out = world.home / "out"
    draft = Path(world.release("posts", "p1")["package"])
    other = world.approved("posts", "p2")
    with world.reddit() as server:
        world.turned_away(draft, status=77, said="draft", key=world.key("p1"), out=out)
        assert world.fetched(draft, "--draft", key=world.key("p1"), out=out)[0] == 0
        asked = server.counts["info"]
        said = "manifest cannot be verified: the key is of another release"
        world.turned_away(other, said=said, key=world.key("p1"), out=world.home / "other")
        world.turned_away(other, status=78, key=other / "manifest.json", out=out)
        own: dict[str, Any] = {"key": world.key("p2"), "out": out}
        world.turned_away(other, status=78, REDDIT_OAUTH_URL="http://example.org", **own)
        world.turned_away(other, status=77, said="HTTP 401", REDDIT_CLIENT_SECRET="no", **own)
        elsewhere = ("--removal", str(draft / "removal.json"))
        world.turned_away(other, *elsewhere, said="removal list cannot be verified", **own)
        for file in ("test.csv", "hydrate.py", "removal.json"):
            shutil.copytree(other, world.home / file)
            with (world.home / file / file).open("a") as changed:
                changed.write("# one more\n")
            world.turned_away(world.home / file, said=f"{file} does not match", **own)
        assert server.counts["info"] == asked


@given(
    number=st.integers(0, 36**13 - 1),
    ends=st.none() | st.tuples(st.integers(0, 40_000), st.integers(0, 40_000)),
    seed=st.integers(0, 9),
)
def test_an_address_opens_under_its_own_key_and_id_only(number: int, ends: tuple[int, int] | None, seed: int) -> None:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    name = "t3_" + ("".join(digits[number // 36**i % 36] for i in range(13)).rstrip("0") or "0")
    key, other = (Random(seed + n).randbytes(32) for n in (0, 100))
    sealed = hydrate.seal_address(key, hydrate.Address(name, ends), release_id="a" * 32)
    assert len(sealed) == 80
    assert hydrate.open_address(key, sealed, release_id="a" * 32) == hydrate.Address(name, ends)
    altered = sealed[:-1] + ("0" if sealed[-1] != "0" else "1")
    for wrong in ((other, sealed, "a" * 32), (key, sealed, "b" * 32), (key, altered, "a" * 32)):
        with pytest.raises(hydrate.Stop):
            hydrate.open_address(wrong[0], wrong[1], release_id=wrong[2])


PARTS = ["river", "a cafe\u0301", "me@example.org", "u/somebody", "https://a.example/x", "call 555-867-5309", "\n\n"]
WORDS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=12)


@given(words=WORDS, more=st.sampled_from(["", " edit"]))
def test_what_was_scrubbed_is_known_again_by_its_ends(words: list[str], more: str) -> None:
    kinds = ("email", "phone", "url", "user", "subreddit", "handle", "ip")
    plain = " ".join(["On the first day of the week", *words, "we all went home again."])
    known = hydrate.joined("A title", scrub(plain, kinds=kinds)[0])
    ends = hydrate.known_ends(known)
    key, shown = bytes(32), hydrate.joined("A title", plain + more)
    digests = [hydrate.text_digest(key, release_id="a", text=text, ends=ends) for text in (known, shown)]
    assert (digests[0] == digests[1]) == (not more)


def test_equal_content_of_two_posts_does_not_look_equal() -> None:
    given = {"text": "the same", "ends": None}
    assert len({hydrate.text_digest(bytes(32), release_id=i, **given) for i in "ab"}) == 2  # type: ignore[arg-type]
    where = "https://i.redd.it/same.jpg"
    pictures = {hydrate.picture_digest(bytes(32), release_id=i, image=n, address=where) for i in "ab" for n in (0, 1)}
    assert len(pictures) == 4


def test_half_a_character_is_another_text_and_no_crash() -> None:
    whole, half = (hydrate.joined("A title", text) for text in ("\N{GRINNING FACE} hello", "\ud83d hello"))
    told = {hydrate.text_digest(bytes(32), release_id="a", text=text, ends=None) for text in (whole, half)}
    assert len(told) == 2
    assert len(hydrate.picture_digest(bytes(32), release_id="a", image=0, address="https://[half/\ud83d.jpg")) == 32


def test_a_deletion_is_told_as_the_collector_tells_it(world: World) -> None:
    for item in world.items.values():
        for change in (
            {},
            *(v for v in GONE.values() if v),
            {"selftext": "[ Removed by Reddit ]"},
            {"author": "[deleted]"},
            {"removal_reason": "legal"},
            {"banned_by": True},
        ):
            shown = {**item, **change}
            dropped = parse(shown, raw=True, source="reddit", source_digest="")
            assert hydrate.gone(shown) == getattr(dropped, "reason", None)


def test_pictures_are_found_as_the_collector_finds_them(world: World) -> None:
    for item in world.items.values():
        parsed = parse(item, raw=True, source="reddit", source_digest="")
        assert {found[0] for found in parsed.media} <= set(hydrate.addresses(item))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "url",
    ["http://i.imgur.com/AbC12.jpg?1", "http://imgur.com/AbC12", "https://m.imgur.com/AbCde12/?r#0", "http://imgur.com/a/X1",
     "https://www.imgur.com/AbC12,dEf34", "http://imgur.com/AbCde12l.PNG", "https://i.imgur.com/AbCde12"],
)  # fmt: skip
def test_pages_of_imgur_are_resolved_as_the_collector_resolves_them(url: str) -> None:
    preview = {"images": [{"source": {"url": "https://external-preview.redd.it/p.jpg?s=1"}}]}
    item = {"id": "zz1", "author": "a", "subreddit": "b", "title": "c", "created_utc": 1_400_000_000, "url": url}
    item["preview"] = preview
    parsed = parse(item, raw=True, source="reddit", source_digest="")
    found = {picture[0] for picture in parsed.media}  # type: ignore[union-attr]
    assert found and found <= set(hydrate.addresses(item))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["s", "p", "u", "images", "source"]), inner)
    ),
    max_leaves=10,
)


@given(
    item=st.fixed_dictionaries(dict.fromkeys(["url", "preview", "media_metadata", "title", "author", "selftext"], JSON))
)
def test_a_post_of_another_shape_stops_nothing(item: dict[str, object]) -> None:
    assert all(isinstance(address, str) for address in hydrate.addresses(item))
    assert hydrate.gone(item) is None


def test_scrubbed_posts_are_compared_at_both_ends(world: World) -> None:
    folder, out = world.approved("posts", "p1"), world.home / "out"
    ids = {row["id"] for row in table(folder / "fetch.csv")}
    there = [n for n in (f"t3_p{i:03d}" for i in WITH_MAIL) if world.of("p1", n) in ids]
    assert len(there) >= 2
    same, edited = there[:2]
    with world.reddit({edited: {"selftext": world.items[edited]["selftext"] + " Edit: thanks."}}):
        assert world.fetched(folder, key=world.key("p1"), out=out)[0] == 0
    assert outcomes(out)[world.of("p1", same), 0] == ("ok", "")
    assert outcomes(out)[world.of("p1", edited), 0] == ("changed", "text")
