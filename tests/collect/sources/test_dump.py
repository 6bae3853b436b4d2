"""A dump is whole and as its publisher made it, or the step fails with its name and an offset."""

from __future__ import annotations

import hashlib
import json
import random
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipelines.collect.month import Window
from pipelines.collect.sources import dump, entry_of
from pipelines.collect.sources.dump import Dump, DumpEntry
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceError
from tests.refusals import refused

DECEMBER = Window.from_key("2022-12")
Write = Callable[..., Path]


def row(number: int, **changes: Any) -> dict[str, Any]:
    item = {
        "id": f"{number:x}",
        "author": "quiet_otter",
        "subreddit": "SuicideMeme",
        "created_utc": 1669939200 + number,
        "title": f"post {number}",
        "url": "https://i.redd.it/x.jpg",
    }
    return item | changes


@pytest.fixture
def entry(params: Params) -> DumpEntry:
    return entry_of("dump", params)


def of(folder: Path, entry: DumpEntry) -> Dump:
    return Dump(Settings.from_env().model_copy(update={"dumps": folder}), params=entry)


@pytest.fixture
def read(tmp_path: Path, entry: DumpEntry) -> Callable[..., list[Submission | Dropped]]:
    def read(*subreddits: str, **changes: int) -> list[Submission | Dropped]:
        return list(
            of(tmp_path, entry.model_copy(update=changes)).submissions(
                DECEMBER, subreddits=subreddits or ["SuicideMeme"]
            )
        )

    return read


@pytest.fixture
def whole(tmp_path: Path, write_dump: Write) -> Path:
    rows = (row(n, selftext=f"{random.Random(n).getrandbits(900):x}") for n in range(60))
    return write_dump(tmp_path / "SuicideMeme_submissions.zst", rows, frames=3)


def restate(path: Path) -> None:
    """Vouch for the damaged file: only its frames can tell now."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest} *{path.name}\n")


def mapped() -> int:
    """Return the bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.fixture
def failure(entry: DumpEntry, tmp_path: Path) -> Callable[[], SourceError]:
    """Read a dump that fails, at its end at the latest: nothing comes out, and the error names no content."""

    def failure() -> SourceError:
        with refused("CorruptDump") as caught:
            next(of(tmp_path, entry).submissions(DECEMBER, subreddits=["SuicideMeme"]))
        text = str(caught.value)
        assert "quiet_otter" not in text and "t3_" not in text and str(tmp_path) not in text
        return caught.value

    return failure


