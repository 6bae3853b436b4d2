import io
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageDraw, PngImagePlugin

from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.core.config.collect import Decode

PARAMS = Decode(
    formats=("JPEG", "PNG", "WEBP", "GIF"),
    max_pixels=40_000_000,
    max_frames=20,
    memory_mb=1024,
    timeout_seconds=20,
    quality=95,
)
RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder(PARAMS) as running:
        yield running


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def drawn(size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A picture that is different on every side."""
    image = Image.new("RGB", size, WHITE)
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 3, size[1] // 3), fill=RED)
    ImageDraw.Draw(image).line((0, size[1], size), fill=(0, 0, 255), width=3)
    return image


def pixels(picture: DecodedPicture | str) -> Image.Image:
    assert isinstance(picture, DecodedPicture), picture
    image = Image.open(io.BytesIO(picture.data))
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (picture.width, picture.height))
    return image


def close(found: Image.Image, wanted: Image.Image, *, within: int = 24) -> bool:
    """Alike but for what a JPEG of quality 95 does."""
    pairs = zip(found.convert("RGB").tobytes(), wanted.convert("RGB").tobytes(), strict=True)
    return max(abs(a - b) for a, b in pairs) <= within


def segments(jpeg: bytes) -> list[int]:
    """The markers before the scan."""
    markers, at = [], 2
    while jpeg[at + 1] != 0xDA:
        markers.append(jpeg[at + 1])
        at += 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
    return markers


def png(width: int, height: int, *, depth: int = 8, colour: int = 0, rows: Iterable[bytes] = ()) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header, packer = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0), zlib.compressobj(9)
    packed = b"".join(map(packer.compress, rows)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "options"), [("JPEG", {"quality": 95, "subsampling": 0}), ("PNG", {}), ("WEBP", {"lossless": True})]
)
def test_the_picture_survives(decoder: Decoder, kind: str, options: dict) -> None:
    result = decoder.decode(encoded(drawn(), kind, **options))
    assert close(pixels(result), drawn())
    assert isinstance(result, DecodedPicture)
    assert result.frames == 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(decoder: Decoder, mode: str) -> None:
    source = drawn().convert(mode)
    data = encoded(source, "JPEG", quality=100) if mode == "CMYK" else encoded(source)
    assert close(pixels(decoder.decode(data)), source, within=60 if mode == "CMYK" else 24)


def test_sixteen_bit_grey_is_scaled_and_not_clipped(decoder: Decoder) -> None:
    values = [0, 0x4000, 0x8000, 0xC000]
    row = b"".join(struct.pack(">H", value) * 16 for value in values)
    image = pixels(decoder.decode(png(64, 16, depth=16, rows=[b"\0" + row] * 16)))
    found = [image.getpixel((16 * i + 8, 8))[0] for i in range(4)]
    assert all(abs(a - b) <= 2 for a, b in zip(found, [0, 64, 128, 192], strict=True))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "palette", "keyed", "GIF"])
def test_transparency_lies_on_white(decoder: Decoder, kind: str) -> None:
    image = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((0, 0, 15, 31), fill=(*RED, 255))
    if kind == "palette":
        data = encoded(image.quantize(4))
    elif kind == "keyed":
        flat = Image.new("RGB", (32, 32), (0, 0, 0))
        flat.paste(RED, (0, 0, 16, 32))
        data = encoded(flat, transparency=(0, 0, 0))
    else:
        data = encoded(image, kind, lossless=True)
    found = pixels(decoder.decode(data))
    wanted = Image.new("RGB", (32, 32), WHITE)
    wanted.paste(RED, (0, 0, 16, 32))
    assert close(found, wanted, within=40)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_upright(decoder: Decoder, orientation: int) -> None:
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the inverse of each turn, as Image.Transpose
    stored = drawn() if orientation == 1 else drawn().transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert close(pixels(decoder.decode(encoded(stored, exif=exif))), drawn())
    jpeg = encoded(stored, "JPEG", exif=exif, quality=95, subsampling=0)
    assert close(pixels(decoder.decode(jpeg)), drawn(), within=40)


def test_nothing_of_the_original_but_its_pixels_comes_out(decoder: Decoder) -> None:
    exif = Image.Exif()
    exif[0x010E] = "planted description"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "planted text")
    sources = [
        encoded(drawn(), "JPEG", exif=exif, icc_profile=profile, comment=b"planted comment", dpi=(300, 300)),
        encoded(drawn(), "PNG", exif=exif, icc_profile=profile, pnginfo=text),
        encoded(drawn(), "WEBP", exif=exif, icc_profile=profile, xmp=b"planted xmp"),
        encoded(drawn(), "GIF", comment=b"planted comment"),
    ]
    for source in sources:
        result = decoder.decode(source)
        image = pixels(result)
        assert b"planted" not in result.data
        # JFIF, quantisation, baseline frame, Huffman tables; no APP1 (EXIF), APP2 (profile), COM
        assert set(segments(result.data)) <= {0xE0, 0xDB, 0xC0, 0xC4}
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi"}
        assert all((across, down) == (1, 1) for _, across, down, _ in image.layer)  # 4:4:4


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_gives_its_first_frame_up_to_a_number(decoder: Decoder, kind: str) -> None:
    def animated(frames: int) -> bytes:
        rest = [Image.new("RGB", (64, 48), (0, 9 * i, 0)) for i in range(1, frames)]
        options = {"lossless": True} if kind == "WEBP" else {}
        return encoded(drawn(), kind, save_all=True, append_images=rest, **options)

    result = decoder.decode(animated(PARAMS.max_frames))
    assert close(pixels(result), drawn(), within=40)
    assert result.frames == PARAMS.max_frames
    assert decoder.decode(animated(PARAMS.max_frames + 1)) == "too_many_frames"


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "ICO", "PPM", "AVIF"])
def test_formats_not_named_are_not_opened(decoder: Decoder, kind: str) -> None:
    assert decoder.decode(encoded(drawn(), kind)) in ("format", "not_an_image")


@pytest.mark.parametrize("data", [b"", b"<html>", b"RIFF\x10\0\0\0WAVEfmt ", b"plain words", bytes(1000)])
def test_what_is_no_picture_is_called_so(decoder: Decoder, data: bytes) -> None:
    assert decoder.decode(data) == "not_an_image"


def test_a_format_can_be_left_out_by_the_parameters() -> None:
    with Decoder(PARAMS.model_copy(update={"formats": ("PNG",)})) as only_png:
        assert only_png.decode(encoded(drawn(), "JPEG")) == "format"
        assert isinstance(only_png.decode(encoded(drawn())), DecodedPicture)


def test_a_small_file_of_huge_pixels_is_refused_before_it_is_loaded(decoder: Decoder) -> None:
    side = 15_180  # 691 MB as RGB, in Pillow's three bytes a pixel on disk and four in memory
    bomb = png(side, side, colour=2, rows=(b"\0" * (1 + 3 * side) for _ in range(side)))
    assert len(bomb) < 1_000_000
    before = memory(decoder)
    assert decoder.decode(bomb) == "too_many_pixels"
    assert memory(decoder) - before < 50_000


def memory(decoder: Decoder) -> int:
    """The child's peak resident memory in KiB."""
    lines = Path(f"/proc/{decoder.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_size_is_read_from_the_header(decoder: Decoder, kind: str) -> None:
    data = bytearray(encoded(Image.new("RGB", (4, 4)), kind, **({"lossless": True} if kind == "WEBP" else {})))
    if kind == "PNG":
        data[16:33] = png(50_000, 50_000)[16:33]
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", 50_000, 50_000)
    else:
        data[21:25] = struct.pack("<I", 16_382 | 16_382 << 14)
    assert decoder.decode(bytes(data)) == "too_many_pixels"


def test_the_last_allowed_pixel_counts(decoder: Decoder) -> None:
    assert decoder.decode(encoded(Image.new("RGB", (65_501, 1)))) == "too_many_pixels", "a JPEG's side is shorter"
    with Decoder(PARAMS.model_copy(update={"max_pixels": 100})) as small:
        assert isinstance(small.decode(encoded(Image.new("RGB", (10, 10)))), DecodedPicture)
        assert small.decode(encoded(Image.new("RGB", (101, 1)))) == "too_many_pixels"
        assert small.decode(encoded(Image.new("RGB", (1000, 1000)))) == "too_many_pixels"


WHOLE = {
    kind: encoded(Image.effect_noise((80, 60), 90).convert("RGB"), kind) for kind in ("JPEG", "PNG", "WEBP", "GIF")
}


@pytest.mark.parametrize("kind", WHOLE)
@given(part=st.floats(min_value=0.05, max_value=0.95))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cut_picture_is_truncated(decoder: Decoder, kind: str, part: float) -> None:
    data = WHOLE[kind]
    assert decoder.decode(data[: int(len(data) * part)]) == "truncated"


@pytest.mark.parametrize("kind", WHOLE)
@given(at=st.integers(min_value=4, max_value=400), value=st.integers(min_value=0, max_value=255))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_picture_never_takes_the_decoder_down(decoder: Decoder, kind: str, at: int, value: int) -> None:
    data = bytearray(WHOLE[kind])
    data[at] = value
    result = decoder.decode(bytes(data))
    reasons = {"truncated", "format", "not_an_image", "too_many_pixels", "too_many_frames"}
    assert isinstance(result, DecodedPicture) or result in reasons


def test_the_same_input_gives_the_same_bytes_in_any_process() -> None:
    data = encoded(drawn(), "WEBP")
    results = []
    for _ in range(2):
        with Decoder(PARAMS) as fresh:
            results += [fresh.decode(data), fresh.decode(data)]
    assert len(set(results)) == 1


def test_one_child_serves_all_pictures_and_ends_with_the_decoder() -> None:
    with Decoder(PARAMS) as running:
        pid = running.pid
        for _ in range(3):
            running.decode(encoded(drawn()))
        assert running.pid == pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def reader(decoder: Decoder) -> int:
    """Return the process that reads pictures: the innermost that bubblewrap started, or the child itself."""
    decoder.decode(encoded(drawn()))
    return next(reversed(psutil.Process(decoder.pid).children(recursive=True)), psutil.Process(decoder.pid)).pid


def test_a_crash_costs_one_picture() -> None:
    with Decoder(PARAMS) as running:
        pid = reader(running)
        os.kill(pid, signal.SIGSTOP)  # so that the picture is surely in its hands
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        assert running.decode(encoded(drawn())) == "decoder_crashed"
        assert isinstance(running.decode(encoded(drawn())), DecodedPicture)
        assert reader(running) != pid


def test_a_child_that_died_between_two_pictures_costs_none() -> None:
    with Decoder(PARAMS) as running:
        os.kill(running.pid, signal.SIGKILL)
        time.sleep(0.1)
        assert isinstance(running.decode(encoded(drawn())), DecodedPicture)


def test_a_picture_that_takes_too_long_is_given_up() -> None:
    with Decoder(PARAMS.model_copy(update={"timeout_seconds": 1.5})) as running:
        os.kill(reader(running), signal.SIGSTOP)
        began = time.monotonic()
        assert running.decode(encoded(drawn())) == "decoder_timeout"
        assert time.monotonic() - began < 4
        assert isinstance(running.decode(encoded(drawn())), DecodedPicture)


def test_a_picture_that_takes_too_much_memory_is_given_up() -> None:
    with Decoder(PARAMS.model_copy(update={"memory_mb": 200})) as running:
        assert running.decode(encoded(Image.new("RGBA", (6000, 6000)))) == "decoder_crashed"
        assert isinstance(running.decode(encoded(drawn())), DecodedPicture)


def test_the_child_has_limits_and_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_SECRET", "planted")
    with Decoder(PARAMS) as running:
        running.decode(encoded(drawn()))
        facts = Path(f"/proc/{reader(running)}")
        assert b"planted" not in (facts / "environ").read_bytes()
        limits = {line[:26].strip(): line[26:46].strip() for line in (facts / "limits").read_text().splitlines()}
        assert limits["Max address space"] == str(PARAMS.memory_mb * 2**20)
        assert limits["Max core file size"] == limits["Max file size"] == "0"
        assert 20 < int(limits["Max cpu time"]) < 40


def test_the_child_loads_pillow_and_what_confines_it() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pipelines.collect.read.decode_child; print(*sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-I", "-c", code, str(root)], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    ours = {name for name in loaded if name.partition(".")[0] in ("pipelines", "crisis_corpus")}
    read = "pipelines.collect.read"
    assert ours == {"pipelines", "pipelines.collect", read, f"{read}.confine", f"{read}.decode_child"}
    assert "PIL" in loaded
    assert not set(loaded) & {"numpy", "pydantic", "yaml", "httpx", "asyncio", "sqlalchemy"}
