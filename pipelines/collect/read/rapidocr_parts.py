"""Models of RapidOCR, and the parts of it that are replaced: decoding of spaces, the detector's mask, curved lines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime
import rapidocr
from numpy.polynomial import Polynomial
from omegaconf import flag_override
from rapidocr.ch_ppocr_det.utils import DBPostProcess
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode

from pipelines.collect.read.layout import Box

# Ours, measured on 330 drawn memes: whole English lines score .90 and more (a label on an object .76); false text in
# pictures without text scores up to .90, but consists of a single character.
MIN_CONFIDENCE = 0.6
MIN_CONFIDENCE_SINGLE = 0.95
# Ours, in letters per line height of a line's length: Latin lines have 1.4 to 2.6; scripts that the model does not know
# give blanks and have 0 to 0.6. A line that counts as unread is level, at least 2.5 heights long and at most a quarter
# of the picture high; anything else is a shape in the picture.
MIN_DENSITY = 0.8
MIN_LENGTH = 2.5
MAX_HEIGHT = 0.25
# Ours: the probability from which on a space is read where the recogniser prefers to read nothing.
MAYBE_SPACE = 0.2
# The detector in 8-bit integers, made by bench/quantize_ocr.py; the recogniser is the wheel's.
MODELS = {
    "Det": Path(__file__).with_name("rapidocr_parts.detection.onnx"),
    "Rec": Path(rapidocr.__file__).parent / "models" / "PP-OCRv6_rec_small.onnx",
}


class SpacedDecode(CTCLabelDecode):  # type: ignore[misc]
    """The recogniser's decoding, which also reads a space that is the second choice after a blank."""

    def __call__(self, preds: Any, return_word_box: bool = False, **line: Any) -> Any:
        first = preds.argmax(axis=2)
        certain = np.take_along_axis(preds, first[..., None], axis=2)[..., 0]
        first[(first == self.dict["blank"]) & (preds[:, :, -1] >= MAYBE_SPACE)] = self.dict[" "]
        ratios = line.get("wh_ratio_list", (1.0,)), line.get("max_wh_ratio", 1.0)
        return self.decode(first, certain, return_word_box, *ratios, remove_duplicate=True)


def replace(model: Any, kind: type[Any]) -> None:
    with_settings = object.__new__(kind)
    vars(with_settings).update(vars(model.postprocess_op))
    model.postprocess_op = with_settings


def box(corners: Any, text: str, confidence: float, height: int) -> Box | None:
    """Return the line, marked unread if the model found a line but hardly any letters, or None for a shape."""
    width, thickness = (max(1.0, float(np.linalg.norm(corners[0] - corners[i]))) for i in (1, 3))
    characters = sum(c.isalnum() for c in text)
    density = characters * min(width, thickness) / max(width, thickness)
    certain = MIN_CONFIDENCE if characters > 1 else MIN_CONFIDENCE_SINGLE
    read = bool(confidence >= certain and density >= MIN_DENSITY)
    if not read and (width < MIN_LENGTH * thickness or thickness > MAX_HEIGHT * height):
        return None
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    return Box(text if read else "", float(confidence), float(left), float(top), float(right), float(bottom), read)


def decoded(data: bytes) -> Any:
    """Return a picture, or ``None`` if it cannot be decoded."""
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def opened(settings: dict[str, Any], *, thread: ThreadPoolExecutor) -> Any:
    """Return RapidOCR's engine, with the sessions of its models opened by a thread."""
    cv2.setNumThreads(1)
    engine = rapidocr.RapidOCR(params=settings)
    with flag_override(engine.cfg, "allow_objects", True):
        for part, path in MODELS.items():
            engine.cfg[part].session = thread.submit(session, path).result()
    return engine


