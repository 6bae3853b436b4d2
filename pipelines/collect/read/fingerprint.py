"""Compute 64-bit perceptual hashes of pictures, always by the same steps of decoding.

Hashes of differently decoded pictures differ (SPEC.md 2.6) and must not be mixed. libjpeg decodes the JPEG in grey at
the smallest scale with at least 256 pixels a side (2.5 times as fast as at full size), and plain borders are trimmed.
Then follow the steps of ``imagehash.phash``, bit for bit: 32 x 32 by Lanczos, DCT, the 8 x 8 lowest frequencies, each
compared with their median. A repost in the bars of a phone's screenshot has another hash, so a second hash is that of
the picture without bands at its edges. A mark or a cut at the edge of a plain border changes what is trimmed, so a
third hash is that of the untrimmed picture.
"""

from __future__ import annotations

import io
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.fft
from PIL import Image

from pipelines.core.errors import DataError

SIDE, BITS_SIDE = 32, 8
DRAFT = (256, 256)
# Ours: a line of pixels belongs to a border while at most one in a hundred differs by more than 32 of 256 grey levels
# from the border's colour. JPEG noise at quality 20 stays within that; a line of small grey text does not.
TOLERANCE, STRAY = 32, 0.01
# Ours: a border that leaves less than a quarter of the width or height is not trimmed: the picture is nearly flat.
LEAST_LEFT = 0.25
# Ours: the most nested borders trimmed; a picture on white paper, reposted in a black frame, already has two.
FRAMES = 3
# Ours: a line of pixels belongs to a band while this share of it has the colour of the picture's edge; the clock of a
# status bar covers less than the rest. On bench/second_world, some clocks stay at .9, and .75 cuts into captions.
BAND = 0.85
# Ours: a pair with captions needs equal words too, so its hashes may be those of pictures with so much less energy: a
# caption of low contrast on a plain colour has .7 and more, the noise of an empty picture .5.
CAPTIONED = 0.25
FINGERPRINT_ID = f"phash64/draft-l256/trim4x{FRAMES}-{TOLERANCE}/pillow-{version('pillow')}/scipy-{version('scipy')}"
# Makes an unnormalised DCT-II orthonormal; divided by SIDE, coefficients are grey levels of the whole picture.
SCALE = np.full(BITS_SIDE, np.sqrt(1 / (2 * SIDE)))
SCALE[0] = np.sqrt(1 / (4 * SIDE))


class PictureHashes(NamedTuple):
    """The perceptual hashes of a picture, each None if that part is too flat, and the picture's energy (contrast)."""

    trimmed: int | None
    inner: int | None
    outer: int | None
    energy: float


def decoded(data: bytes) -> Image.Image:
    """Decode a JPEG in greyscale at a reduced size, and trim plain borders."""
    return _without_borders(_grey(data))


def _grey(data: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
            image.draft("L", DRAFT)
            return image.convert("L")
    except OSError:
        raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.") from None


def _without_borders(grey: Image.Image) -> Image.Image:
    for _ in range(FRAMES):
        inside = _inside(np.asarray(grey, dtype=np.int16))
        if inside == (0, 0, *grey.size):
            break
        grey = grey.crop(inside)
    return grey


def _inside(pixels: npt.NDArray[np.int16]) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) without the border, if one colour borders the picture on all four sides."""
    height, width = pixels.shape
    whole = (0, 0, width, height)
    edges = np.concatenate((pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))
    apart = np.abs(pixels - int(np.median(edges))) > TOLERANCE
    rows = np.flatnonzero(apart.mean(axis=1) > STRAY)
    if not rows.size or rows[0] == 0 or rows[-1] == height - 1:
        return whole
    top, bottom = int(rows[0]), int(rows[-1]) + 1
    columns = np.flatnonzero(apart[top:bottom].mean(axis=0) > STRAY)
    if not columns.size or columns[0] == 0 or columns[-1] == width - 1:
        return whole
    left, right = int(columns[0]), int(columns[-1]) + 1
    # Scaling mixes frame and picture in the line between them, so it is trimmed too.
    left, top, right, bottom = left + 1, top + 1, right - 1, bottom - 1
    if right - left < LEAST_LEFT * width or bottom - top < LEAST_LEFT * height:
        return whole
    return left, top, right, bottom


def without_bands(grey: Image.Image) -> Image.Image:
    """Trim bands of one colour from each side, also with a few marks in them, and what they enclose (frames)."""
    for _ in range(FRAMES):
        pixels = np.asarray(grey, dtype=np.int16)
        top, bottom = _between_bands(pixels)
        left, right = _between_bands(pixels[top:bottom].T)
        if (left, top, right, bottom) == (0, 0, *grey.size):
            break
        grey = grey.crop((left, top, right, bottom))
    return grey


def _between_bands(lines: npt.NDArray[np.int16]) -> tuple[int, int]:
    """Return the first line after the band at the begin, and the end of the last line before the band at the end."""
    count = len(lines)
    begin, end = _band(lines), count - _band(lines[::-1])
    # the lines between band and picture mix both
    begin, end = begin + (begin > 0), end - (end < count)
    return (begin, end) if end - begin >= LEAST_LEFT * count else (0, count)


def _band(lines: npt.NDArray[np.int16]) -> int:
    same = (np.abs(lines - int(np.median(lines[0]))) <= TOLERANCE).mean(axis=1) >= BAND
    return len(lines) if same.all() else int(np.argmin(same))


def fingerprint(data: bytes) -> tuple[int, float]:
    """Return the perceptual hash of a JPEG, that of ``imagehash.phash(decoded(data))``, and the picture's energy.

    The energy (contrast) is the standard deviation, in grey levels of 256, of the picture's 63 lowest frequencies
    without its mean. A flat picture has about 0, and its hash is noise.
    """
    return _hashed(decoded(data))


def _hashed(grey: Image.Image) -> tuple[int, float]:
    small = grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    pixels = np.asarray(small, dtype=np.float64)
    spectrum = scipy.fft.dct(scipy.fft.dct(pixels, axis=0)[:BITS_SIDE], axis=1)[:, :BITS_SIDE]
    middle = np.partition(spectrum, (31, 32), axis=None)[31:33].mean()
    value = int.from_bytes(np.packbits(spectrum > middle).tobytes(), "big")
    waves = spectrum * np.outer(SCALE, SCALE) / SIDE
    waves[0, 0] = 0.0
    return value, float(np.sqrt(np.square(waves).sum()))


def fingerprints(data: bytes, *, min_energy: float, captioned: bool = False) -> PictureHashes:
    """Return the hashes of a JPEG; ``None`` for energies below ``min_energy`` (less for a captioned picture)."""
    grey = _grey(data)
    inside = _without_borders(grey)
    code, energy = _hashed(inside)
    parts = inside, without_bands(inside), grey
    hashes = [(code, energy) if part.size == inside.size else _hashed(part) for part in parts]
    least = min_energy * (CAPTIONED if captioned else 1)
    trimmed, inner, outer = (code if contrast >= least else None for code, contrast in hashes)
    return PictureHashes(trimmed, inner, outer, energy)
