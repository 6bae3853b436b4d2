"""Describe pictures by what stands out of their ground, by their edges and by their colours, without weights.

Ours, for small corpora on a CPU. On 270 pictures of three arrangements with 10 % wrong labels (three seeds of
tests/own, five folds) a linear head on the three blocks is right for .75 to .82, the majority for .41.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Floats = npt.NDArray[np.float64]

SIDE, GROUND, CELLS, ANGLES, COLOURS = 64, 12, 8, 9, 8
WIDTH = GROUND**2 + CELLS**2 * ANGLES + 3 * COLOURS


def rows(pictures: Sequence[bytes | None]) -> Floats:
    """Return the features of pictures, shape (pictures, WIDTH); a missing picture has zeros."""
    return np.array([_row(picture) for picture in pictures]).reshape(len(pictures), WIDTH)


def _row(picture: bytes | None) -> Floats:
    if picture is None:
        return np.zeros(WIDTH)
    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.concatenate([_unit(block) for block in (_standing_out(image), _edges(image), _colours(image))])


def _standing_out(image: Image.Image) -> Floats:
    """Return how far each place is from the median colour."""
    pixels = np.asarray(image, dtype=np.float64)
    far = np.abs(pixels - np.median(pixels, axis=(0, 1))).sum(axis=2) / 3
    soft = Image.fromarray(far.astype(np.uint8)).filter(ImageFilter.GaussianBlur(1))
    return np.asarray(soft.resize((GROUND, GROUND), Image.Resampling.BOX), dtype=np.float64).ravel()


def _edges(image: Image.Image) -> Floats:
    """Return the strength of edges by angle and cell (histograms of oriented gradients, each of length one)."""
    down, right = np.gradient(np.asarray(image.convert("L"), dtype=np.float64))
    angle = (np.arctan2(down, right) % np.pi / np.pi * ANGLES).astype(int) % ANGLES
    size = SIDE // CELLS
    at = np.arange(SIDE) // size
    cell = (at[:, None] * CELLS + at[None, :]) * ANGLES + angle
    counted = np.bincount(cell.ravel(), weights=np.hypot(down, right).ravel(), minlength=CELLS**2 * ANGLES)
    by_cell = counted.reshape(-1, ANGLES)
    return np.asarray(by_cell / np.maximum(np.linalg.norm(by_cell, axis=1, keepdims=True), 1e-12)).ravel()


def _colours(image: Image.Image) -> Floats:
    pixels = np.asarray(image.convert("HSV")).reshape(-1, 3)
    counted = [np.histogram(channel, COLOURS, (0, 256))[0] for channel in pixels.T]
    return np.asarray(np.concatenate(counted), dtype=np.float64)


def _unit(values: Floats) -> Floats:
    return np.asarray(values / max(float(np.linalg.norm(values)), 1e-12))
