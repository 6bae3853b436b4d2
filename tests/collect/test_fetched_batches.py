"""The pictures of a shard: how many wait in memory, and which previews are tried."""

import io
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipelines.collect.images import (
    GivenPictures,
    ImageJob,
    _decoded,
    _fetched,
    _fetching,
    _PictureReader,
    _read,
    _require_hosts,
    batch_size,
)
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.core.config.params import Params, load
from pipelines.core.errors import SourceUnavailable
from tests.json_server import Request, json_server

MIB = 2**20
PICTURE = bytes(MIB)


@contextmanager
def served(answer: Callable[[str, int], tuple[int, bytes]]) -> Iterator[tuple[str, Counter[str]]]:
    """Serve pictures; ``answer`` gives status and body by a request's path and its number. Yield also the requests."""
    asked: Counter[str] = Counter()

    def counted(request: Request) -> tuple[int, bytes, dict[str, str]]:
        asked[request.path] += 1
        return *answer(request.path, asked[request.path]), {"Content-Type": "image/png"}

    with json_server(counted) as address:
        yield address, asked


def test_pictures_that_wait_to_be_read_stay_within_the_limit() -> None:
    params = sandbox_params(max_bytes=MIB, memory_mb=4, hosts=("127.0.0.1",), allow_http=True, allow_loopback=True)
    # pictures of the largest allowed size
    with served(lambda path, number: (200, PICTURE)) as (address, _):
        jobs = [ImageJob("0" * 32, n, (f"{address}/{n}.png",)) for n in range(24)]
        tracemalloc.start()
        try:
            sizes = [len(data) for _, data in _fetched(jobs, params=params, fetch=_fetching(params))]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert sizes == [MIB] * 24
    # two batches of two pictures, and the buffers of those that are being received
    assert peak < 8 * MIB


def picture(drawn: Image.Image | None = None) -> bytes:
    out = io.BytesIO()
    (drawn or Image.new("RGB", (8, 8), "green")).save(out, "PNG")
    return out.getvalue()


def preview(path: str, number: int) -> tuple[int, bytes]:
    """Answer with a picture, with half of one, or not at all."""
    name = path.rpartition("/")[2]
    body = {"good": picture(), "torn": picture()[:40], "page": b"<html>"}.get(name, b"")
    return {"gone": 410, "missing": 404}.get(name, 200), body


def sandbox_params(**fetch: object) -> Params:
    params = load(Path(__file__).resolve().parents[2], profile="sandbox")
    images = params.images.model_copy(update={"fetch": params.images.fetch.model_copy(update=fetch)})
    return params.model_copy(update={"images": images})


def test_previews_are_tried_when_a_picture_cannot_be_decoded() -> None:
    wanted = {
        "torn good": None, "torn missing good": None, "missing torn good": None, "page torn": "not_an_image",
        "torn gone good": "truncated", "torn": "truncated", "gone good": "gone", "good torn": None,
        "missing": "not_found",
    }  # fmt: skip
    params = sandbox_params()
    with served(preview) as (address, asked), Decoder(params.images.decode) as decoder:
        places = ([f"{address}/{n}/{name}" for name in names.split()] for n, names in enumerate(wanted))
        jobs = [ImageJob("0" * 32, n, tuple(each)) for n, each in enumerate(places)]
        found = list(_decoded(jobs, decoder=decoder, params=params, fetch=_fetching(params)))
    outcome = {job.image: None if isinstance(read, DecodedPicture) else read for job, read in found}
    assert outcome == dict(enumerate(wanted.values()))
    assert len(found) == len(wanted), "each picture once"
    assert asked["/4/good"] == 0, "the host removed the picture"
    assert asked["/7/torn"] == 0, "the picture is good"


def test_the_digest_of_a_shared_picture_is_a_placeholder() -> None:
    params = sandbox_params()
    with Decoder(params.images.decode) as decoder:
        decoded = decoder.decode(picture())
    assert isinstance(decoded, DecodedPicture)
    reader = _PictureReader.__new__(_PictureReader)
    reader.placeholders = sandbox_params(placeholders=(decoded.sha256.upper(),)).images.fetch.placeholder_digests
    assert reader.row(ImageJob("0" * 32, 0, ()), decoded) == "placeholder"


@pytest.mark.parametrize("published", [None, "", "what the publisher read"])
def test_the_share_of_words_in_a_picture_is_unknown_only_if_its_publisher_read_them(published: str | None) -> None:
    params = sandbox_params()
    text = Image.new("RGB", (480, 320), "white")
    ImageDraw.Draw(text).text((20, 120), "the garden is quiet", "black", ImageFont.load_default(48))
    with Decoder(params.images.decode) as decoder:
        decoded = decoder.decode(picture(text))
    assert isinstance(decoded, DecodedPicture)
    given = None if published is None else GivenPictures("published/x", lambda _: "no", {"a": published})
    row = _PictureReader(params, sources={}, given=given).row(ImageJob("0" * 32, 0, ("a",)), decoded)
    assert isinstance(row, dict)
    if published:
        assert (row["text"], row["text_area"]) == (published, None)
    else:
        assert row["words"] and 0 < row["text_area"] < 1


def outage(path: str, number: int) -> tuple[int, bytes]:
    """Answer the first three requests of a picture with 503, which one attempt with its two retries uses up."""
    if ("short" in path and number <= 3) or "long" in path:
        return 503, b""
    return 404 if "missing" in path else 200, picture()


def test_pictures_that_failed_for_now_are_tried_again_after_all_others() -> None:
    names = ("short", "good", "long", "missing")
    reader = _PictureReader.__new__(_PictureReader)
    reader.row = lambda job, picture: {"width": picture.width}
    params = sandbox_params()
    with served(outage) as (address, asked), Decoder(params.images.decode) as decoder:
        jobs = [ImageJob("0" * 32, n, (f"{address}/{name}",)) for n, name in enumerate(names)]
        found = list(_read(jobs, reader=reader, decoder=decoder, params=params, fetch=_fetching(params)))
    outcome = {names[job.image]: row for job, row in found}
    assert outcome == {"short": {"width": 8}, "good": {"width": 8}, "long": "http_503", "missing": "not_found"}
    assert len(found) == len(names), "each picture once"
    assert asked == {"/short": 4, "/good": 1, "/long": 6, "/missing": 1}


def test_a_shard_stops_if_most_of_its_pictures_fail_for_now() -> None:
    def drops(reason: str, count: int) -> dict[tuple[str, int], str]:
        return {("0" * 32, n): reason for n in range(count)}

    with pytest.raises(SourceUnavailable, match=r"11 of 20 .* \(timeout 11\)"):
        _require_hosts(drops("timeout", 11), pictures=20, most=0.5)
    _require_hosts(drops("timeout", 10), pictures=20, most=0.5)
    _require_hosts(drops("timeout", 9), pictures=9, most=0.5)
    _require_hosts(drops("gone", 20), pictures=20, most=0.5)


@pytest.mark.parametrize(
    ("memory_mb", "max_bytes", "size"), [(256, 20 * MIB, 6), (256, MIB // 10, 32), (8, 20 * MIB, 1)]
)
def test_a_batch_is_as_large_as_the_memory_allows(memory_mb: int, max_bytes: int, size: int) -> None:
    fetch = load(Path(__file__).resolve().parents[2]).images.fetch
    assert batch_size(fetch.model_copy(update={"memory_mb": memory_mb, "max_bytes": max_bytes})) == size