def session(path: Path) -> onnxruntime.InferenceSession:
    """Open a model with one thread, ONNX Runtime's memory arena, and denormal numbers as zero.

    Denormal numbers are slow on x86: without them a picture takes 54 % of the time (docs/log/performance.md). RapidOCR
    turns the arena off, and the detector then gets 60 MB from the kernel for each picture.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# The detector's mask covers the middle of a line; its boxes are this much higher (unclip ratio 1.6 of a long box).
FULL = 2.6
# Ours: a line is curved if its edge leaves the chord by more than half its least height. Its curve is a polynomial.
BENT, DEGREE = 0.5, 4
# Ours: the mask fills the hollow of an arc in part. The line's height is this percentile of its columns' heights, or
# that share of it: the line is read at both heights. Word recall of arcs, 3 % of bench/second_world: .94; .61 without.
THIN, SHARES = 8, (1.0, 0.6)
# The recogniser's own height in pixels.
HEIGHT = 48


class KeptMask(DBPostProcess):  # type: ignore[misc]
    """The detector's post-processing, which also keeps the mask of its last picture."""

    mask: npt.NDArray[np.uint8]

    def boxes_from_bitmap(self, pred: Any, bitmap: Any, dest_width: int, dest_height: int) -> Any:
        self.mask = np.asarray(bitmap, np.uint8)
        return super().boxes_from_bitmap(pred, bitmap, dest_width, dest_height)


def straightened(picture: npt.NDArray[np.uint8], mask: npt.NDArray[np.uint8], corners: Any) -> list[Any]:
    """Return the line within ``corners`` (of the picture) as straight strips of two heights, or none if not curved."""
    scale = np.array([mask.shape[1] / picture.shape[1], mask.shape[0] / picture.shape[0]])
    (left, top), (right, bottom) = (np.clip(f(axis=0) * scale, 0, None).astype(int) for f in (corners.min, corners.max))
    part = mask[top:bottom, left:right]
    if not part.size:
        return []
    count, labels, stats, _ = cv2.connectedComponentsWithStats(part)
    if count < 2:
        return []
    line = labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    used = np.flatnonzero(line.any(axis=0))
    if len(used) <= 2 * DEGREE:
        return []
    # the mask often fills the hollow of an arc: the outer edge is the smooth one
    upper, lower = line.argmax(axis=0)[used], len(line) - line[::-1].argmax(axis=0)[used]
    edges = [Polynomial.fit(used, edge, DEGREE) for edge in (upper, lower)]
    rough = [float(np.abs(curve(used) - edge).mean()) for curve, edge in zip(edges, (upper, lower), strict=True)]
    curve = edges[int(np.argmin(rough))]
    heights = (lower - upper) / np.hypot(1, np.asarray(curve.deriv()(used), np.float64))
    thin = float(np.percentile(heights, THIN))
    x = np.linspace(used[0], used[-1], 400)
    chord = np.linspace(curve(x[0]), curve(x[-1]), len(x))
    if np.abs(curve(x) - chord).max() < BENT * FULL * thin * SHARES[-1]:
        return []
    inward = 1 if rough[0] <= rough[1] else -1
    to_picture = np.array([left, top]), scale
    return [_strip(picture, curve, x, thin=share * thin, inward=inward, place=to_picture) for share in SHARES]


def _strip(
    picture: npt.NDArray[np.uint8], edge: Any, x: Any, *, thin: float, inward: int, place: tuple[Any, Any]
) -> Any:
    """Return the strip of a line that begins at an edge of the mask and is ``thin`` there."""
    (origin, scale), thickness = place, FULL * thin
    slope = np.asarray(edge.deriv()(x), np.float64)
    norm = np.hypot(1, slope)
    x, y = x - inward * thin / 2 * slope / norm, edge(x) + inward * thin / 2 / norm
    length = float(np.hypot(np.diff(x), np.diff(y)).sum())
    along = np.concatenate([[0], np.hypot(np.diff(x), np.diff(y)).cumsum()])
    unit = HEIGHT / thickness
    places = np.linspace(-thickness / 3, length + thickness / 3, int((length + thickness * 2 / 3) * unit))
    px, py, tangent = (np.interp(places, along, values) for values in (x, y, slope))
    norm = np.hypot(1, tangent)
    beyond = places - np.clip(places, 0, length)
    px, py = px + beyond / norm, py + beyond * tangent / norm
    offset = (np.arange(HEIGHT) - HEIGHT / 2)[:, None] / unit
    map_x = (px - offset * tangent / norm + origin[0]) / scale[0]
    map_y = (py + offset / norm + origin[1]) / scale[1]
    return cv2.remap(picture, map_x.astype(np.float32), map_y.astype(np.float32), cv2.INTER_LINEAR)