def test_frames_one_behind_the_other_are_one_file(read: Any, whole: Path) -> None:
    assert len(read()) == 60
    data = whole.read_bytes()
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    whole.write_bytes(skippable + data + zstandard.ZstdCompressor().compress(b"") + skippable)
    restate(whole)
    assert len(read()) == 60


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_lines_and_characters_may_straddle_anything(
    read: Any, write_dump: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(dump, "PIECE", piece)
    monkeypatch.setattr(dump, "LINES", piece)
    titles = [f"☕ Ärger {n} 🍵" for n in range(9)]
    rows = [row(n, title=t) for n, t in enumerate(titles)]
    write_dump(tmp_path / "SuicideMeme_submissions.zst", rows, frames=11, end=b"")
    assert [i.title for i in read()] == titles


@pytest.mark.parametrize("seed", range(50))
def test_a_cut_file_fails_with_its_name_and_offset(failure: Any, whole: Path, seed: int) -> None:
    data = whole.read_bytes()
    cut = random.Random(seed).randrange(len(data))
    whole.write_bytes(data[:cut])
    error = failure()
    assert whole.name in str(error)
    assert error.fields["offset"] <= cut


@pytest.mark.parametrize("seed", range(50))
def test_a_flipped_byte_fails(failure: Any, whole: Path, seed: int) -> None:
    rng = random.Random(1000 + seed)
    data = bytearray(whole.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    whole.write_bytes(data)
    assert whole.name in str(failure())


def test_a_cut_inside_a_frame_fails_even_with_a_checksum_made_afterwards(failure: Any, whole: Path) -> None:
    data = whole.read_bytes()
    ends = {len(data)}
    for cut in random.Random(3).sample(range(1, len(data)), 30):
        frame = zstandard.ZstdDecompressor().decompressobj()
        rest = data[:cut]
        while rest:  # a cut between two frames leaves a valid file, which only the publisher's digest can tell
            frame = zstandard.ZstdDecompressor().decompressobj()
            frame.decompress(rest)
            rest = frame.unused_data if frame.eof else b""
        if frame.eof:
            ends.add(cut)
            continue
        whole.write_bytes(data[:cut])
        restate(whole)
        assert "ends inside a frame" in str(failure())
    assert len(ends) <= 3


def test_a_file_that_ends_as_a_mark_would_is_cut_nevertheless(failure: Any, whole: Path) -> None:
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little")
    for last in (b"\xff" * 64, b"0123456789abcdef" * 8):
        whole.write_bytes(zstandard.ZstdCompressor().compress(b"{}\n" + last) + skippable)
        restate(whole)
        assert "ends inside a frame" in str(failure())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not zstd", b"\x28\xb5"])
def test_what_is_not_zstd_fails(failure: Any, whole: Path, content: bytes) -> None:
    whole.write_bytes(content)
    restate(whole)
    assert failure().fields["offset"] == len(content)


def test_bytes_behind_the_last_frame_fail(failure: Any, whole: Path) -> None:
    whole.write_bytes(whole.read_bytes() + b"\0\0\0\0\0")
    restate(whole)
    assert "damaged" in str(failure())


def test_a_line_over_the_cap_fails(read: Any, whole: Path, write_dump: Write) -> None:
    noise = f"{random.Random(1).getrandbits(40_000):x}"
    write_dump(whole, [row(1), row(2, selftext=noise)])
    assert len(read(max_line_bytes=20_000)) == 2
    with refused("CorruptDump", match="max_line_bytes"):
        read(max_line_bytes=10_000)
    # of another subreddit, and a line that never ends
    endless = random.Random(2).randbytes(600_000).replace(b"\n", b"")
    for lines, most in (([row(1), row(2, subreddit="unwanted", selftext=noise), row(3)], 10_000), ([endless], 300_000)):
        write_dump(whole, lines)
        with refused("CorruptDump", match="max_line_bytes"):
            read(max_line_bytes=most)


def test_a_bomb_fails_at_once(failure: Any, whole: Path, write_dump: Write) -> None:
    write_dump(whole, [row(1), b"\n" * 300_000_000])
    start = time.process_time()
    assert "max_ratio" in str(failure())
    assert time.process_time() - start < 5


def test_posts_that_repeat_are_no_bomb(read: Any, whole: Path, write_dump: Write) -> None:
    long = "the same words again " * 2000
    write_dump(whole, [row(n, selftext=long) for n in range(30)])
    assert whole.stat().st_size * 400 < 30 * len(long)
    assert len(read()) == 30


def test_a_bomb_behind_honest_posts_fails_within_bounded_memory(failure: Any, whole: Path, write_dump: Write) -> None:
    honest = [row(n, selftext=f"{random.Random(n).getrandbits(9000):x}") for n in range(60)]
    write_dump(whole, [*honest, *(b" " * 4_000_000 for _ in range(50))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "max_ratio" in str(failure())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19, "kilobytes"


@pytest.mark.parametrize(
    "unused",
    [
        '"half a pair \\ud83d"', "NaN", "-Infinity", "1" * 5000, "1e999", "[" * 100_000 + "]" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000, '["]", "[{"]',
    ],
    ids=["surrogate", "nan", "infinity", "digits", "exponent", "lists", "objects", "brackets"],
)  # fmt: skip
def test_an_odd_value_in_an_unused_field_costs_no_post(read: Any, whole: Path, write_dump: Write, unused: str) -> None:
    line = json.dumps(row(1, retrieved_on=7))[:-1] + f', "gildings": {unused}, "over_18": true}}'
    write_dump(whole, [line.encode(), row(2)])
    items = {i.fullname: i for i in read()}
    assert (items["t3_1"].title, items["t3_1"].nsfw, items["t3_1"].body) == ("post 1", True, "")
    assert len(items) == 2


def test_an_unfinished_string_is_counted_in_linear_time(read: Any, whole: Path, write_dump: Write) -> None:
    noise = random.Random(4).randbytes(300_000).hex().encode()
    torn = b'{"subreddit": "SuicideMeme", "title": "' + noise.replace(b"0", b'\\"') + b"\\"
    write_dump(whole, [torn, row(2)])
    start = time.monotonic()
    assert [getattr(i, "reason", None) for i in read()] == ["malformed", None]
    assert time.monotonic() - start < 3


def test_a_byte_order_mark_hides_no_post(read: Any, whole: Path, write_dump: Write) -> None:
    mark = b"\xef\xbb\xbf"
    write_dump(whole, [mark + json.dumps(row(1)).encode(), row(2), mark + json.dumps(row(3)).encode()])
    assert [i.fullname for i in read()] == ["t3_1", "t3_2", "t3_3"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_another_encoding_is_refused(failure: Any, whole: Path, write_dump: Write, encoding: str) -> None:
    write_dump(whole, ["\n".join(json.dumps(row(n)) for n in range(3)).encode(encoding)])
    assert "UTF-16" in str(failure())


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_of_no_json_lines_is_refused(failure: Any, whole: Path, write_dump: Write, indent: Any) -> None:
    write_dump(whole, [json.dumps([row(n) for n in range(3)], indent=indent).encode()])
    assert "it is a JSON list" in str(failure())
    write_dump(whole, [json.dumps(row(1), indent=1).encode(), row(2)])
    assert "over several lines" in str(failure())
    wrapped = [line for n in range(60) for line in json.dumps(row(n), indent=1).encode().split(b"\n")]
    write_dump(whole, [row(99), *wrapped])
    assert "are no JSON objects" in str(failure())


def test_each_line_that_is_no_object_is_counted_whatever_it_names(read: Any, whole: Path, write_dump: Write) -> None:
    whole_line = json.dumps(row(5)).encode()
    at = whole_line.index(b"SuicideMeme") + 4  # so that neither half names the subreddit
    lists = json.dumps([row(6), row(7)]).encode()
    halves = [row(1), whole_line[:at], whole_line[at:], lists, b"  ", b' {"subreddit": "Elsewhere"}', row(2)]
    short = [b"x", row(1), *[b"{}"] * 5000, b"y", b"", b" ", b"{}", row(2), b"[]"]
    for lines, malformed in ((halves, 2), (short, 3)):
        write_dump(whole, lines, end=b"")
        found = [getattr(i, "reason", i.fullname) for i in read()]
        assert sorted(found) == ["malformed"] * malformed + ["t3_1", "t3_2"]


@pytest.mark.parametrize("lines", [1, 100, 2**17])
def test_lines_come_in_their_order_however_many_are_read_at_a_time(
    entry: DumpEntry, whole: Path, write_dump: Write, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    monkeypatch.setattr(dump, "LINES", lines)
    given = [b"x", b'{"subreddit":"SuicideMeme"}', b"{}", b"[]", b"y", b'{"subreddit":"suicidememe","a":1}', b"z"]
    write_dump(whole, given, end=b"")
    digest = dump.expected_digest(whole)
    found = list(dump.wanted_lines(whole, digest=digest, subreddits=["SuicideMeme"], params=entry))
    assert found == [line for line in given if line != b"{}"]


def test_a_comment_never_affects_a_post(read: Any, write_dump: Write, tmp_path: Path) -> None:
    comment = {"id": "1", "subreddit": "SuicideMeme", "created_utc": 1669939201, "retrieved_on": 99}
    comments = [
        comment | {"author": "[deleted]", "body": "[deleted]", "link_id": "t3_1", "parent_id": "t3_1"},
        comment | {"author": "a", "body": "words", "name": "t1_1", "title": "t"},
        comment | {"author": "[deleted]", "body": "words"},
    ]
    write_dump(tmp_path / "SuicideMeme_submissions.zst", [comments[0], row(1), *comments[1:]])
    items = read()
    assert [i.title for i in items if i.fullname == "t3_1"] == ["post 1"]
    assert [i.reason for i in items if isinstance(i, Dropped)] == ["comment"] * 3


def test_a_time_that_is_none_does_not_outrank_the_newest_copy(read: Any, write_dump: Write, tmp_path: Path) -> None:
    odd = json.dumps(row(1, title="odd"))[:-1] + f', "retrieved_on": {"9" * 400}}}'
    write_dump(tmp_path / "SuicideMeme_submissions.zst", [row(1, title="new", retrieved_on=20), odd.encode()])
    assert [i.title for i in read()] == ["new"]


def test_a_window_of_two_gibibytes_is_read_and_can_be_forbidden(read: Any, whole: Path) -> None:
    content = json.dumps(row(1)).encode() + b"\n"
    # RFC 8878: magic, a frame descriptor without anything, window 2^31, then one last raw block.
    header = (0xFD2FB528).to_bytes(4, "little") + bytes([0, (31 - 10) << 3])
    whole.write_bytes(header + (len(content) << 3 | 1).to_bytes(3, "little") + content)
    restate(whole)
    before = mapped()
    assert len(read()) == 1
    assert mapped() - before < 2**30, "the window was not given back"
    with refused("CorruptDump", match="window_log"):
        read(window_log=27)


@pytest.mark.parametrize("spaces", ["", " ", "  "])
def test_spacing_and_case_do_not_hide_a_row(read: Any, whole: Path, write_dump: Write, spaces: str) -> None:
    lines = [json.dumps(row(n, subreddit=s)).replace('": ', f'"{spaces}:{spaces}').encode() for n, s in enumerate(
        ["SuicideMeme", "suicidememe", "SUICIDEMEME", "SuicideMemes", "aSuicideMeme"]
    )]  # fmt: skip
    write_dump(whole, lines)
    assert {i.fullname for i in read()} == {"t3_0", "t3_1", "t3_2"}
    write_dump(whole.with_name("SuicideMemes_submissions.zst"), lines)
    assert {i.fullname for i in read("suicidememe", "SuicideMemes")} == {"t3_0", "t3_1", "t3_2", "t3_3"}


def test_a_crosspost_elsewhere_of_a_wanted_post_stays_out(read: Any, whole: Path, write_dump: Write) -> None:
    nested = row(1, subreddit="Elsewhere", crosspost_parent="t3_9", crosspost_parent_list=[row(9)])
    write_dump(whole, [nested, row(2, crosspost_parent="t3_9", crosspost_parent_list=[row(9)]), row(3)])
    assert [(i.fullname, getattr(i, "reason", None)) for i in read()] == [("t3_2", "crosspost"), ("t3_3", None)]


def test_a_row_that_is_no_utf8_or_no_json_is_counted_not_kept(read: Any, whole: Path, write_dump: Write) -> None:
    bad = b'{"id": "5", "subreddit": "SuicideMeme", "title": "half a cup \xe2\x98"}'
    torn = b'{"id": "6", "subreddit": "SuicideMeme", "title": '
    other = b'{"id": "7", "subreddit": "Elsewhere", "title": "\xff"}'
    write_dump(whole, [row(1), bad, torn, other, row(2), b'["subreddit", {"subreddit":"SuicideMeme"}]', b""])
    items = read()
    assert [i.reason for i in items if isinstance(i, Dropped)] == ["malformed"] * 3
    assert len({i.fullname for i in items}) == 5


def test_the_month_decides(read: Any, whole: Path, write_dump: Write) -> None:
    write_dump(whole, [row(n, created_utc=t) for n, t in enumerate([1669852799, 1669852800, 1672531199, 1672531200])])
    assert [i.fullname for i in read()] == ["t3_1", "t3_2"]


def test_of_several_copies_the_newest_and_a_deletion_count(read: Any, write_dump: Write, tmp_path: Path) -> None:
    new, old = {"retrieved_on": 20, "title": "new"}, {"retrieved_on": 10, "title": "old"}
    rows = [row(1, **new), row(1, **old), row(2, author="[deleted]", retrieved_on=1), row(2, **new)]
    write_dump(tmp_path / "SuicideMeme_submissions.zst", [*rows, row(3), row(4, title=None, retrieved_on=99), row(4)])
    late = row(3, _meta={"was_deleted_later": True, "retrieved_2nd_on": 5})
    write_dump(tmp_path / "SuicideMeme_submissions_arctic.zst", [row(1, **old), late])
    items = {i.fullname: i for i in read()}
    assert items["t3_1"].title == "new"
    assert items["t3_2"].reason == "deleted"
    assert items["t3_3"].reason == "deleted_later"
    assert items["t3_4"].title == "post 4"


def test_a_month_of_all_of_reddit_serves_every_subreddit(read: Any, write_dump: Write, tmp_path: Path) -> None:
    write_dump(tmp_path / "RS_2022-12.zst", [row(1), row(2, subreddit="Elsewhere"), row(3, subreddit="Third")])
    write_dump(tmp_path / "RS_2022-11.zst", [row(4)])
    assert {i.fullname for i in read("elsewhere", "SuicideMeme")} == {"t3_1", "t3_2"}


def test_files_are_chosen_by_their_whole_name(entry: DumpEntry, write_dump: Write, tmp_path: Path) -> None:
    posts = ("Meme_submissions", "SuicideMeme_submissions", "suicidememe_submissions_arctic")
    for name in (*posts, "SuicideMeme_comments"):
        write_dump(tmp_path / f"{name}.zst", [row(1)])
    files = of(tmp_path, entry).files(DECEMBER, subreddits=["SuicideMeme"])
    assert [f.name for f in files] == ["SuicideMeme_submissions.zst", "suicidememe_submissions_arctic.zst"]


def test_a_missing_dump_says_which(read: Any, whole: Path) -> None:
    with refused("DumpMissing", match="r/Elsewhere for 2022-12"):
        read("SuicideMeme", "Elsewhere")


@pytest.mark.parametrize("content", [None, "", "no digest here", "0" * 64 + "  another.zst\n", "é"])
def test_a_missing_checksum_says_how_to_make_one(read: Any, whole: Path, content: str | None) -> None:
    stated = whole.with_name(whole.name + ".sha256")
    stated.unlink() if content is None else stated.write_text(content)
    with refused("DumpUnverified", match=r"sha256sum SuicideMeme_submissions\.zst > "):
        read()


def test_the_search_finds_what_the_pattern_finds_in_any_line(entry: DumpEntry, whole: Path, write_dump: Write) -> None:
    rng, parts = random.Random(6), [b'"subreddit"', b'subreddit"', b'"SuicideMeme"', b'"suicidememe"', b":", b" ", b'"']
    lines = [b"{" + b"".join(rng.choices(parts, k=rng.randint(1, 9))) for _ in range(3000)]
    write_dump(whole, lines)
    wanted = re.compile(rb'"subreddit"\s*:\s*"(?i:SuicideMeme)"')
    expected = [line for line in lines if wanted.search(line)]
    digest = dump.expected_digest(whole)
    assert len(expected) > 50
    assert list(dump.wanted_lines(whole, digest=digest, subreddits=["SuicideMeme"], params=entry)) == expected
