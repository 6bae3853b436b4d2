"""Straighten a curved line of text, which a rectangular crop cuts together with the picture around it."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from numpy.polynomial import Polynomial
from rapidocr.ch_ppocr_det.utils import DBPostProcess

# The detector's mask covers the middle of a line; its boxes are this much higher (unclip ratio 1.6 of a long box).
FULL = 2.6
# Ours: a line is curved if its middle leaves the chord by more than half its height. Its curve is a polynomial.
BENT, DEGREE = 0.5, 4
# The recogniser's own height in pixels.
HEIGHT = 48


class KeptMask(DBPostProcess):  # type: ignore[misc]
    """The detector's post-processing, which also keeps the mask of its last picture."""

    mask: npt.NDArray[np.uint8]

    def boxes_from_bitmap(self, pred: Any, bitmap: Any, dest_width: int, dest_height: int) -> Any:
        """Return the boxes and scores."""
        self.mask = np.asarray(bitmap, np.uint8)
        return super().boxes_from_bitmap(pred, bitmap, dest_width, dest_height)


def straightened(picture: npt.NDArray[np.uint8], mask: npt.NDArray[np.uint8], corners: Any) -> Any:
    """Return the line within ``corners`` (of the picture) as a straight strip, or None if the line is not curved."""
    scale = np.array([mask.shape[1] / picture.shape[1], mask.shape[0] / picture.shape[0]])
    (left, top), (right, bottom) = (np.clip(f(axis=0) * scale, 0, None).astype(int) for f in (corners.min, corners.max))
    part = mask[top:bottom, left:right]
    if not part.size:
        return None
    count, labels, stats, _ = cv2.connectedComponentsWithStats(part)
    if count < 2:
        return None
    rows, columns = np.nonzero(labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA])))
    sizes = np.bincount(columns)
    used = np.flatnonzero(sizes)
    middle = np.bincount(columns, weights=rows)[used] / sizes[used]
    if len(used) <= 2 * DEGREE:
        return None
    x = np.linspace(used[0], used[-1], 400)
    curve = Polynomial.fit(used, middle, DEGREE)
    slope = np.asarray(curve.deriv()(x), np.float64)
    length = float(np.hypot(np.diff(x), np.diff(curve(x))).sum())
    thickness = FULL * len(rows) / max(1.0, length)
    chord = np.linspace(curve(x[0]), curve(x[-1]), len(x))
    if np.abs(curve(x) - chord).max() < BENT * thickness:
        return None
    along = np.concatenate([[0], np.hypot(np.diff(x), np.diff(curve(x))).cumsum()])
    unit = HEIGHT / thickness
    places = np.linspace(-thickness / 3, length + thickness / 3, int((length + thickness * 2 / 3) * unit))
    px, tangent = np.interp(places, along, x), np.interp(places, along, slope)
    norm = np.hypot(1, tangent)
    beyond = places - np.clip(places, 0, length)
    px, py = px + beyond / norm, curve(px) + beyond * tangent / norm
    offset = (np.arange(HEIGHT) - HEIGHT / 2)[:, None] / unit
    map_x = (px - offset * tangent / norm + left) / scale[0]
    map_y = (py + offset / norm + top) / scale[1]
    return cv2.remap(picture, map_x.astype(np.float32), map_y.astype(np.float32), cv2.INTER_LINEAR)
