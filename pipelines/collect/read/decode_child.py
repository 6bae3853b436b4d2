"""Decode untrusted pictures with Pillow only, in a process with few resources and no permissions.

``confined_child.py`` starts this module in an isolated interpreter; before the first picture it gives up files, network
and processes. A request on standard input is a length and the bytes of a picture. A response on standard output is one
``REPLY`` (reason, width, height, frames, length) and the pixels, three bytes each. The parent encodes them: a picture
that takes this process over can choose pixels, but not the bytes of the file that is stored.
"""

from __future__ import annotations

import io
import struct
import warnings
from functools import partial

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

from pipelines.collect.read.confine import announce, confine, limit, serve

# preloaded: later, no file can be opened
PLUGINS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin)
REPLY = struct.Struct(">16sIIIQ")
MAX_SIDE = 65_500  # libjpeg's limit, and the output is a JPEG
ORIENTATION = 0x0112
# EXIF 2.3, tag Orientation: the transposition that makes the stored picture upright
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# First bytes by format, to distinguish unsupported and damaged pictures from data that is not a picture
SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG": "PNG",
    b"GIF8": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"BM": "BMP",
    b"8BPS": "PSD",
    b"\0\0\1\0": "ICO",
    b"\xff\x0a": "JXL",
    b"\0\0\0\x0cJXL ": "JXL",
    b"\0\0\0\x0cjP  ": "JPEG2000",
    b"<svg": "SVG",
}


class Unfit(Exception):
    """A picture is rejected for ``reason``."""


def signature(data: bytes) -> str | None:
    """Return the picture format that the first bytes indicate; nothing is decoded."""
    if data[:4] == b"RIFF":
        return "WEBP" if data[8:12] == b"WEBP" else None
    if data[4:12] in (b"ftypavif", b"ftypavis", b"ftypheic", b"ftypheix", b"ftypmif1"):
        return "HEIF"
    return next((name for start, name in SIGNATURES.items() if data.startswith(start)), None)


def open_checked(data: bytes, *, formats: tuple[str, ...], max_pixels: int, max_frames: int) -> tuple[Image.Image, int]:
    """Check a picture's header without loading the pixels; return the picture and its number of frames."""
    kind = signature(data)
    if kind not in formats:
        raise Unfit("format" if kind else "not_an_image")
    try:
        image = Image.open(io.BytesIO(data), formats=[kind])
        if image.width * image.height > max_pixels or max(image.size) > MAX_SIDE:
            raise Unfit("too_many_pixels")
        frames = int(getattr(image, "n_frames", 1))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unfit("too_many_pixels") from None
    except (Unfit, MemoryError):
        raise
    except Exception:
        raise Unfit("truncated") from None
    if frames > max_frames:
        raise Unfit("too_many_frames")
    return image, frames


def upright(image: Image.Image) -> Image.Image:
    """Rotate the picture as its EXIF data requires, or return it unchanged if these are damaged."""
    try:
        turn = UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return image
    return image.transpose(turn) if turn is not None else image


def flat(image: Image.Image) -> Image.Image:
    """Convert the picture to 8-bit RGB on white; 16-bit grey is scaled, because Pillow's conversion would clip it."""
    if image.mode.startswith("I"):
        image = image.point(lambda value: value * (1 / 256)).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    white.alpha_composite(image)
    return white.convert("RGB")


def answer(data: bytes, *, formats: tuple[str, ...], max_pixels: int, max_frames: int) -> tuple[bytes, bytes]:
    """Return the response to the parent: a ``REPLY`` and the pixels, or a ``REPLY`` that contains the reason."""
    try:
        image, frames = open_checked(data, formats=formats, max_pixels=max_pixels, max_frames=max_frames)
        try:
            image.load()
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error):
            raise Unfit("truncated") from None
        picture = flat(upright(image))
    except Unfit as unfit:
        return REPLY.pack(str(unfit).encode(), 0, 0, 0, 0), b""
    pixels = picture.tobytes()
    return REPLY.pack(b"", picture.width, picture.height, frames, len(pixels)), pixels


def main(arguments: list[str]) -> None:
    """Decode pictures from the pipe until the parent closes it."""
    formats = tuple(arguments[0].split(","))
    max_pixels, max_frames, memory_mb, seconds = map(int, arguments[1:])
    limit(memory_mb=memory_mb)
    Image.MAX_IMAGE_PIXELS = max_pixels
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    # what Pillow and Python import at the first use, they must import now
    for kind in formats:
        _warm(kind)
    announce(layers=confine())
    serve(partial(answer, formats=formats, max_pixels=max_pixels, max_frames=max_frames), seconds=seconds)


def _warm(kind: str) -> None:
    out = io.BytesIO()
    Image.new("RGB", (2, 2)).save(out, kind)
    with Image.open(out) as image:
        upright(image)
        image.load()
