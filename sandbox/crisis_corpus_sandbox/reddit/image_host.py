"""Generate files that a collector must refuse, and serve pictures with the faults of a real image host."""

from __future__ import annotations

import hashlib
import io
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from itertools import repeat
from pathlib import Path
from random import Random
from typing import ClassVar

import orjson
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


# Below fetch.min_bytes_per_second (2,048): 40 bytes each 0.1 s.
TRICKLE_BYTES, TRICKLE_SECONDS = 40, 0.1
# Over fetch.max_bytes, 20 MiB by default.
ENDLESS_BYTES = 24 * 2**20
FORBIDDEN = "http://169.254.169.254/latest/meta-data/"
RETRY_AFTER_SECONDS = 1


def send(
    request: BaseHTTPRequestHandler,
    data: bytes,
    *,
    status: int,
    headers: Mapping[str, str],
    parts: Iterator[bytes] | None = None,
) -> None:
    """Send ``data`` as HTTP response; with ``parts``, send these and disconnect, whatever length is announced."""
    request.send_response(status)
    length = {} if "Transfer-Encoding" in headers else {"Content-Length": str(len(data))}
    for name, text in {**headers, **length}.items():
        request.send_header(name, text)
    request.close_connection = request.close_connection or parts is not None
    request.end_headers()
    for part in parts if parts is not None else (data,):
        request.wfile.write(part)
        request.wfile.flush()


def _trickle(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), TRICKLE_BYTES):
        yield data[start : start + TRICKLE_BYTES]
        time.sleep(TRICKLE_SECONDS)


def _chunks(data: bytes) -> Iterator[bytes]:
    """Yield ``data`` and 24 MiB of zeros as chunks of HTTP."""
    for part in (data, *repeat(bytes(2**16), ENDLESS_BYTES // 2**16)):
        yield f"{len(part):x}\r\n".encode() + part + b"\r\n"
    yield b"0\r\n\r\n"


class ImageHost:
    """A simulated image host that serves ``images/<file>`` with the faults that ``images.json`` specifies."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "images"
        index = root / "images.json"
        self._files: dict[str, dict[str, str]] = orjson.loads(index.read_bytes()) if index.is_file() else {}
        self._turned_away: set[str] = set()

    def serve(self, request: BaseHTTPRequestHandler, *, file: str, query: Mapping[str, str]) -> None:
        """Answer a request for the picture ``file``, with the fault that ``images.json`` specifies for it.

        After a redirect (``hop`` in the query), the file is sent without faults.
        """
        entry = self._files.get(file)
        path = self._folder / file
        behaviour = entry["behaviour"] if entry else "missing"
        if behaviour in self.STATUSES or not entry or not path.is_file():
            send(request, b"", status=self.STATUSES.get(behaviour, 404), headers={"Content-Type": "text/plain"})
            return
        if behaviour == "retry_after" and file not in self._turned_away:
            self._turned_away.add(file)
            send(request, b"", status=429, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
            return
        if behaviour in self.REDIRECTS and "hop" not in query:
            here = f"http://{request.headers.get('Host')}{request.path.partition('?')[0]}?hop=1"
            send(request, b"", status=302, headers={"Location": FORBIDDEN if "forbidden" in behaviour else here})
            return
        data, parts = path.read_bytes(), self.STREAMS.get(behaviour)
        headers = {"Content-Type": entry["content_type"]}
        if behaviour == "huge":  # without an announced length, the client has to count bytes
            headers |= {"Transfer-Encoding": "chunked"}
        send(request, data, status=200, headers=headers, parts=parts and parts(data))

    STATUSES: ClassVar = {"missing": 404, "gone": 410}
    REDIRECTS: ClassVar = {"redirect", "redirect_forbidden"}
    STREAMS: ClassVar[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
        "slow": _trickle,
        "truncated": lambda data: iter([data[: len(data) // 2]]),
        "huge": _chunks,
    }
