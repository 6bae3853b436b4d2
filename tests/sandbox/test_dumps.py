"""The archives hold the same submissions as the listing, in zstd frames that a careful reader must handle."""

import hashlib
import json

import pytest
import zstandard

from pipelines.collect.submission import Submission, parse


def opened(data):
    """Return the content of the first frame and the bytes behind it."""
    decoder = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
    content = decoder.decompress(data)
    assert decoder.eof
    return content, decoder.unused_data


def frames(path):
    """Return (parameters, content) of every frame."""
    data, found = path.read_bytes(), []
    while data:
        parameters = zstandard.get_frame_parameters(data)
        content, data = opened(data)
        found.append((parameters, content))
    return found


@pytest.fixture(scope="module", params=["", "_arctic"])
def dump(built, request):
    return built / "dumps" / f"SuicideMeme_submissions{request.param}.zst"


def test_frames_are_concatenated_checked_and_cut_anywhere(dump):
    found = frames(dump)
    assert len(found) >= 4
    assert all(parameters.has_checksum for parameters, _ in found)
    assert {p.window_size for p, _ in found} == {2**27 if "arctic" in dump.name else 2**31}
    assert any(not content.endswith(b"\n") for _, content in found)
    with pytest.raises(UnicodeDecodeError):
        found[0][1].decode()  # the first frame ends inside a character


def test_the_digest_file_is_sha256sums(dump):
    line = dump.with_name(dump.name + ".sha256").read_text()
    assert line == f"{hashlib.sha256(dump.read_bytes()).hexdigest()}  {dump.name}\n"


def test_rows_agree_with_the_listing(dump, items, known):
    case = {s["fullname"]: s["case"] for s in known["submissions"]}
    rows = map(json.loads, b"".join(content for _, content in frames(dump)).splitlines())
    newest = {row["name"]: row for row in sorted(rows, key=lambda r: r["retrieved_on"])}
    assert set(newest) <= set(items)
    assert len(newest) >= 0.9 * len(items)
    for name, row in newest.items():
        archived = parse(row, source="dump", source_digest="")
        shown = parse(items[name], raw=True, source="reddit", source_digest="")
        if isinstance(shown, Submission):
            assert isinstance(archived, Submission)
            for field in ("author", "title", "body", "media", "created", "kind", "subreddit"):
                assert getattr(archived, field) == getattr(shown, field)
        if case[name] == "deleted_later" and "arctic" in dump.name:
            assert archived.reason == "deleted_later"
        elif case[name] == "deleted_later":
            assert isinstance(archived, Submission)


def test_lines_come_from_several_writers(built):
    lines = b"".join(c for _, c in frames(built / "dumps" / "SuicideMeme_submissions.zst")).splitlines()
    assert any(b'"subreddit": "SuicideMeme"' in line for line in lines)
    assert any(b'"subreddit":"SuicideMeme"' in line for line in lines)
    assert any(b"\\u" in line for line in lines)
    assert any(b"&amp;" in line for line in lines)
    assert any(not line.isascii() for line in lines)
    rows = list(map(json.loads, lines))
    nested = [r for r in rows if r["subreddit"] != "SuicideMeme" and r.get("crosspost_parent_list")]
    assert any(r["crosspost_parent_list"][0]["subreddit"] == "SuicideMeme" for r in nested)
    assert {r["subreddit"] for r in rows} > {"SuicideMeme", "SuicideMemeTalk"}
