"""Generate files that a collector must refuse: placeholders, damaged pictures, decompression bombs, fake pictures."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Callable
from random import Random

from PIL import Image

# More than the profile's fetch.max_bytes, which is 3 MB.
HUGE_BYTES = 3_300_000
# More than decode.max_pixels (40 megapixels) and decode.max_frames (200).
MANY_PIXELS = (8000, 6000)
MANY_FRAMES = 220
PAGE = b"<!doctype html><title>Sign in</title><p>Please sign in to see this picture.</p>"


def placeholder() -> bytes:
    """Return a host's "no longer available" picture, whose bytes do not depend on the drawing library."""
    width, height = 161, 81
    rows = bytearray()
    for y in range(height):
        row = bytearray([228] * width)
        for x in range(width):
            frame = 50 <= x < 110 and 15 <= y < 65 and not (54 <= x < 106 and 19 <= y < 61)
            cross = 60 <= x < 100 and abs((x - 60) - (y - 20)) <= 2
            row[x] = 120 if frame or cross else row[x]
        rows += b"\0" + row
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    size = len(rows)  # one stored block (RFC 1950, 1951), written here so that no zlib version changes the digest
    stored = b"\x78\x01\x01" + struct.pack("<HH", size, size ^ 0xFFFF) + rows + struct.pack(">I", zlib.adler32(rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", stored) + _chunk(b"IEND", b"")


def placeholder_sha256() -> str:
    """Return the digest by which the fetch step recognises the placeholder (``fetch.placeholders`` in the profile)."""
    return hashlib.sha256(placeholder()).hexdigest()


def faulty(name: str, *, picture: bytes, rng: Random) -> bytes:
    """Return the bytes that the fault ``name`` makes of a valid JPEG ``picture``."""
    made: dict[str, Callable[[], bytes]] = {
        "placeholder": placeholder,
        "huge": lambda: picture + rng.randbytes(HUGE_BYTES - len(picture)),
        "broken": lambda: rng.randbytes(4096),
        "cut_file": lambda: picture[: len(picture) // 2],
        "wrong_type": lambda: PAGE,
        "too_many_pixels": _too_many_pixels,
        "too_many_frames": _too_many_frames,
    }
    return made[name]() if name in made else picture


def _too_many_pixels() -> bytes:
    out = io.BytesIO()
    Image.new("1", MANY_PIXELS).save(out, "PNG")
    return out.getvalue()


def _too_many_frames() -> bytes:
    out = io.BytesIO()
    frames = [Image.new("L", (16, 16), i) for i in range(MANY_FRAMES)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=40)
    return out.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
