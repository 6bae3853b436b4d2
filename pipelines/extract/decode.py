"""Decode untrusted pictures to plain JPEGs in a restricted child process that may crash safely.

The result has no EXIF, profile or comments and only the first frame; the same input gives the same bytes. A picture
that cannot be decoded gets a drop reason. ``decode_child.py`` does the decoding.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.config.collect import Decode

CHILD = Path(__file__).with_name("decode_child.py")
REQUEST = struct.Struct(">Q")
REPLY = struct.Struct(">16sIIIQ")
REASONS = frozenset({"not_an_image", "format", "too_many_pixels", "too_many_frames", "truncated"})


@dataclass(frozen=True)
class DecodedPicture:
    """A picture in the format of the corpus: upright baseline JPEG, RGB 4:4:4, white background, no metadata.

    ``width`` and ``height`` are pixels, ``sha256`` is of ``data``, ``frames`` is what the original had.
    """

    data: bytes
    width: int
    height: int
    sha256: str
    frames: int


class Decoder:
    """A picture decoder in a child process, which is restarted after a crash or a timeout; for use by one thread.

    The child has ``memory_mb`` of address space and ``timeout_seconds`` of processor and wall time per picture. It
    cannot write files or core dumps and inherits no environment. Colours are read as sRGB; profiles are ignored.
    """

    def __init__(self, params: Decode) -> None:
        self._params = params
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Decoder:
        self._started()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """The process id of the child, or ``None`` between a crash and the next picture."""
        return self._child.pid if self._child else None

    def decode(self, data: bytes) -> DecodedPicture | str:
        """Decode one picture, or return the reason why that is impossible.

        Reasons: ``not_an_image``; ``format`` (not one of ``formats``); ``too_many_pixels`` (checked before loading);
        ``too_many_frames``; ``truncated`` (or damaged); ``decoder_crashed`` (also out of memory); ``decoder_timeout``.
        """
        child = self._started()
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(self._params.timeout_seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            outcome = self._exchange(child, data=data)
        except (OSError, struct.error):
            outcome = "decoder_crashed"
        finally:
            timer.cancel()
        # a timer that fired while the answer arrived has killed the child too
        if late.is_set() or outcome == "decoder_crashed":
            self._end()
        return "decoder_timeout" if late.is_set() and outcome == "decoder_crashed" else outcome

    def _exchange(self, child: subprocess.Popen[bytes], *, data: bytes) -> DecodedPicture | str:
        if child.stdin is None or child.stdout is None:
            return "decoder_crashed"
        child.stdin.write(REQUEST.pack(len(data)))
        child.stdin.write(data)
        child.stdin.flush()
        reason, width, height, frames, size = REPLY.unpack(child.stdout.read(REPLY.size))
        if reason := reason.rstrip(b"\0").decode("ascii", "replace"):
            return reason if reason in REASONS else "decoder_crashed"
        # a picture may have taken over the child, so the sizes it reports are checked before memory is allocated
        if not 0 < width * height <= self._params.max_pixels or size > 4 * width * height + 65_536:
            return "decoder_crashed"
        jpeg = child.stdout.read(size)
        if len(jpeg) != size:
            return "decoder_crashed"
        return DecodedPicture(
            data=jpeg, width=width, height=height, sha256=hashlib.sha256(jpeg).hexdigest(), frames=frames
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._end()
        p = self._params
        numbers = (p.max_pixels, p.max_frames, p.quality, p.memory_mb, math.ceil(p.timeout_seconds))
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", str(CHILD), ",".join(p.formats), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback could quote what it read
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        )
        return self._child

    def _end(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent data for a dead child is discarded
                    pipe.close()
        self._child = None
