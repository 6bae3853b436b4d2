"""Decode untrusted pictures to plain JPEGs; a confined child process, which may crash safely, reads the files.

The result has no EXIF, profile or comments and only the first frame; the same input gives the same bytes. A picture
that cannot be decoded gets a drop reason. ``decode_child.py`` does the decoding and returns pixels; they are encoded
here.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
from dataclasses import dataclass
from typing import BinaryIO

from PIL import Image

from pipelines.collect.read.confined_child import ChildCrashed, ChildLate, ConfinedChild
from pipelines.core.config.collect import Decode

REPLY = struct.Struct(">16sIIIQ")
REASONS = frozenset({"not_an_image", "format", "too_many_pixels", "too_many_frames", "truncated"})
BYTES_PER_PIXEL = 3


@dataclass(frozen=True)
class DecodedPicture:
    """A picture in the format of the corpus: upright baseline JPEG, RGB 4:4:4, white background, no metadata.

    ``sha256`` is of ``data``, ``frames`` is what the original had.
    """

    data: bytes
    width: int
    height: int
    sha256: str
    frames: int


class Decoder:
    """A picture decoder in a child process, which is restarted after a crash or a timeout; for use by one thread.

    The child has ``memory_mb`` of address space and ``timeout_seconds`` of processor and wall time per picture. It has
    no files, network, processes or environment. Colours are read as sRGB; profiles are ignored.
    """

    def __init__(self, params: Decode) -> None:
        self._params = params
        numbers = (params.max_pixels, params.max_frames, params.memory_mb, math.ceil(params.timeout_seconds))
        self._child = ConfinedChild(
            "decode_child",
            [",".join(params.formats), *map(str, numbers)],
            timeout_seconds=params.timeout_seconds,
            sandbox=params.sandbox,
        )

    def __enter__(self) -> Decoder:
        self._child.started()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    @property
    def pid(self) -> int | None:
        return self._child.pid

    @property
    def layers(self) -> list[str]:
        return self._child.layers

    def decode(self, data: bytes) -> DecodedPicture | str:
        """Decode one picture, or return the reason why that is impossible.

        Reasons: ``not_an_image``; ``format`` (not one of ``formats``); ``too_many_pixels`` (checked before loading);
        ``too_many_frames``; ``truncated`` (or damaged); ``decoder_crashed`` (also out of memory); ``decoder_timeout``.
        """
        try:
            return self._child.ask(data, read=self._answer)
        except ChildCrashed:
            return "decoder_crashed"
        except ChildLate:
            return "decoder_timeout"

    def _answer(self, source: BinaryIO) -> DecodedPicture | str:
        reason, width, height, frames, size = REPLY.unpack(source.read(REPLY.size))
        if reason := reason.rstrip(b"\0").decode("ascii", "replace"):
            if reason not in REASONS:
                raise ChildCrashed
            return str(reason)
        # a picture may have taken over the child, so the sizes it reports are checked before memory is allocated
        if not 0 < width * height <= self._params.max_pixels or size != BYTES_PER_PIXEL * width * height:
            raise ChildCrashed
        jpeg = encode(source.read(size), width=width, height=height, quality=self._params.quality)
        return DecodedPicture(
            data=jpeg, width=width, height=height, sha256=hashlib.sha256(jpeg).hexdigest(), frames=frames
        )


def require_sandbox(params: Decode) -> None:
    """Check that pictures can be decoded here under the rules of ``params.sandbox``."""
    with Decoder(params) as decoder:
        decoder.decode(b"")


def encode(pixels: bytes, *, width: int, height: int, quality: int) -> bytes:
    """Encode RGB pixels as baseline JPEG, 4:4:4, without metadata."""
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), pixels).save(out, "JPEG", quality=quality, subsampling=0)
    return out.getvalue()
